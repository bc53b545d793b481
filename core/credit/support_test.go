package credit

import (
	"maps"
	"slices"

	"github.com/stretchr/testify/require"
)

const mib = 1 << 20

// testingT is what *testing.T and *rapid.T share.
type testingT interface {
	require.TestingT
	Helper()
}

// world is an arena and its scheduler with a record of what should be so.
type world struct {
	t      testingT
	arena  *Arena
	sched  *Scheduler
	total  uint64
	window int

	live  map[Block]Purpose
	doubt map[Block]bool
	owner map[Block]*Flow // of grants
}

func newWorld(t testingT, bytes, granule, chunkLimit uint64, window int) *world {
	t.Helper()
	a, err := NewArena(bytes, granule, chunkLimit)
	require.NoError(t, err)
	return &world{
		t: t, arena: a, sched: NewScheduler(a, window), total: a.FreeBytes(), window: window,
		live: map[Block]Purpose{}, doubt: map[Block]bool{}, owner: map[Block]*Flow{},
	}
}

// blocks are the live blocks of a purpose that are not in doubt, by offset.
func (w *world) blocks(p Purpose) []Block {
	list := slices.SortedFunc(maps.Keys(w.live), func(a, b Block) int { return int(a.Offset) - int(b.Offset) })
	return slices.DeleteFunc(list, func(b Block) bool { return w.live[b] != p || w.doubt[b] })
}

func (w *world) next() (Grant, bool) {
	w.t.Helper()
	hold, reserve, starving := w.arena.hold, w.arena.reserve[ForStaging], w.sched.starving
	g, ok := w.sched.Next()
	if ok {
		w.must(reserve == noZone || reserve != w.zone(g.Block), "a grant in the reserve of staging")
		if starving != g.Flow {
			require.False(w.t, hold.overlaps(g.Block), "a grant in another's hold")
		}
		w.add(g.Block, ForGrant)
		w.owner[g.Block] = g.Flow
	}
	w.check()
	return g, ok
}

// grants makes every grant that can be made.
func (w *world) grants() []Grant {
	w.t.Helper()
	var all []Grant
	for {
		g, ok := w.next()
		if !ok {
			return all
		}
		all = append(all, g)
	}
}

func (w *world) stage(bytes uint64) (Block, bool) {
	w.t.Helper()
	b, ok := w.arena.Alloc(bytes, ForStaging)
	if ok {
		reserve := w.arena.reserve[ForGrant]
		w.must(reserve == noZone || reserve != w.zone(b), "staging in the reserve of grants")
		require.False(w.t, w.arena.hold.overlaps(b), "staging in a hold")
		w.add(b, ForStaging)
	}
	w.check()
	return b, ok
}

func (w *world) add(b Block, p Purpose) {
	w.t.Helper()
	for other := range w.live {
		w.must(b.Offset+b.Bytes <= other.Offset || other.Offset+other.Bytes <= b.Offset, "%+v overlaps %+v", b, other)
	}
	w.live[b] = p
}

// free gives a block back, and a grant's window slot.
func (w *world) free(b Block) {
	w.t.Helper()
	w.arena.Free(b)
	delete(w.live, b)
	if f := w.owner[b]; f != nil {
		delete(w.owner, b)
		w.sched.Returned(f)
	}
	w.check()
}

func (w *world) retain(b Block) {
	w.t.Helper()
	w.arena.Retain(b)
	w.doubt[b] = true
	w.check()
}

func (w *world) unretain(b Block) {
	w.t.Helper()
	w.arena.Unretain(b)
	delete(w.doubt, b)
	w.check()
}

func (w *world) zone(b Block) int { return w.arena.zoneOf(b.Offset) }

func (w *world) rounded(b Block) uint64 {
	g := w.arena.trees.Granule()
	return (b.Bytes + g - 1) / g * g
}

// check compares the arena and the scheduler with the record and with themselves.
func (w *world) check() {
	w.t.Helper()
	a := w.arena
	zones := make([]zone, len(a.zones))
	var used, retained uint64
	for b, p := range w.live {
		used += w.rounded(b)
		z := w.zone(b)
		if w.doubt[b] {
			retained += w.rounded(b)
			w.must(!a.hold.overlaps(b), "a retained block in the hold")
		}
		if z == noZone {
			continue
		}
		w.must(b.Offset+b.Bytes <= uint64(z+1)*a.zoneBytes, "%+v crosses zones", b)
		zones[z].blocks[p]++
		if w.doubt[b] {
			zones[z].retained++
		}
	}
	require.Equal(w.t, w.total, a.FreeBytes()+used)
	require.Equal(w.t, len(w.live), a.LiveBlocks())
	require.Equal(w.t, retained, a.RetainedBytes())
	require.Equal(w.t, zones, a.zones)
	clean := 0
	for _, z := range zones {
		if z.retained == 0 {
			clean++
		}
	}
	for _, p := range []Purpose{ForGrant, ForStaging} {
		if z := a.reserve[p]; z != noZone {
			require.Zero(w.t, zones[z].retained, "the reserve of %v holds a retained block", p)
		}
	}
	require.Equal(w.t, clean >= 2, a.Room())
	require.Equal(w.t, clean >= 1, a.reserve[ForStaging] != noZone)
	if a.Room() {
		require.NotEqual(w.t, a.reserve[ForGrant], a.reserve[ForStaging])
	}
	w.checkRing()
}

func (w *world) checkRing() {
	w.t.Helper()
	s := w.sched
	active := 0
	if f := s.starving; f != nil {
		active++
		w.must(f.state == starving, "the starving flow is in state %d", f.state)
	} else {
		w.must(!w.arena.held(), "a hold for nobody")
	}
	for c := range s.queues {
		var prev *Flow
		for f := range s.queues[c].All {
			active++
			w.must(f.state == queued, "a flow in a queue is in state %d", f.state)
			w.must(f.class == c && f.smallestClass(w.arena) == c, "a flow of class %d stands in queue %d", f.class, c)
			w.must(f.outstanding < w.window, "a flow in a queue holds %d regions", f.outstanding)
			w.must(prev == nil || prev.place < f.place, "queue %d is out of order", c)
			prev = f
		}
	}
	w.must(active == s.Active(), "%d flows in the ring, Active says %d", active, s.Active())
}

// must is require.True for loops: it costs nothing while all is well.
func (w *world) must(ok bool, format string, args ...any) {
	if !ok {
		w.t.Helper()
		require.Failf(w.t, "broken", format, args...)
	}
}

// sizes are n chunks of the same bytes.
func sizes(n int, bytes uint32) []uint32 { return slices.Repeat([]uint32{bytes}, n) }
