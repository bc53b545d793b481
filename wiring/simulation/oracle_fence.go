package simulation

import (
	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/ports"
)

// What a fence proves: once it is over, nothing of the dead incarnation touches memory here, and what was written to it is read by nobody.

// fenced takes in that a fence is over. What the incarnation held here is the application's again.
func (o *oracle) fenced(l *life, f *fencing, report agent.FenceReport) {
	settle := l.node.w.setup.settle
	if took := o.w.sim.Now().Add(l.skew).Sub(f.began); took < settle {
		o.violate("early-fence", "%s ended its fence of %s after %v; the settle delay is %v", l.label(), f.dead.label(), took, settle)
	}
	for _, t := range o.transfers { // in whatever order: each is counted out by itself
		if !t.fenced && (t.owner == l && t.to == f.dead.id || t.owner == f.dead && t.to == l.id) {
			t.fenced = true
			o.transferFenced(t, "fenced and settled")
			o.transferOver(t)
		}
	}
	for _, c := range o.copies { // likewise
		if c.life == f.dead && c.region != nil && c.region.flow.from == l.id {
			c.fenced = true
			c.region.scatters--
			c.region.flow.scatters--
		}
	}
	running := 0
	for _, g := range o.pair(f.dead.id, l.id).live {
		running += g.scatters
		o.drainedFlow(g)
	}
	if running > 0 && report.Kept == 0 {
		o.violate("false-fence", "%s says that its fence of %s keeps nothing, while %d scatters have no evidence", l.label(), f.dead.label(), running)
	}
	if report.Kept > 0 {
		o.evidence["fence: regions kept"]++
		return
	}
	for _, r := range o.w.requests {
		if r.from == f.dead && r.to == l && !r.over {
			r.over = true
			r.giveBackAt(l)
		}
	}
}

// giveBackAt reuses a request's pages on the side of one of its two lives, after the other died.
func (r *request) giveBackAt(l *life) {
	switch {
	case r.dstPool.life == l:
		r.giveBackTarget()
	case r.srcPool.life == l && !r.released:
		r.released = true
		r.srcPool.giveBack(r.srcPages, r.w)
	}
}

// revoked takes in that an engine has ended a peer's access, and can prove it to its own agent: nothing that was posted before moves, in either direction, and the regions that were granted to the peer are free.
func (o *oracle) revoked(by, peer ports.Identity) {
	for _, g := range o.pair(peer, by).live {
		g.revoked = true
		o.drainedFlow(g)
	}
	for _, t := range o.transfers { // in whatever order: each is counted out by itself
		switch {
		case t.fenced:
		case t.owner.id == by && t.to == peer:
			t.fenced = true
			o.transferFenced(t, "revoked")
			o.transferOver(t)
		case t.owner.id == peer && t.to == by:
			t.severed = true
		}
	}
}
