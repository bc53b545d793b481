package credit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/list"
)

// Four equal zones of one chunk: one is the staging reserve, three take grants.
func threeRegions(t testingT, window int) *world {
	return newWorld(t, 4*mib, mib, mib, window)
}

func chunks(grants []Grant) []int {
	var list []int
	for _, g := range grants {
		list = append(list, g.Chunk)
	}
	return list
}

func owners(grants []Grant) string {
	var list string
	for _, g := range grants {
		list += g.Flow.Owner.(string)
	}
	return list
}

func TestOneFlowGetsTheLessOfWindowAndArena(t *testing.T) {
	for _, c := range []struct{ window, chunks, want int }{{1, 5, 1}, {2, 5, 2}, {3, 5, 3}, {8, 5, 3}, {8, 2, 2}, {8, 60000, 3}} {
		w := threeRegions(t, c.window)
		w.sched.Open("A", sizes(c.chunks, mib))
		require.Len(t, w.grants(), c.want, "%+v", c)
	}
}

func TestGrantCarriesChunkAndBytes(t *testing.T) {
	w := newWorld(t, 512*mib, mib, 40*mib, 8)
	f := w.sched.Open("A", []uint32{36 * mib, 1, 5*mib + 1})
	for i, want := range []uint64{36 * mib, 1, 5*mib + 1} {
		g, ok := w.next()
		require.True(t, ok)
		require.Equal(t, Grant{Flow: f, Chunk: i, Block: Block{Offset: g.Block.Offset, Bytes: want}}, g)
	}
	require.Zero(t, w.sched.Active())
}

func TestEachReturnGrantsTheNext(t *testing.T) {
	w := threeRegions(t, 2)
	w.sched.Open("A", sizes(6, mib))
	require.Equal(t, []int{0, 1}, chunks(w.grants()))
	for next := 2; next < 6; next++ {
		w.free(w.blocks(ForGrant)[0])
		require.Equal(t, []int{next}, chunks(w.grants()))
	}
}

func TestRoundRobinIsStrict(t *testing.T) {
	w := newWorld(t, 64*mib, mib, 4*mib, 100)
	w.sched.Open("A", sizes(10, mib))
	w.sched.Open("B", sizes(4, 2*mib))
	w.sched.Open("C", sizes(2, 3*mib))
	require.Equal(t, "ABCABCABABAAAAAA", owners(w.grants()))
}

func TestNewFlowJoinsAtTheEnd(t *testing.T) {
	w := newWorld(t, 64*mib, mib, 4*mib, 100)
	w.sched.Open("A", sizes(4, mib))
	w.sched.Open("B", sizes(4, mib))
	g, _ := w.next()
	require.Equal(t, "A", owners([]Grant{g}))
	w.sched.Open("C", sizes(4, mib))
	require.Equal(t, "BACBACBACBC", owners(w.grants()))
}

func TestFlowAtItsWindowIsNotVisited(t *testing.T) {
	w := newWorld(t, 64*mib, mib, 4*mib, 2)
	w.sched.Open("A", sizes(3, mib))
	w.sched.Open("B", sizes(3, mib))
	require.Equal(t, 2, w.sched.Active())
	first := w.grants()
	require.Equal(t, "ABAB", owners(first))
	require.Zero(t, w.sched.Active())
	w.free(first[1].Block)
	w.free(first[0].Block)
	require.Equal(t, 2, w.sched.Active())
	require.Equal(t, "BA", owners(w.grants()), "in the order in which they came back")
}

func TestWindowSplitsTheArenaFairly(t *testing.T) {
	w := newWorld(t, 8*mib, mib, mib, 2)
	for _, owner := range []string{"A", "B", "C", "D"} {
		w.sched.Open(owner, sizes(10, mib))
	}
	require.Equal(t, "ABCDABC", owners(w.grants()))
}

func TestMoreFlowsThanRegionsAllFinish(t *testing.T) {
	w := threeRegions(t, 2)
	got := map[string]int{}
	for i := range 20 {
		w.sched.Open(string(rune('a'+i)), sizes(5, mib))
	}
	for turn := range 100 {
		for _, g := range w.grants() {
			got[g.Flow.Owner.(string)]++
		}
		if turn%20 == 19 {
			for owner, n := range got {
				require.InDelta(t, turn/20+1, n, 1, "flow %s after %d grants", owner, turn)
			}
		}
		if live := w.blocks(ForGrant); len(live) > 0 {
			w.free(live[0])
		}
	}
	for len(w.live) > 0 {
		w.free(w.blocks(ForGrant)[0])
	}
	require.Len(t, got, 20)
	for owner, n := range got {
		require.Equal(t, 5, n, owner)
	}
	require.Zero(t, w.sched.Active())
}

func TestCloseDropsWhatIsPendingAndLeavesWhatIsOut(t *testing.T) {
	w := threeRegions(t, 8)
	a := w.sched.Open("A", sizes(10, mib))
	require.Len(t, w.grants(), 3)
	b := w.sched.Open("B", sizes(1, mib))
	require.Empty(t, w.grants())
	w.sched.Close(a)
	w.sched.Close(a)
	require.Equal(t, 1, w.sched.Active())
	require.Empty(t, w.grants(), "nothing came back by closing")
	require.Len(t, w.blocks(ForGrant), 3)
	w.free(w.blocks(ForGrant)[1])
	require.Equal(t, "B", owners(w.grants()))
	w.sched.Close(b)
	for _, block := range w.blocks(ForGrant) {
		w.free(block)
	}
	require.Panics(t, func() { w.sched.Returned(a) }, "nothing is outstanding")
	require.Zero(t, w.sched.Active())
	require.Equal(t, w.total, w.arena.FreeBytes())
}

func TestManyFlowsLeaveNothingBehind(t *testing.T) {
	w := threeRegions(t, 8)
	for i := range 1000 {
		f := w.sched.Open("A", sizes(2, mib))
		for _, g := range w.grants() {
			w.free(g.Block)
		}
		if i%2 == 0 {
			w.sched.Close(f)
		}
		require.Zero(t, w.sched.Active())
	}
	require.Equal(t, [maxClasses]list.List[Flow]{}, w.sched.queues)
	require.Equal(t, w.total, w.arena.FreeBytes())
	require.Zero(t, w.arena.LiveBlocks())
}

func TestRingEmptiesAndRefills(t *testing.T) {
	w := threeRegions(t, 8)
	for range 3 {
		a, b := w.sched.Open("A", sizes(1, mib)), w.sched.Open("B", sizes(3, mib))
		g, ok := w.next()
		require.True(t, ok)
		require.Same(t, a, g.Flow)
		w.sched.Close(b)
		_, ok = w.next()
		require.False(t, ok)
		w.free(g.Block)
	}
}

func TestEmptyFlowWantsNothing(t *testing.T) {
	w := threeRegions(t, 8)
	f := w.sched.Open("A", nil)
	require.Zero(t, w.sched.Active())
	require.Empty(t, w.grants())
	w.sched.Close(f)
}

func TestStagingAndGrantsShareTheArena(t *testing.T) {
	w := threeRegions(t, 8)
	w.sched.Open("A", sizes(10, mib))
	require.Len(t, w.grants(), 3)
	s, ok := w.stage(mib)
	require.True(t, ok)
	_, ok = w.stage(mib)
	require.False(t, ok)
	w.free(s)
	require.Empty(t, w.grants(), "the staging reserve takes no grant")
	shared := w.blocks(ForGrant)[0]
	w.free(shared)
	_, ok = w.stage(mib)
	require.True(t, ok)
	taken, ok := w.stage(mib)
	require.True(t, ok, "staging may use what grants may")
	require.Equal(t, shared.Offset, taken.Offset)
	require.Empty(t, w.grants())
}

func TestSizesPackAndWait(t *testing.T) {
	w := newWorld(t, 16*mib, mib, 4*mib, 100)
	w.sched.Open("A", []uint32{mib, 2 * mib, 4 * mib, mib, 4 * mib, 4 * mib})
	// 12 MiB take grants: 1 + 2 + 1 fill one zone, and two zones take a chunk of 4.
	require.Equal(t, []int{0, 1, 2, 3, 4}, chunks(w.grants()))
	require.Equal(t, uint64(4*mib), w.arena.FreeBytes(), "the staging reserve")
	for _, b := range w.blocks(ForGrant) {
		if b.Bytes < 4*mib {
			require.Empty(t, w.grants())
			w.free(b)
		}
	}
	require.Equal(t, []int{5}, chunks(w.grants()))
}

func TestChunkThatDoesNotFitIsPassedOver(t *testing.T) {
	w := newWorld(t, 16*mib, mib, 4*mib, 100)
	w.sched.Open("small", sizes(9, mib))
	require.Len(t, w.grants(), 9)
	w.sched.Open("A", sizes(1, 4*mib))
	w.sched.Open("B", sizes(1, mib))
	w.sched.Open("C", sizes(1, 4*mib))
	g, ok := w.next()
	require.True(t, ok)
	require.Equal(t, "B", owners([]Grant{g}))
	_, ok = w.next()
	require.False(t, ok)
	for _, b := range w.blocks(ForGrant) {
		w.free(b)
	}
	require.Equal(t, "AC", owners(w.grants()), "A kept its place")
}

func TestLaterChunkOfAFlowMayGoFirst(t *testing.T) {
	w := newWorld(t, 16*mib, mib, 4*mib, 100)
	w.sched.Open("small", sizes(12, mib))
	filler := w.grants()
	require.Len(t, filler, 12)
	order := []uint32{4 * mib, 2 * mib, mib, 4 * mib, mib, mib, mib, mib, mib, mib}
	w.sched.Open("A", order)
	require.Empty(t, w.grants())

	var got []int
	for _, g := range filler[:3] { // never 4 MiB together
		w.free(g.Block)
		got = append(got, chunks(w.grants())...)
	}
	require.Equal(t, []int{2, 4, 5}, got)
	for w.arena.largest(ForGrant) < 4*mib {
		w.free(w.blocks(ForGrant)[0])
	}
	require.Equal(t, 0, w.grants()[0].Chunk, "the first chunk goes first when it fits")
}

func TestLookAheadIsBounded(t *testing.T) {
	w := newWorld(t, 16*mib, mib, 4*mib, 100)
	w.sched.Open("small", sizes(12, mib))
	require.Len(t, w.grants(), 12)
	// Every other granule is given back: nothing larger fits.
	for i, b := range w.blocks(ForGrant) {
		if i%2 == 0 {
			w.free(b)
		}
	}
	w.sched.Open("A", append([]uint32{4 * mib}, sizes(20, mib)...))
	for range 3 {
		for _, g := range w.grants() {
			require.Positive(t, g.Chunk)
			require.Less(t, g.Chunk, lookAhead)
			w.free(g.Block)
		}
	}
	require.Equal(t, 1, w.sched.Active(), "only its first chunk is looked at now")
}

func TestNewSchedulerAndOpenRefuseBugs(t *testing.T) {
	w := threeRegions(t, 8)
	require.Panics(t, func() { NewScheduler(w.arena, 0) })
	require.Panics(t, func() { w.sched.Open("A", []uint32{1, 0}) })
	require.Panics(t, func() { w.sched.Open("A", []uint32{mib + 1}) })
	require.Zero(t, w.sched.Active())
}

func TestSteadyStateAllocatesNoMemory(t *testing.T) {
	w := newWorld(t, 512*mib, mib, 40*mib, 8)
	f := w.sched.Open("A", sizes(60000, 36*mib))
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		g, ok := w.sched.Next()
		require.True(t, ok)
		w.arena.Free(g.Block)
		w.sched.Returned(f)
	}))
}
