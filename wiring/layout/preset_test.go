package layout_test

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

func preset(t *testing.T, name string, seed uint64) layout.Layout {
	t.Helper()
	l, err := layout.Preset(name, seed)
	require.NoError(t, err)
	return l
}

// lengths counts the descriptors of each length.
func lengths(list []ports.Descriptor) map[uint64]int {
	count := map[uint64]int{}
	for _, d := range list {
		count[d.Bytes]++
	}
	return count
}

// The table of workloads.md: pieces, their lengths, total.
func TestPresetsAreTheWorkloads(t *testing.T) {
	want := map[string]struct {
		lengths map[uint64]int
		total   uint64
	}{
		"paged-4k":      {map[uint64]int{4096: 18432}, 72 << 20},
		"llama70b-tp8":  {map[uint64]int{4096: 18880}, 73<<20 + 768<<10},
		"vllm-block16":  {map[uint64]int{8192: 20032 - 64, 4096: 64}, 163_840_000},
		"strided-heads": {map[uint64]int{1024: 32768}, 32 << 20},
		"tiny":          {map[uint64]int{512: 4096}, 2 << 20},
		"contiguous":    {map[uint64]int{65536: 1024}, 64 << 20},
	}
	require.Equal(t, []string{"paged-4k", "llama70b-tp8", "vllm-block16", "strided-heads", "tiny", "contiguous"}, layout.Names())
	for _, name := range layout.Names() {
		t.Run(name, func(t *testing.T) {
			l := preset(t, name, 1)
			require.Equal(t, name, l.Name)
			require.Equal(t, want[name].lengths, lengths(l.Src))
			require.Equal(t, want[name].lengths, lengths(l.Dst))
			inside(t, l.Src, l.SrcBlock)
			inside(t, l.Dst, l.DstBlock)

			var c plan.Chunk
			p := plan.New()
			summary, err := p.Begin(l.Src, l.Dst, plan.Limits{ChunkBytes: 40 << 20})
			require.NoError(t, err)
			require.Equal(t, want[name].total, summary.Bytes)
			pieces := 0
			require.NoError(t, planAll(p, l, plan.Limits{ChunkBytes: 40 << 20}, &c, func() {
				pieces += c.Pieces
			}))
			if name == "contiguous" {
				require.Equal(t, 1, summary.Pieces)
				return
			}
			require.Equal(t, len(l.Src), summary.Pieces)
			require.Equal(t, len(l.Src), pieces)
		})
	}
}

// Pages of any length hold the total, and those of 4 KiB in 72 MiB are paged-4k.
func TestPages(t *testing.T) {
	l, want := layout.Pages(72<<20, 4096, 7), preset(t, "paged-4k", 7)
	want.Name = ""
	require.Equal(t, want, l)
	for _, c := range []struct {
		total, page uint64
		lengths     map[uint64]int
	}{
		{100_000, 4096, map[uint64]int{4096: 24, 100_000 - 24*4096: 1}},
		{8192, 4096, map[uint64]int{4096: 2}},
		{1, 4096, map[uint64]int{1: 1}},
	} {
		l := layout.Pages(c.total, c.page, 1)
		require.Equal(t, c.lengths, lengths(l.Src))
		require.Equal(t, c.lengths, lengths(l.Dst))
		inside(t, l.Src, l.SrcBlock)
		inside(t, l.Dst, l.DstBlock)
	}
}

// inside checks that the pieces lie in the block and do not share bytes.
func inside(t *testing.T, list []ports.Descriptor, block uint64) {
	t.Helper()
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b ports.Descriptor) int { return int(a.Addr) - int(b.Addr) })
	end := uint64(0)
	for _, d := range sorted {
		require.GreaterOrEqual(t, d.Addr, end)
		end = d.Addr + d.Bytes
	}
	require.LessOrEqual(t, end, block)
}

// planesOf takes a paged side apart: the distance of each page from its plane's first one.
func planesOf(list []ports.Descriptor, pages int) (planes [][]int64, bases []uint64) {
	for plane := range slices.Chunk(list, pages) {
		var from []int64
		for _, d := range plane {
			from = append(from, int64(d.Addr-plane[0].Addr))
		}
		planes, bases = append(planes, from), append(bases, plane[0].Addr)
	}
	return planes, bases
}

func TestPlanesShareOnePageListPerSide(t *testing.T) {
	for name, pages := range map[string]int{"llama70b-tp8": 118, "vllm-block16": 313} {
		l := preset(t, name, 3)
		var lists [][]int64
		for _, side := range [][]ports.Descriptor{l.Src, l.Dst} {
			planes, bases := planesOf(side, pages)
			distances := map[uint64]bool{}
			for i, plane := range planes {
				require.Equal(t, planes[0], plane)
				if i > 0 {
					distances[bases[i]-bases[i-1]] = true
				}
			}
			require.Greater(t, len(distances), 1, "planes are separate allocations, not a stride")
			require.False(t, slices.IsSorted(planes[0]))
			lists = append(lists, planes[0])
		}
		require.NotEqual(t, lists[0], lists[1])
	}
}

// The half page is the last one of each plane.
func TestVllmHalfPage(t *testing.T) {
	l := preset(t, "vllm-block16", 3)
	for plane := range slices.Chunk(l.Src, 313) {
		require.EqualValues(t, 4096, plane[312].Bytes)
		require.EqualValues(t, 0, (plane[312].Addr-plane[0].Addr)%8192)
	}
}

// Constant strides are one run on each side of a chunk, and differ between the sides.
func TestStridedPresetsAreOneRun(t *testing.T) {
	for _, name := range []string{"strided-heads", "contiguous"} {
		l := preset(t, name, 1)
		var c plan.Chunk
		require.NoError(t, planAll(plan.New(), l, plan.Limits{ChunkBytes: 40 << 20, Chunks: 2}, &c, func() {
			require.Len(t, c.Gather.Runs, 1)
			require.Len(t, c.Scatter.Runs, 1)
			if name == "strided-heads" {
				require.NotEqual(t, c.Gather.Runs[0].Stride, c.Scatter.Runs[0].Stride)
			}
		}))
	}
}

// What all DATA messages of a preset take, cut as for host memory, against 40 bytes a piece.
func TestPresetsData(t *testing.T) {
	for name, most := range map[string]int{
		"paged-4k":      4*18432 + 2048,
		"llama70b-tp8":  16 << 10,
		"vllm-block16":  48 << 10,
		"strided-heads": 1 << 10,
		"tiny":          4*4096 + 256,
		"contiguous":    1 << 10,
	} {
		for seed := range uint64(6) {
			l := preset(t, name, seed)
			var c plan.Chunk
			data := 0
			require.NoError(t, planAll(plan.New(), l, plan.Limits{ChunkBytes: 40 << 20, Target: 8 << 20, Taper: true}, &c, func() { data += c.DataBytes() }))
			require.LessOrEqual(t, data, most, "%s, seed %d", name, seed)
		}
	}
}

func TestPresetsDependOnNameAndSeedAlone(t *testing.T) {
	for _, name := range layout.Names() {
		require.Equal(t, preset(t, name, 5), preset(t, name, 5))
	}
	require.NotEqual(t, preset(t, "paged-4k", 5), preset(t, "paged-4k", 6))

	// Two builds must agree, since a sender and a receiver each make the layout.
	digest := fnv.New64a()
	for _, name := range layout.Names() {
		l := preset(t, name, 42)
		require.NoError(t, binary.Write(digest, binary.LittleEndian, []uint64{l.SrcBlock, l.DstBlock}))
		for _, d := range slices.Concat(l.Src, l.Dst) {
			require.NoError(t, binary.Write(digest, binary.LittleEndian, []uint64{d.Addr, d.Bytes}))
		}
	}
	require.Equal(t, uint64(0xd7ba1390fca85b91), digest.Sum64(), "the presets changed")
}

func TestUnknownPreset(t *testing.T) {
	_, err := layout.Preset("paged", 1)
	require.EqualError(t, err, `unknown layout "paged", want one of paged-4k, llama70b-tp8, vllm-block16, strided-heads, tiny, contiguous`)
}
