package buddy

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

const mib = 1 << 20

func newAllocator(t *testing.T, size, granule uint64) *Allocator {
	t.Helper()
	a, err := New(size, granule)
	require.NoError(t, err)
	return a
}

func alloc(t *testing.T, a *Allocator, bytes uint64) uint64 {
	t.Helper()
	offset, ok := a.Alloc(bytes)
	require.True(t, ok, "%d bytes", bytes)
	return offset
}

func TestNewRefusesBadSizes(t *testing.T) {
	for _, c := range []struct {
		size, granule uint64
		want          string
	}{
		{1000, 0, "granule of 0 bytes: want a power of two"},
		{1000, 100, "granule of 100 bytes: want a power of two"},
		{255, 256, "size of 255 bytes: want at least one granule of 256"},
		{0, 1, "size of 0 bytes"},
		{MaxGranules + 1, 1, "want at most 4194304"},
		{math.MaxUint64, mib, "want at most 4194304"},
	} {
		_, err := New(c.size, c.granule)
		require.ErrorContains(t, err, c.want)
	}
}

func TestSizeIsARowOfTrees(t *testing.T) {
	for _, c := range []struct {
		size, granule, usable, largest uint64
		trees                          []uint64
	}{
		{1000, 256, 768, 512, []uint64{512, 256}},
		{768 * mib, mib, 768 * mib, 512 * mib, []uint64{512 * mib, 256 * mib}},
		{7*mib + 5, mib, 7 * mib, 4 * mib, []uint64{4 * mib, 2 * mib, mib}},
		{mib, mib, mib, mib, []uint64{mib}},
		{512 * mib, mib, 512 * mib, 512 * mib, []uint64{512 * mib}},
		{MaxGranules, 1, MaxGranules, MaxGranules, []uint64{MaxGranules}},
	} {
		a := newAllocator(t, c.size, c.granule)
		require.Equal(t, c.granule, a.Granule())
		require.Equal(t, c.usable, a.Usable())
		require.Equal(t, c.largest, a.Largest())
		require.Equal(t, c.usable, a.FreeBytes())
		var at uint64
		for _, tree := range c.trees {
			require.Equal(t, tree, a.LargestFree())
			require.Equal(t, at, alloc(t, a, tree))
			at += tree
		}
		require.Zero(t, a.FreeBytes())
		require.Zero(t, a.LargestFree())
	}
}

func TestTailIsGivenBack(t *testing.T) {
	a := newAllocator(t, 64*mib, mib)
	require.Zero(t, alloc(t, a, 36*mib))
	require.Equal(t, uint64(36*mib), a.BlockBytes(0))
	require.Equal(t, uint64(28*mib), a.FreeBytes())
	require.Equal(t, uint64(16*mib), a.LargestFree())
	require.Equal(t, uint64(48*mib), alloc(t, a, 16*mib))
	require.Equal(t, uint64(40*mib), alloc(t, a, 8*mib))
	require.Equal(t, uint64(36*mib), alloc(t, a, 4*mib))
	require.Zero(t, a.FreeBytes())
	require.NoError(t, a.Free(0))
	require.Equal(t, uint64(32*mib), a.LargestFree(), "32 and 4 can't merge while the tail is used")
	for _, offset := range []uint64{36 * mib, 40 * mib, 48 * mib} {
		require.NoError(t, a.Free(offset))
	}
	require.Equal(t, uint64(64*mib), a.LargestFree())
}

func TestRoundsUpToTheGranule(t *testing.T) {
	a := newAllocator(t, 4096, 256)
	for _, c := range []struct{ bytes, block uint64 }{{1, 256}, {256, 256}, {257, 512}, {600, 768}, {1024, 1024}} {
		offset := alloc(t, a, c.bytes)
		require.Equal(t, c.block, a.BlockBytes(offset))
		require.NoError(t, a.Free(offset))
		require.Zero(t, a.BlockBytes(offset))
	}
	require.Zero(t, a.BlockBytes(17), "not a multiple of the granule")
	require.Zero(t, a.BlockBytes(1<<40), "outside")
}

func TestZeroAndHugeRequestsFailAtOnce(t *testing.T) {
	a := newAllocator(t, 768*mib, mib)
	for _, bytes := range []uint64{0, 512*mib + 1, 768 * mib, 1 << 63, math.MaxUint64 - 1, math.MaxUint64} {
		_, ok := a.Alloc(bytes)
		require.False(t, ok, "%d", bytes)
		_, ok = a.AllocHigh(bytes)
		require.False(t, ok, "%d", bytes)
		_, ok = a.AllocIn(0, 256*mib, bytes)
		require.False(t, ok, "%d", bytes)
	}
	require.Zero(t, a.LiveBlocks())
}

func TestBestFitThenLowestAddress(t *testing.T) {
	a := newAllocator(t, 64, 1)
	for range 4 {
		alloc(t, a, 16)
	}
	require.NoError(t, a.Free(0))
	require.NoError(t, a.Free(48))
	require.Equal(t, uint64(0), alloc(t, a, 4)) // [4,8), [8,16) and [48,64) are free now
	require.Equal(t, uint64(4), alloc(t, a, 3), "the smallest free block, not a lower half of a larger one")
	require.Equal(t, uint64(48), alloc(t, a, 16))
	require.NoError(t, a.Free(48))
	high, ok := a.AllocHigh(9)
	require.True(t, ok)
	require.Equal(t, uint64(48), high)
}

func TestAllocHighStartsAtTheTop(t *testing.T) {
	a := newAllocator(t, 64, 1)
	for _, want := range []uint64{48, 32, 16, 0} {
		offset, ok := a.AllocHigh(9)
		require.True(t, ok)
		require.Equal(t, want, offset)
	}
	require.Equal(t, uint64(4), a.LargestFree(), "each left 1 + 2 + 4 behind it")
}

func TestAllocInStaysInside(t *testing.T) {
	a := newAllocator(t, 64, 1)
	for _, want := range []uint64{16, 24} {
		offset, ok := a.AllocIn(16, 16, 8)
		require.True(t, ok)
		require.Equal(t, want, offset)
	}
	_, ok := a.AllocIn(16, 16, 1)
	require.False(t, ok, "the span is full")
	_, ok = a.AllocIn(32, 16, 17)
	require.False(t, ok, "larger than the span")

	require.Equal(t, uint64(32), alloc(t, a, 32))
	_, ok = a.AllocIn(40, 8, 1)
	require.False(t, ok, "the span lies inside a live block")
}

func TestDoubleAndForeignFree(t *testing.T) {
	a := newAllocator(t, 4096, 256)
	offset := alloc(t, a, 1024)
	for _, bad := range []uint64{1, 256, 1024, 4096, 1 << 40, math.MaxUint64} {
		require.ErrorIs(t, a.Free(bad), ErrForeign, "%d", bad)
	}
	require.NoError(t, a.Free(offset))
	require.ErrorIs(t, a.Free(offset), ErrDoubleFree)
	require.ErrorIs(t, a.Free(256), ErrForeign, "no block ever began there")
	require.Equal(t, uint64(4096), a.FreeBytes())
	require.Equal(t, uint64(4096), a.LargestFree())
	require.Equal(t, offset, alloc(t, a, 256))
	require.NoError(t, a.Free(offset))
}

func TestFragmentationStopsALargeBlockDespiteFreeBytes(t *testing.T) {
	a := newAllocator(t, 4096, 256)
	for range 16 {
		alloc(t, a, 256)
	}
	for offset := uint64(0); offset < 4096; offset += 512 {
		require.NoError(t, a.Free(offset))
	}
	require.Equal(t, uint64(2048), a.FreeBytes())
	_, ok := a.Alloc(512)
	require.False(t, ok)
}

func TestStreamLargerThanTheArena(t *testing.T) {
	a := newAllocator(t, 144*mib, mib)
	var live []uint64
	for range 1000 {
		offset, ok := a.Alloc(36 * mib)
		if !ok {
			require.NoError(t, a.Free(live[0]))
			live = live[1:]
			offset, ok = a.Alloc(36 * mib)
			require.True(t, ok)
		}
		live = append(live, offset)
	}
	require.Len(t, live, 2)
}

func TestBarKeepsNewBlocksOut(t *testing.T) {
	a := newAllocator(t, 64, 1)
	require.Equal(t, uint64(0), alloc(t, a, 8))
	a.Bar(0, 32)
	require.Equal(t, uint64(32), a.LargestFree())
	require.Equal(t, uint64(56), a.FreeBytes(), "barred bytes are free")
	require.Equal(t, uint64(32), alloc(t, a, 32))
	_, ok := a.Alloc(1)
	require.False(t, ok)
	_, ok = a.AllocIn(16, 16, 1)
	require.False(t, ok, "inside the barred span")
	require.NoError(t, a.Free(0))
	_, ok = a.Alloc(1)
	require.False(t, ok, "what a live block frees stays barred")

	a.Bar(0, 32)
	a.Unbar(0, 32)
	_, ok = a.Alloc(1)
	require.False(t, ok, "bars add up")
	a.Unbar(0, 32)
	require.NoError(t, a.Free(32))
	require.Equal(t, uint64(64), a.LargestFree())
	require.Panics(t, func() { a.Unbar(0, 32) })
}

func TestBarInsideALiveBlock(t *testing.T) {
	a := newAllocator(t, 64, 1)
	alloc(t, a, 64)
	a.Bar(16, 16)
	require.NoError(t, a.Free(0))
	require.Equal(t, uint64(32), a.LargestFree())
	_, ok := a.AllocIn(0, 32, 32)
	require.False(t, ok)
	a.Unbar(16, 16)
	require.Equal(t, uint64(64), a.LargestFree())
}

func TestSpansThatAreNone(t *testing.T) {
	a := newAllocator(t, 48, 2)
	for _, s := range [][2]uint64{{0, 0}, {0, 1}, {0, 12}, {8, 16}, {1, 2}, {32, 32}, {48, 2}, {math.MaxUint64 - 1, 2}, {1 << 63, 1 << 63}} {
		require.Panics(t, func() { a.Bar(s[0], s[1]) }, "%v", s)
	}
	a.Bar(32, 16)
	require.Equal(t, uint64(32), a.LargestFree())
}

func TestOccupants(t *testing.T) {
	a := newAllocator(t, 128, 1)
	require.Equal(t, uint64(0), alloc(t, a, 39)) // 32 + 4 + 2 + 1
	require.Equal(t, uint64(40), alloc(t, a, 8))
	require.Equal(t, uint64(48), alloc(t, a, 16))
	for _, c := range []struct {
		base, size uint64
		want       int
	}{{0, 128, 3}, {0, 64, 3}, {0, 32, 1}, {16, 8, 1}, {32, 32, 3}, {32, 4, 1}, {38, 1, 1}, {39, 1, 0}, {32, 16, 2}, {40, 8, 1}, {56, 8, 1}, {64, 64, 0}} {
		require.Equal(t, c.want, a.Occupants(c.base, c.size), "%+v", c)
	}
}

func TestSteadyStateAllocatesNoMemory(t *testing.T) {
	a := newAllocator(t, 512*mib, mib)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		offset, _ := a.Alloc(36 * mib)
		a.Bar(256*mib, 64*mib)
		a.Unbar(256*mib, 64*mib)
		_ = a.Free(offset)
	}))
}

func BenchmarkAllocFree(b *testing.B) {
	a, err := New(512*mib, mib)
	require.NoError(b, err)
	for b.Loop() {
		offset, _ := a.Alloc(36 * mib)
		_ = a.Free(offset)
	}
}
