package credit

import (
	"fmt"
	"math/bits"

	"github.com/kvbounce/kvbounce/core/list"
)

// lookAhead is how many chunks of a flow, from its first ungranted one on, are looked at: when the first does not fit, a later one of them may be granted before it. So a flow passes
// over its own chunk at most lookAhead-1 times.
const lookAhead = 8

// Limits of how often a chunk may be passed over before a block is held for it: max(minPasses, 2 x min(active, activeCap)) grants (protocol.md, 6). The cap keeps it below
// the time-out with very many flows.
const (
	minPasses = 8
	activeCap = 64
)

// Grant is one region for one chunk.
type Grant struct {
	Flow  *Flow
	Chunk int
	Block Block
}

// Scheduler gives the arena's regions to flows: round robin, one grant a turn.
//
// The ring is kept as one queue for each block order, every flow in the queue of the smallest chunk it could be granted next. Whether a chunk fits depends on its order alone, so the
// next grant goes to the flow with the lowest place in the ring among the heads of the queues that fit: flows without hope are not looked at, and a grant
// costs O(log(arena / granule)) however many flows there are.
//
// A flow that gets a grant goes to the end of the ring; one that is passed over keeps its place. One at its window, or with nothing pending, is not in the ring.
//
// A chunk that was passed over too often gets a hold: an aligned block with the fewest occupants, in which nothing new is placed until the chunk fits. All else goes on. There is one
// hold at a time; it ends with the grant, with the flow, or when the block gets a retained region (then another is sought).
//
// A Scheduler is not safe for concurrent use: it is the reactor's.
type Scheduler struct {
	arena  *Arena
	window int
	queues [maxClasses]list.List[Flow] // in the order of their places
	active int                         // flows in the ring, the starving one included
	place  uint64                      // the last place given in the ring
	grants uint64                      // made so far

	// starving has the hold, or had it until the arena ended it. It is in no queue, and gets only the chunk that starves, so that its window can't close over it.
	starving *Flow
}

// NewScheduler makes the scheduler of an arena. window is how many regions a flow may hold at once, at least 1.
func NewScheduler(a *Arena, window int) *Scheduler {
	if window < 1 {
		panic(fmt.Sprintf("credit: a window of %d chunks, want at least 1", window))
	}
	return &Scheduler{arena: a, window: window}
}

// Open adds a flow at the end of the ring. The scheduler keeps chunkBytes until Close: the caller must not change it. Every chunk must have 1 to chunkLimit bytes; the caller has
// checked what a peer sent (NACK 6), so it panics.
func (s *Scheduler) Open(owner any, chunkBytes []uint32) *Flow {
	for i, bytes := range chunkBytes {
		if bytes == 0 || uint64(bytes) > s.arena.chunkLimit {
			panic(fmt.Sprintf("credit: chunk %d has %d bytes, want 1 to %d", i, bytes, s.arena.chunkLimit))
		}
	}
	f := &Flow{Owner: owner, chunks: chunkBytes}
	f.node.Of = f
	s.join(f)
	return f
}

// Close takes a flow out: its pending chunks are dropped. Its outstanding grants are not touched; Returned may still be called for them. Closing it again does nothing.
func (s *Scheduler) Close(f *Flow) {
	switch f.state {
	case queued:
		f.node.Unlink()
		s.active--
	case starving:
		s.starving = nil
		s.active--
		if s.arena.held() {
			s.arena.dropHold()
		}
	}
	f.state = closed
	f.chunks = nil
}

// Returned tells that one granted block of f was given back: a slot of its window is free. It panics when none is outstanding.
func (s *Scheduler) Returned(f *Flow) {
	if f.outstanding == 0 {
		panic("credit: Returned for a flow without outstanding grants")
	}
	f.outstanding--
	if f.state == outside && !s.arena.mutated("forget a window's returned place") {
		s.join(f)
	}
}

// Active is how many flows want a grant: they have a pending chunk and are below their window.
func (s *Scheduler) Active() int { return s.active }

// Next makes the next grant. ok is false when no flow that wants one has a chunk that fits; until Open, Returned or a change of the arena it stays so, and asking is cheap.
func (s *Scheduler) Next() (g Grant, ok bool) {
	if f := s.starving; f != nil {
		if g, ok = s.feed(f); ok {
			return g, true
		}
	}
	fit := s.fitting()
	f := s.first(fit)
	if f == nil {
		return Grant{}, false
	}
	f.node.Unlink()
	ahead := f.firstOf(s.arena, fit)
	b, ok := s.arena.Alloc(f.bytesOf(ahead), ForGrant)
	if !ok {
		panic(fmt.Sprintf("credit: no block for a chunk of %d bytes where %d fit", f.bytesOf(ahead), s.arena.largest(ForGrant)))
	}
	return s.granted(f, ahead, b), true
}

// feed tries the starving flow: in its hold, or anywhere else. When the arena ended the hold the flow goes back to its place.
func (s *Scheduler) feed(f *Flow) (g Grant, ok bool) {
	if !s.arena.held() {
		s.starving = nil
		f.state = queued
		s.queues[f.class].Insert(&f.node, nil)
		return Grant{}, false
	}
	b, ok := s.arena.allocHeld(f.bytesOf(0))
	if !ok {
		if b, ok = s.arena.Alloc(f.bytesOf(0), ForGrant); !ok {
			return Grant{}, false
		}
		s.arena.dropHold()
	}
	s.starving = nil
	return s.granted(f, 0, b), true
}

// fitting is one more than the largest class of which a grant fits now, 0 if none does.
func (s *Scheduler) fitting() int {
	return bits.Len64(s.arena.largest(ForGrant) / s.arena.trees.Granule())
}

// first is the flow with the lowest place in the ring among those with a chunk of a class below limit.
func (s *Scheduler) first(limit int) *Flow {
	var best *Flow
	for c := range s.queues[:limit] {
		if n := s.queues[c].First; n != nil && (best == nil || n.Of.place < best.place) {
			best = n.Of
		}
	}
	return best
}

// granted records a grant to f, which is in no queue, and puts f at the end of the ring if it wants more.
func (s *Scheduler) granted(f *Flow, ahead int, b Block) Grant {
	g := Grant{Flow: f, Chunk: f.next + ahead, Block: b}
	f.take(ahead)
	f.outstanding++
	f.state = outside
	s.active--
	s.grants++
	if ahead == 0 || f.outstanding == s.window {
		f.counting = false // another chunk is the first now, or none waits
	}
	s.join(f)
	s.relieve()
	return g
}

// join puts a flow that is outside at the end of the ring, if it wants a grant.
func (s *Scheduler) join(f *Flow) {
	if f.next == len(f.chunks) || f.outstanding >= s.window && !s.arena.mutated("grant beyond the window") {
		return
	}
	if !f.counting {
		f.counting, f.since, f.before = true, s.grants, 0
	}
	f.before += uint64(s.active)
	s.place++
	f.place = s.place
	f.class = f.smallestClass(s.arena)
	f.state = queued
	s.queues[f.class].Push(&f.node)
	s.active++
}

// passes is how often the first chunk of a flow in the ring was passed over, at least: the grants since it waits there, less one for each flow that stood before it, whose turn it was.
func (s *Scheduler) passes(f *Flow) uint64 {
	grants := s.grants - f.since
	return grants - min(grants, f.before)
}

// relieve looks, after a grant, for a flow that was passed over too often, and holds a block for its first chunk. Only the heads of queues that don't fit can be: what stands
// behind them was served less long ago.
func (s *Scheduler) relieve() {
	if s.starving != nil || s.arena.mutated("never hold a block for a chunk that was passed over") {
		return
	}
	limit := uint64(max(minPasses, 2*min(s.active, activeCap)))
	var worst *Flow
	for c := s.fitting(); c < maxClasses; c++ {
		n := s.queues[c].First
		if n != nil && s.passes(n.Of) >= limit && (worst == nil || n.Of.place < worst.place) {
			worst = n.Of
		}
	}
	if worst == nil {
		return
	}
	if !s.arena.holdFor(worst.bytesOf(0)) {
		worst.since, worst.before = s.grants, 0 // no block can be emptied now: look again after as many grants
		return
	}
	worst.node.Unlink()
	worst.state = starving
	s.starving = worst
}
