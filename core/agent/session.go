package agent

import (
	"errors"

	"github.com/kvbounce/kvbounce/core/session"
)

// ErrInUse: the ownership profile must be adopted before the first request.
var ErrInUse = errors.New("requests were submitted already")

// Session begins an engine request whose memory is to be retired: add what it sends and receives to it, and ask it when the memory may be reused.
func (a *Agent) Session(name string) (*session.Request, error) { return a.sessions.Request(name) }

// AdoptProfile holds a deployment against what retirement by evidence needs, and lists all that is unmet at once. The agent fills in what it knows of itself (OwnershipHere, RealEngine).
// Once adopted nothing goes directly any more: a direct write goes round windows and evidence. It must come before the first request.
func (a *Agent) AdoptProfile(p session.Profile) error {
	p.OwnershipHere, p.RealEngine = a.BounceEnabled(), a.opt.Engine.Info().Real
	if err := p.Validate(); err != nil {
		return err
	}
	for r := range reasons {
		if a.router.count[r].Load() > 0 {
			return ErrInUse
		}
	}
	a.ownership.Store(true)
	return nil
}

// failStop is what sessions and closing come to when memory of the application is in doubt for too long.
func (a *Agent) failStop(r session.Report) {
	if a.opt.FailStop != nil {
		a.opt.FailStop(r)
		return
	}
	a.log.Error(r.String())
}
