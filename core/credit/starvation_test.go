package credit

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Many small flows must not keep a large chunk waiting: it is granted within flows x 32 of their completions.
func TestSmallFlowsCannotStarveALargeChunk(t *testing.T) {
	for _, c := range []struct{ flows, window int }{{8, 1}, {16, 4}, {4, 4}, {200, 1}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			const zone = 8
			w := newWorld(t, 4*zone, 1, zone, c.window)
			for range c.flows {
				w.sched.Open("small", sizes(1000, 1))
			}
			out := w.grants()
			large := w.sched.Open("large", sizes(1, zone))
			granted := false
			done := 0
			for ; !granted && done < c.flows*32; done++ {
				// Completions in an order that keeps every zone busy.
				i := done * 7 % len(out)
				w.free(out[i].Block)
				out = append(out[:i], out[i+1:]...)
				for _, g := range w.grants() {
					granted = granted || g.Flow == large
					out = append(out, g)
				}
			}
			require.True(t, granted, "after %d completions", done)
		})
	}
}

// starve fills an arena of four zones of 4 granules with small grants, opens a large flow behind a small one, and passes the large chunk over until it gets a hold.
func starve(t *testing.T) (w *world, small, large *Flow) {
	w = newWorld(t, 16, 1, 4, 100)
	small = w.sched.Open("small", sizes(1000, 1))
	require.Len(t, w.grants(), 12)
	large = w.sched.Open("large", sizes(2, 4))
	passOver(w, large)
	return w, small, large
}

// passOver frees and grants single granules in zone 3 until large gets a hold.
func passOver(w *world, large *Flow) {
	w.t.Helper()
	for passes := 0; w.sched.starving != large; passes++ {
		require.Less(w.t, passes, 20)
		for _, b := range w.blocks(ForGrant) {
			if w.zone(b) == 3 {
				w.free(b)
				break
			}
		}
		require.Len(w.t, w.grants(), 1)
	}
}

func TestHoldKeepsNewBlocksOutAndNothingElse(t *testing.T) {
	w, _, large := starve(t)
	hold := w.arena.hold
	require.Equal(t, uint64(4), hold.size)
	var inside, outside []Block
	for _, b := range w.blocks(ForGrant) {
		if hold.overlaps(b) {
			inside = append(inside, b)
		} else {
			outside = append(outside, b)
		}
	}
	require.Len(t, inside, 4)
	w.free(outside[0])
	require.Equal(t, "small", owners(w.grants()), "all else goes on")
	for _, b := range inside[:3] {
		w.free(b)
		require.Empty(t, w.grants())
		require.True(t, w.arena.held())
	}
	w.free(inside[3])
	g := w.grants()
	require.Len(t, g, 1)
	require.Same(t, large, g[0].Flow)
	require.Equal(t, hold.base, g[0].Block.Offset)
	require.False(t, w.arena.held())
}

func TestHoldComesAfterEnoughPasses(t *testing.T) {
	for _, c := range []struct{ others, want int }{{1, 8}, {2, 8}, {3, 8}, {9, 20}, {63, 128}, {200, 128}} {
		w := newWorld(t, 16, 1, 4, 100)
		w.sched.Open("filler", sizes(12, 1))
		require.Len(t, w.grants(), 12)
		large := w.sched.Open("large", sizes(1, 4))
		for range c.others {
			w.sched.Open("small", sizes(1000, 1))
		}
		passes := 0
		for w.sched.starving != large {
			w.free(w.blocks(ForGrant)[0])
			require.Len(t, w.grants(), 1)
			passes++
			require.LessOrEqual(t, passes, c.want, "%+v", c)
		}
		require.Equal(t, c.want, passes, "%+v", c)
	}
}

func TestTurnsOfFlowsBeforeItAreNoPasses(t *testing.T) {
	w := newWorld(t, 16, 1, 4, 100)
	for range 30 {
		w.sched.Open("small", sizes(1000, 1))
	}
	require.Len(t, w.grants(), 12)
	large := w.sched.Open("large", sizes(1, 4))
	for i := range 30 + 2*31 {
		require.NotSame(t, large, w.sched.starving, "%d", i)
		w.free(w.blocks(ForGrant)[0])
		require.Len(t, w.grants(), 1)
	}
	require.Same(t, large, w.sched.starving)
}

func TestChunkThatFitsElsewhereLeavesItsHold(t *testing.T) {
	w, _, large := starve(t)
	hold := w.arena.hold
	w.sched.Close(w.sched.queues[0].First.Of)
	for _, b := range w.blocks(ForGrant) {
		if !hold.overlaps(b) {
			w.free(b)
		}
	}
	g := w.grants()
	require.Len(t, g, 2)
	require.Same(t, large, g[0].Flow)
	require.False(t, hold.overlaps(g[0].Block))
	require.False(t, w.arena.held())
}

func TestHoldEndsWithItsFlow(t *testing.T) {
	w, _, large := starve(t)
	for _, b := range w.blocks(ForGrant) {
		if w.arena.hold.overlaps(b) {
			w.free(b)
			break
		}
	}
	require.Empty(t, w.grants())
	w.sched.Close(large)
	require.Equal(t, 1, w.sched.Active())
	require.Equal(t, "small", owners(w.grants()))
}

func TestHoldMovesOffARetainedRegion(t *testing.T) {
	w, _, large := starve(t)
	later := w.sched.Open("later", sizes(1, 4))
	first := w.arena.hold
	for _, b := range w.blocks(ForGrant) {
		if first.overlaps(b) {
			w.retain(b)
			break
		}
	}
	require.False(t, w.arena.held())
	require.Empty(t, w.grants())
	require.Equal(t, 3, w.sched.Active())
	require.Same(t, large, w.sched.queues[2].First.Of, "back in its place in the ring")
	require.Same(t, later, w.sched.queues[2].Last.Of)
	passOver(w, large)
	require.True(t, w.arena.held())
	require.NotEqual(t, first.base, w.arena.hold.base)
	for _, b := range w.blocks(ForGrant) {
		if w.arena.hold.overlaps(b) {
			w.free(b)
		}
	}
	require.Equal(t, large, w.grants()[0].Flow)
}

func TestHoldIsTheBlockWithFewestOccupants(t *testing.T) {
	w := newWorld(t, 32, 1, 4, 100)
	f := w.sched.Open("filler", sizes(28, 1))
	require.Len(t, w.grants(), 28)
	w.sched.Close(f)
	left := map[int]int{1: 4, 2: 3, 3: 2, 4: 2, 5: 3, 6: 1, 7: 4} // by zone
	for _, b := range w.blocks(ForGrant) {
		if z := w.zone(b); w.arena.zones[z].blocks[ForGrant] > left[z] {
			w.free(b)
		}
	}
	require.True(t, w.arena.holdFor(4))
	require.Equal(t, hold{base: 24, size: 4}, w.arena.hold)
	w.arena.dropHold()

	for _, b := range w.blocks(ForGrant) {
		if z := w.zone(b); z == 6 || z == 4 {
			w.retain(b)
		}
	}
	require.True(t, w.arena.holdFor(3))
	require.Equal(t, hold{base: 12, size: 4}, w.arena.hold, "no retained region inside")
	w.arena.dropHold()
}

// A dead peer's small region in every zone must not stop the others (attacks.md, 12).
func TestNoBlockToHoldStopsNobody(t *testing.T) {
	w := newWorld(t, 16, 1, 4, 100)
	w.sched.Open("small", sizes(1000, 1))
	require.Len(t, w.grants(), 12)
	for z := 1; z < 4; z++ {
		for _, b := range w.blocks(ForGrant) {
			if w.zone(b) == z {
				w.retain(b)
				break
			}
		}
	}
	require.False(t, w.arena.Room())
	require.False(t, w.arena.Placeable(4, ForGrant))
	large := w.sched.Open("large", sizes(1, 4))
	for range 200 {
		w.free(w.blocks(ForGrant)[0])
		require.Equal(t, "small", owners(w.grants()))
	}
	require.False(t, w.arena.held())
	for b := range w.doubt {
		w.unretain(b)
	}
	passOver(w, large)
}

func TestMovedStagingReserveEndsAHoldThere(t *testing.T) {
	w := newWorld(t, 16, 1, 4, 100)
	s, ok := w.stage(1)
	require.True(t, ok)
	g := w.sched.Open("filler", []uint32{4, 4, 1})
	require.Len(t, w.grants(), 3) // zones 3, 2, and one granule of 1
	w.sched.Close(g)
	require.True(t, w.arena.holdFor(4))
	w.arena.dropHold()
	for _, b := range w.blocks(ForGrant) {
		if w.zone(b) == 2 {
			w.retain(b)
		}
	}
	w.arena.hold = hold{base: 4, size: 4}
	w.arena.trees.Bar(4, 4)
	w.arena.Retain(s)
	require.Equal(t, 1, w.arena.reserve[ForStaging])
	require.False(t, w.arena.held())
	_, ok = w.arena.Alloc(1, ForStaging)
	require.True(t, ok)
}

func TestStagingInAHoldIsInTheWay(t *testing.T) {
	w := newWorld(t, 12, 1, 4, 100)
	_, ok := w.stage(4)
	require.True(t, ok)
	shared, ok := w.stage(4)
	require.True(t, ok)
	w.sched.Open("small", sizes(1000, 1))
	require.Len(t, w.grants(), 4)
	large := w.sched.Open("large", sizes(1, 4))
	for w.sched.starving != large {
		w.free(w.blocks(ForGrant)[0])
		require.Len(t, w.grants(), 1)
	}
	require.True(t, w.arena.hold.overlaps(shared), "one occupant is fewer than four")
	require.True(t, w.arena.InTheWay(shared))
	w.free(shared)
	require.Equal(t, "large", owners(w.grants()))
}
