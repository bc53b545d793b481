package plan

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/ports"
)

// overlapOf plans towards dst and asks the check.
func overlapOf(t tb, p *Planner, dst []ports.Descriptor, lim Limits) error {
	t.Helper()
	src, at := slices.Clone(dst), uint64(0)
	for i := range src {
		src[i].Addr = at
		at += src[i].Bytes
	}
	got, err := planAll(p, src, dst, lim)
	require.NoError(t, err)
	return got.overlap
}

// overlaps is the obvious answer.
func overlaps(dst []ports.Descriptor) bool {
	sorted := slices.DeleteFunc(slices.Clone(dst), func(d ports.Descriptor) bool { return d.Bytes == 0 })
	slices.SortFunc(sorted, func(a, b ports.Descriptor) int {
		if a.Addr < b.Addr {
			return -1
		}
		return 1
	})
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Addr-sorted[i-1].Addr < sorted[i-1].Bytes {
			return true
		}
	}
	return false
}

func TestOverlapsAreFound(t *testing.T) {
	o := New()
	rapid.Check(t, func(t *rapid.T) {
		grid := rapid.SampledFrom([]uint64{1, 1, 7, 64, 1 << 40}).Draw(t, "grid")
		longest := min(grid, 100)
		count := rapid.IntRange(0, 40).Draw(t, "descriptors")
		var dst []ports.Descriptor
		for range count {
			dst = append(dst, ports.Descriptor{
				Addr:  rapid.Uint64Range(0, 3000).Draw(t, "place") * grid,
				Bytes: rapid.Uint64Range(0, longest).Draw(t, "length"),
			})
		}
		if rapid.Bool().Draw(t, "evenly") {
			dst = append(dst, pages(longest, 100, 103, 106, 109, 112)...)
		}
		lim := Limits{ChunkBytes: rapid.SampledFrom([]uint64{50, 1000, 1 << 20}).Draw(t, "chunk bytes")}
		err := overlapOf(t, o, dst, lim)
		require.Equal(t, overlaps(dst), err != nil, "%v", err)
		if err == nil {
			return
		}
		require.ErrorIs(t, err, ErrOverlap)
		i, j := firstOverlap(dst)
		require.EqualError(t, err, fmt.Sprintf(
			"destination ranges overlap: descriptor %d, %d bytes at %#x (offset %d of the request), and descriptor %d, %d bytes at %#x (offset %d)",
			i, dst[i].Bytes, dst[i].Addr, bytesOf(dst[:i]), j, dst[j].Bytes, dst[j].Addr, bytesOf(dst[:j])))
	})
}

// firstOverlap is the first descriptor that shares a byte with an earlier one, and the first of those, by looking at every pair.
func firstOverlap(dst []ports.Descriptor) (earlier, later int) {
	for j, b := range dst {
		for i, a := range dst[:j] {
			if a.Bytes > 0 && b.Bytes > 0 && a.Addr < b.Addr+b.Bytes && b.Addr < a.Addr+a.Bytes {
				return i, j
			}
		}
	}
	return -1, -1
}

func bytesOf(list []ports.Descriptor) (n uint64) {
	for _, d := range list {
		n += d.Bytes
	}
	return n
}

func TestOverlapNamesBothDescriptors(t *testing.T) {
	dst := append(pages(4096, 9, 3, 7, 1), ports.Descriptor{Addr: 7*4096 + 100, Bytes: 50})
	err := overlapOf(t, New(), dst, roomy)
	require.EqualError(t, err, "destination ranges overlap: descriptor 2, 4096 bytes at 0x7000 (offset 8192 of the request), and descriptor 4, 50 bytes at 0x7064 (offset 16384)")
}

func TestARunMayOverlapItself(t *testing.T) {
	for _, apart := range []uint64{0, 1, 63} {
		dst := []ports.Descriptor{{Addr: 1000, Bytes: 64}, {Addr: 1000 + apart, Bytes: 64}}
		for range 2 {
			require.ErrorIs(t, overlapOf(t, New(), dst, roomy), ErrOverlap)
			slices.Reverse(dst)
		}
	}
}

// The stride has fewer trailing zeros than all else.
func TestOverlapOffTheGrid(t *testing.T) {
	dst := []ports.Descriptor{{Addr: 0, Bytes: 64}, {Addr: 160, Bytes: 64}, {Addr: 320, Bytes: 64}, {Addr: 192, Bytes: 64}}
	require.ErrorIs(t, overlapOf(t, New(), dst, roomy), ErrOverlap)
	dst[3].Addr = 256
	require.NoError(t, overlapOf(t, New(), dst, roomy))
}

func TestOverlapAcrossChunks(t *testing.T) {
	dst := pages(64, 5, 1, 9, 5)
	require.ErrorIs(t, overlapOf(t, New(), dst, Limits{ChunkBytes: 64}), ErrOverlap)
	require.NoError(t, overlapOf(t, New(), dst[:3], Limits{ChunkBytes: 64}))
}

// Random pages in allocations that are far apart and taken in turn: no bitmap of all of it is possible.
func TestOverlapInSparseMemory(t *testing.T) {
	var dst []ports.Descriptor
	for i, d := range permuted(4096, 2000, 1) {
		dst = append(dst, d, ports.Descriptor{Addr: math.MaxUint64 - 1<<32 - d.Addr, Bytes: 100 + uint64(i%7)})
	}
	require.NoError(t, overlapOf(t, New(), dst, roomy))
	dst[3001].Addr = dst[17].Addr + 4
	err := overlapOf(t, New(), dst, roomy)
	require.ErrorContains(t, err, fmt.Sprintf("descriptor 17, %d bytes at %#x", dst[17].Bytes, dst[17].Addr))
	require.ErrorContains(t, err, fmt.Sprintf("descriptor 3001, %d bytes at %#x", dst[3001].Bytes, dst[3001].Addr))
}

func TestReachesAreSorted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		begins := append(rapid.SliceOf(rapid.Uint64()).Draw(t, "begins"), 1<<63, 1<<55, 1)
		var s reachSorter
		for i, b := range begins {
			s.list = append(s.list, reach{begin: b, end: b + 1, run: uint32(i)})
		}
		s.sort()
		seen := []uint64{}
		for _, r := range s.list {
			require.Equal(t, begins[r.run], r.begin)
			seen = append(seen, r.begin)
		}
		slices.Sort(begins)
		require.True(t, slices.Equal(begins, seen))
	})
}
