package transport

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/ports"
)

// Revoking (protocol.md, 7): an engine that can ends all access between this agent and a peer, and proves it. Unlike a fence it says nothing of the peer's process. So it is evidence for writes, those to the
// peer and the peer's own, and not for the copies that the peer makes: a request that wrote something is drained as ever.

// ErrNoRevoke: the engine is no ports.Revoker.
var ErrNoRevoke = errors.New("the engine can't end a peer's access")

// revocation is one that is under way.
type revocation struct {
	id   ports.Identity
	peer *peer // nil: nothing is known of it
	done []func(proven bool)
}

// RevokePeer removes a peer, has the engine end all access between it and this agent, and takes that as evidence once it is proven; done is then called in the reactor, and told false when the agent stops
// before that. Both sides have to add each other again before anything is sent. Any goroutine.
func (t *Transport) RevokePeer(id ports.Identity, done func(proven bool)) error {
	if t.revoker == nil {
		return ErrNoRevoke
	}
	return t.put(func(t *Transport) { t.revokePeer(id, done) }, true)
}

func (t *Transport) revokePeer(id ports.Identity, done func(proven bool)) {
	if i := slices.IndexFunc(t.revocations, func(v *revocation) bool { return v.id == id }); i >= 0 {
		t.revocations[i].done = append(t.revocations[i].done, done)
		return
	}
	t.log.Info("the engine is asked to end a peer's access", "peer", id)
	p := t.peers[id]
	t.revoker.Revoke(id)
	t.revocations = append(t.revocations, &revocation{id: id, peer: p, done: []func(bool){done}})
	if p != nil {
		p.engine = false
		t.removePeer(p, ErrRevoked)
	}
}

// pollRevocations takes the proofs in, before writes and direct transfers are looked at: it is evidence for them.
func (t *Transport) pollRevocations() {
	t.revocations = slices.DeleteFunc(t.revocations, func(v *revocation) bool {
		if !t.revoker.Revoked(v.id) {
			return false
		}
		t.dirty = true
		if p := v.peer; p != nil {
			p.revoked, p.inDoubt = true, false
			for f := range p.flowList.All {
				if f.state != flowFinished {
					t.closeFlow(f, drain.Revoked)
				}
			}
		}
		t.log.Info("the engine has ended a peer's access", "peer", v.id)
		for _, done := range v.done {
			done(true)
		}
		return true
	})
}

// evidenceOf is what is known of a transfer to a peer, and whether it may still become known.
func (t *Transport) evidenceOf(p *peer, transfer ports.Transfer) (e drain.Evidence, pending bool) {
	e, pending = drain.OfTransfer(transfer.Status())
	if p.revoked && !e.Closes(drain.Write) {
		return drain.Revoked, false
	}
	return e, pending
}

// isRevoking is the error of adding a peer whose access is just being ended.
func (t *Transport) isRevoking(id ports.Identity) error {
	if slices.ContainsFunc(t.revocations, func(v *revocation) bool { return v.id == id }) {
		return fmt.Errorf("%w: the revocation of %s is not over", ErrRevoked, id)
	}
	return nil
}
