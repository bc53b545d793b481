package transport

import (
	"slices"

	"github.com/kvbounce/kvbounce/ports"
)

// leaving is memory that is being deregistered: it may be unmapped when no copy and no transfer touches it any more.
type leaving struct {
	ranges  []ports.Descriptor
	unknown []*request // whose runs had not all come when the memory was deregistered
	done    func(error)
}

// Leave waits until nothing that this agent runs touches the ranges, which the registry no longer holds; done is then called in the reactor. Requests in progress that
// would still read them fail. When the transport stops before, done gets ErrClosing and the memory may still be touched. Any goroutine.
func (t *Transport) Leave(ranges []ports.Descriptor, done func(error)) error {
	return t.put(func(t *Transport) {
		l := &leaving{ranges: ranges, done: done}
		for _, p := range t.order {
			for r := range p.reqs.All {
				if r.state == requestActive {
					t.leave(l, r)
				}
			}
		}
		for _, r := range t.waiting {
			t.leave(l, r)
		}
		for _, d := range t.directs {
			if d.transfer == nil && meetsAny(d.sub.Local, l.ranges) {
				t.failDirect(d, &Failure{Kind: ErrDeregistered})
			}
		}
		t.leaving = append(t.leaving, l)
	}, true)
}

// leave fails a request that would still read the ranges, as far as its runs are known.
func (t *Transport) leave(l *leaving, r *request) {
	if r.planned < len(r.chunks) {
		l.unknown = append(l.unknown, r)
	}
	for i := range r.chunks {
		c := &r.chunks[i]
		again := c.state == chunkPlanned || (c.state <= chunkGathered && !c.credited())
		if again && c.plan != nil && touches(c.plan.Gather, t.arena.Place, l.ranges) {
			t.fail(r, &Failure{Kind: ErrDeregistered})
			return
		}
	}
}

// settleLeaving finishes the deregistrations that nothing touches any more.
func (t *Transport) settleLeaving() {
	t.leaving = slices.DeleteFunc(t.leaving, func(l *leaving) bool {
		if t.stillTouched(l) {
			return false
		}
		l.done(nil)
		t.dirty = true
		return true
	})
}

func (t *Transport) stillTouched(l *leaving) bool {
	unknown := l.unknown
	l.unknown = nil
	for _, r := range unknown {
		if r.state < requestDraining {
			t.leave(l, r)
		}
	}
	if len(l.unknown) > 0 {
		return true
	}
	if t.mutated("deregister memory under copies that run") {
		return false
	}
	gathers := func(c *chunk) bool { return touches(c.plan.Gather, t.arena.Place, l.ranges) }
	scatters := func(rc *regionChunk) bool { return touches(rc.runs, t.arena.Place, l.ranges) }
	moves := func(d *direct) bool { return meetsAny(d.sub.Local, l.ranges) }
	return slices.ContainsFunc(t.gathers, gathers) || slices.ContainsFunc(t.stuckGathers, gathers) ||
		slices.ContainsFunc(t.scatters, scatters) || slices.ContainsFunc(t.stuckScatters, scatters) ||
		slices.ContainsFunc(t.directs, moves) || slices.ContainsFunc(t.lingering, moves)
}
