package simulation

import (
	"errors"

	"github.com/kvbounce/kvbounce/core/transport"
)

// noteRoute counts the successes that the limit on what is retained makes: direct ones while it is reached, and bounce ones when it was.
func (r *request) noteRoute() {
	if r.path != "auto" && !r.from.wasRefused {
		return
	}
	t, refusing := &r.w.tally, r.from.agent.Stats().BounceRefusal != ""
	switch bounced := r.h.Path() == transport.PathBounce; {
	case refusing && !bounced && r.path == "auto":
		t.Rerouted++
	case !refusing && bounced && r.from.wasRefused:
		t.Regained++
	}
}

// taken holds a bounce request that Submit took against the limit on what is retained: what failed without evidence before the last turn is known.
func (o *oracle) taken(r *request) {
	if r.h.Path() != transport.PathBounce {
		return
	}
	l, kept := r.from, uint64(0)
	for _, t := range o.transfers { // in whatever order
		if t.owner == l && t.req == nil && t.failed && !t.fenced && t.failedTurn < l.turns {
			kept += uint64(len(t.source)) * l.node.setup.granule
		}
	}
	if limit := l.node.setup.arena / 2; kept > limit {
		o.violate("over-limit", "%s takes %s although %d bytes of its arena are in doubt; the limit is %d", l.label(), r, kept, limit)
	}
}

// refused takes in why Submit refused a request. A refusal for what is retained must name a peer of which something is in doubt.
func (o *oracle) refused(l *life, err error) {
	var f *transport.Failure
	if !errors.Is(err, transport.ErrRetained) || !errors.As(err, &f) {
		return
	}
	o.w.tally.Retained++
	l.wasRefused = true
	for _, t := range o.transfers { // in whatever order
		if t.owner == l && t.to == f.Peer && t.failed && !t.fenced {
			return
		}
	}
	for _, c := range o.copies { // likewise
		if c.life == l && c.req != nil && c.req.to.id == f.Peer {
			return
		}
	}
	for _, r := range l.books.regions { // likewise
		if r.flow.from == f.Peer && (r.scatters > 0 || !r.scattered && !r.drained) { // that its write succeeded only its sender knows
			return
		}
	}
	o.violate("false-refusal", "%s refuses bounce requests because of %s, of which nothing is in doubt: %v", l.label(), o.w.label(f.Peer), err)
}
