//go:build invariants

package transport

import "slices"

// checkCopies holds a flow's lease against its copies.
func (f *flow) checkCopies() {
	copies := 0
	for _, rc := range f.chunks {
		if s := rc.stateNow(); s == regionQueued || s == regionScattering {
			copies++
		}
	}
	assert(copies == f.copies, "flow %d: %d copies queued or running, counted %d", f.id, copies, f.copies)
	assert(f.state != flowOpen || (f.lease.slot == 0) == (copies > 0), "flow %d: %d copies queued or running, lease armed: %t", f.id, copies, f.lease.slot != 0)
}

// recount recounts what is counted.
func (t *Transport) recount() {
	var live, strangers int
	var ahead uint64
	for _, p := range t.order {
		assert(t.peers[p.id] == p, "peer %s is in the list but not in the table", p.id)
		if !p.added && !p.superseded {
			strangers++
		}
		n, finished := 0, 0
		for f := range p.flowList.All {
			f.checkCopies()
			assert(f.node.Next == nil || f.id < f.node.Next.Of.id, "flows of %s are out of order", p.id)
			if f.state == flowFinished {
				finished++
			} else {
				n++
			}
		}
		assert(n == p.live && finished == p.finished && n+finished == len(p.flows), "flows of %s: %d live, %d finished, counted %d and %d", p.id, n, finished, p.live, p.finished)
		live += n
		tracked, draining := 0, 0
		for r := range p.reqs.All {
			assert(r.node.Next == nil || r.id < r.node.Next.Of.id, "requests to %s are out of order", p.id)
			tracked++
			if r.state == requestDraining {
				draining++
			}
			for i := range r.chunks {
				if c := &r.chunks[i]; c.ahead {
					ahead += uint64(c.plan.Bytes)
				}
			}
		}
		assert(draining == p.draining, "requests to %s: %d drain, counted %d", p.id, draining, p.draining)
		assert(p.settling == slices.ContainsFunc(t.fences, func(f *fence) bool { return f.peer == p }), "peer %s: settling %t without its fence, or the other way", p.id, p.settling)
		assert(tracked == p.tracked && tracked == len(p.requests), "requests to %s: %d tracked, counted %d", p.id, tracked, p.tracked)
	}
	assert(live == t.liveFlows, "%d live flows, counted %d", live, t.liveFlows)
	assert(strangers == t.strangers, "%d strangers, counted %d", strangers, t.strangers)
	assert(ahead == t.eagerUse, "%d bytes of eager staging, counted %d", ahead, t.eagerUse)
}
