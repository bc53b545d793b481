package credit

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNewArenaNamesTheMinimum(t *testing.T) {
	for _, c := range []struct {
		bytes, granule, limit uint64
		want                  string
	}{
		{127 * mib, mib, 40 * mib, "needs at least 134217728"},
		{79 * mib, mib, 40 * mib, "at least twice the power of two"},
		{128 * mib, mib, 0, "a chunk limit of 0 bytes, want at least 1"},
		{128 * mib, 3, 40 * mib, "granule of 3 bytes: want a power of two"},
		{128 * mib, mib, math.MaxUint64, "at least twice"},
		{1023, 512, 1, "needs at least 1024"},
	} {
		_, err := NewArena(c.bytes, c.granule, c.limit)
		require.ErrorContains(t, err, c.want)
	}
}

func TestUsableIsTheLargestTree(t *testing.T) {
	for _, c := range []struct {
		bytes, usable uint64
		zones         int
	}{{128 * mib, 128 * mib, 2}, {512 * mib, 512 * mib, 8}, {768 * mib, 512 * mib, 12}, {201 * mib, 128 * mib, 3}} {
		w := newWorld(t, c.bytes, mib, 40*mib, 8)
		require.Equal(t, c.usable, w.arena.Usable())
		require.Equal(t, c.bytes, w.arena.FreeBytes())
		require.Len(t, w.arena.zones, c.zones)
		require.True(t, w.arena.Room())
		w.check()
	}
}

func TestOnlyChunkSizesArePlaced(t *testing.T) {
	w := newWorld(t, 128*mib, mib, 40*mib, 8)
	for _, bytes := range []uint64{0, 40*mib + 1, math.MaxUint64} {
		for _, p := range []Purpose{ForGrant, ForStaging} {
			_, ok := w.arena.Alloc(bytes, p)
			require.False(t, ok)
			require.False(t, w.arena.Placeable(bytes, p))
		}
	}
}

func TestEachPurposeKeepsItsReserve(t *testing.T) {
	w := newWorld(t, 512*mib, mib, 64*mib, 100)
	f := w.sched.Open(nil, sizes(20, 64*mib))
	require.Len(t, w.grants(), 7, "everything but the staging reserve")
	b, ok := w.stage(64 * mib)
	require.True(t, ok)
	require.Equal(t, Block{Offset: 0, Bytes: 64 * mib}, b)
	_, ok = w.stage(1)
	require.False(t, ok)
	w.sched.Close(f)
	for _, b := range w.blocks(ForGrant) {
		w.free(b)
	}

	for range 6 {
		_, ok = w.stage(64 * mib)
		require.True(t, ok)
	}
	_, ok = w.stage(1)
	require.False(t, ok, "what is left is the grants' reserve")
	w.sched.Open(nil, sizes(1, 64*mib))
	g := w.grants()
	require.Len(t, g, 1)
	require.Equal(t, uint64(448*mib), g[0].Block.Offset)
}

func TestPurposesFillFromTheirEnds(t *testing.T) {
	w := newWorld(t, 256*mib, mib, 64*mib, 100)
	for _, want := range []uint64{0, 64 * mib, 128 * mib} {
		b, ok := w.stage(40 * mib)
		require.True(t, ok)
		require.Equal(t, want, b.Offset)
		defer w.free(b)
	}
	w = newWorld(t, 256*mib, mib, 64*mib, 100)
	w.sched.Open(nil, sizes(3, 40*mib))
	for _, want := range []uint64{192 * mib, 128 * mib, 64 * mib} {
		g, ok := w.next()
		require.True(t, ok)
		require.Equal(t, want, g.Block.Offset)
	}
}

func TestBeyondTheLastZoneIsShared(t *testing.T) {
	w := newWorld(t, 160*mib, mib, 64*mib, 100) // two zones, both reserves, and 32 MiB
	w.sched.Open(nil, []uint32{64 * mib, 16 * mib})
	require.Len(t, w.grants(), 2)
	_, ok := w.stage(64 * mib)
	require.True(t, ok)
	_, ok = w.stage(16 * mib)
	require.True(t, ok)
	require.Zero(t, w.arena.FreeBytes())
	for _, p := range []Purpose{ForGrant, ForStaging} {
		for _, b := range w.blocks(p) {
			if w.zone(b) == noZone {
				w.retain(b)
			}
		}
	}
	require.True(t, w.arena.Room(), "no zone holds a retained block")
}

func TestReserveLeavesARetainedBlock(t *testing.T) {
	w := newWorld(t, 512*mib, mib, 64*mib, 100)
	s, ok := w.stage(mib)
	require.True(t, ok)
	w.retain(s)
	require.Equal(t, 1, w.arena.reserve[ForStaging])
	require.Equal(t, uint64(mib), w.arena.RetainedBytes())

	w.sched.Open(nil, sizes(1, 100))
	g := w.grants()[0]
	w.retain(g.Block)
	require.Equal(t, 6, w.arena.reserve[ForGrant])
	require.Equal(t, uint64(2*mib), w.arena.RetainedBytes(), "whole granules")

	w.unretain(s)
	require.Equal(t, 1, w.arena.reserve[ForStaging], "a reserve that serves stays")
	w.free(s)
	w.unretain(g.Block)
	w.free(g.Block)
	require.Zero(t, w.arena.RetainedBytes())
}

func TestNewReserveIsWhereFewestOthersAre(t *testing.T) {
	w := newWorld(t, 256*mib, mib, 64*mib, 100)
	s, _ := w.stage(mib)
	w.sched.Open(nil, []uint32{64 * mib, 64 * mib, mib}) // zones 3 and 2, and one block at the end of 1
	require.Len(t, w.grants(), 3)
	w.sched.Open(nil, sizes(3, mib))
	require.Len(t, w.grants(), 3)
	require.Equal(t, 4, w.arena.zones[1].blocks[ForGrant])
	w.retain(s)
	require.Equal(t, 2, w.arena.reserve[ForStaging])
}

func TestStagingInTheWayOfAMovedReserve(t *testing.T) {
	w := newWorld(t, 192*mib, mib, 64*mib, 100)
	first, _ := w.stage(64 * mib)
	shared, _ := w.stage(64 * mib)
	w.sched.Open(nil, sizes(1, mib))
	g := w.grants()[0]
	require.False(t, w.arena.InTheWay(shared))
	w.retain(g.Block)
	require.Equal(t, 1, w.arena.reserve[ForGrant])
	require.True(t, w.arena.InTheWay(shared))
	require.False(t, w.arena.InTheWay(first))
	require.False(t, w.arena.InTheWay(g.Block), "a grant never is")

	w.sched.Open(nil, sizes(1, 64*mib))
	require.Empty(t, w.grants())
	w.free(shared)
	require.Len(t, w.grants(), 1)
}

// One small retained block in each zone is far below RETAIN_LIMIT and leaves no place for a large chunk (attacks.md, second round, 8).
func TestRetainedBlocksEverywhereLeaveNoRoom(t *testing.T) {
	const small = 8 * mib
	w := newWorld(t, 512*mib, small, 64*mib, 100)
	// One block stays in each zone but the grants' reserve, the rest is given back.
	var kept []Block
	for {
		b, ok := w.stage(small)
		if !ok {
			break
		}
		if !slices.ContainsFunc(kept, func(k Block) bool { return w.zone(k) == w.zone(b) }) {
			kept = append(kept, b)
		}
	}
	require.Len(t, kept, 7)
	for _, b := range w.blocks(ForStaging) {
		if !slices.Contains(kept, b) {
			w.free(b)
		}
	}
	for i, b := range kept {
		require.True(t, w.arena.Room())
		w.retain(b)
		require.Equal(t, i < 6, w.arena.Room(), "%d", i)
	}
	require.Equal(t, uint64(7*small), w.arena.RetainedBytes())
	require.Equal(t, 7, w.arena.reserve[ForStaging], "the last clean zone is staging's")
	require.True(t, w.arena.Placeable(64*mib, ForStaging))
	require.False(t, w.arena.Placeable(64*mib, ForGrant))
	require.True(t, w.arena.Placeable(32*mib, ForGrant))

	last, ok := w.stage(64 * mib)
	require.True(t, ok)
	w.retain(last)
	require.False(t, w.arena.Placeable(64*mib, ForStaging))
	require.Equal(t, noZone, w.arena.reserve[ForStaging])

	w.unretain(kept[3])
	require.Equal(t, w.zone(kept[3]), w.arena.reserve[ForStaging])
	w.unretain(kept[5])
	require.Equal(t, w.zone(kept[5]), w.arena.reserve[ForGrant])
	require.True(t, w.arena.Placeable(64*mib, ForGrant))
}

func TestMisuseOfBlocksPanics(t *testing.T) {
	w := newWorld(t, 128*mib, mib, 40*mib, 8)
	b, _ := w.stage(3*mib - 5)
	for _, wrong := range []Block{
		{},
		{Offset: b.Offset, Bytes: b.Bytes + mib},
		{Offset: b.Offset, Bytes: 2 * mib},
		{Offset: b.Offset + mib, Bytes: b.Bytes},
		{Offset: 1 << 60, Bytes: 1},
	} {
		require.Panics(t, func() { w.arena.Free(wrong) }, "%+v", wrong)
		require.Panics(t, func() { w.arena.Retain(wrong) }, "%+v", wrong)
		require.Panics(t, func() { w.arena.InTheWay(wrong) }, "%+v", wrong)
	}
	require.Panics(t, func() { w.arena.Unretain(b) }, "not in doubt")
	w.retain(b)
	require.Panics(t, func() { w.arena.Retain(b) }, "in doubt already")
	require.Panics(t, func() { w.arena.Free(b) }, "a block in doubt is never freed")
	w.unretain(b)
	w.free(b)
	require.Panics(t, func() { w.arena.Free(b) }, "double free")
	w.check()
}
