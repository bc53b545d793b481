package simulation

import (
	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/ports"
)

// fencing is an application's statement that a peer's process can no longer run. It is made of processes that ended only.
type fencing struct {
	dead    *life
	began   ports.Instant // in the time that its agent sees
	inForce bool          // the reactor took a turn since
	done    bool          // the agent said that the settle delay is over
}

// fence has a life's application fence all ended lives of a peer.
func (l *life) fence(peer *node) {
	if peer == nil || l.closeBy != ports.Never {
		return
	}
	for _, dead := range peer.past {
		if f := l.fenceOf(dead.id); f != nil {
			// Saying it again changes nothing.
			must(l.agent.FencePeerAsync(dead.id, func(agent.FenceReport) {}))
			continue
		}
		if l.node.known[peer.setup.name] == dead {
			delete(l.node.known, peer.setup.name)
		}
		w := l.node.w
		f := &fencing{dead: dead, began: w.sim.Now().Add(l.skew)}
		l.fences = append(l.fences, f)
		w.tally.Fences++
		must(l.agent.FencePeerAsync(dead.id, func(r agent.FenceReport) {
			if r.Settled {
				f.done = true
				w.oracle.fenced(l, f, r)
			}
		}))
	}
}

// fenceOf is the life's fence of an incarnation, or nil.
func (l *life) fenceOf(id ports.Identity) *fencing {
	for _, f := range l.fences {
		if f.dead.id == id {
			return f
		}
	}
	return nil
}

// hasFenced reports whether a fence of an incarnation is over: nothing of it can touch memory here.
func (l *life) hasFenced(id ports.Identity) bool {
	f := l.fenceOf(id)
	return f != nil && f.done
}

// shuns reports whether the agent must have nothing to do with an incarnation any more.
func (l *life) shuns(id ports.Identity) bool {
	f := l.fenceOf(id)
	return f != nil && f.inForce
}
