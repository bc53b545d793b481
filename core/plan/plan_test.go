package plan

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

var roomy = Limits{ChunkBytes: 1 << 20}

// scattered are pieces of the given lengths, each far from the others and in falling order, so that nothing merges and nothing is a run.
func scattered(lengths ...uint64) (list []ports.Descriptor) {
	for i, n := range lengths {
		list = append(list, ports.Descriptor{Addr: 1<<30 - uint64(i*i+i)<<20, Bytes: n})
	}
	return list
}

// adjacent are pieces of the given lengths, each right after the one before.
func adjacent(lengths ...uint64) (list []ports.Descriptor) {
	at := uint64(4096)
	for _, n := range lengths {
		list = append(list, ports.Descriptor{Addr: at, Bytes: n})
		at += n
	}
	return list
}

// run is one run of a scatter list at its shortest.
func run(offset, addr uint64, piece, pieces, step uint32, stride int64) ports.Run {
	return ports.Run{Offset: offset, Addr: addr, Stride: stride, Piece: piece, Pieces: pieces, Step: step, Table: ports.NoTable}
}

func TestNoBytesNoChunks(t *testing.T) {
	for name, list := range map[string][]ports.Descriptor{"no descriptors": nil, "empty ones": scattered(0, 0)} {
		t.Run(name, func(t *testing.T) {
			got := mustPlan(t, list, list, roomy)
			require.Empty(t, got.sizes)
			require.Equal(t, Summary{Descriptors: len(list)}, got.summary)
		})
	}
}

func TestOneDescriptor(t *testing.T) {
	got := mustPlan(t, scattered(1000), scattered(1000), roomy)
	require.Equal(t, []uint32{1000}, got.sizes)
	require.Equal(t, []ports.Run{run(0, 1<<30, 1000, 1, 0, 0)}, got.chunks[0].Scatter.Runs)
	require.Equal(t, 40+8+40, got.chunks[0].DataBytes())
}

func TestLongPiecesBeginAtMultiplesOf32(t *testing.T) {
	got := mustPlan(t, scattered(100, 17, 16), scattered(100, 17, 16), roomy)
	require.Equal(t, []uint32{128 + 32 + 16}, got.sizes)
}

// Pieces too short for a vector load follow the one before without a gap.
func TestShortPiecesArePacked(t *testing.T) {
	got := mustPlan(t, scattered(3, 15, 1, 16, 15), scattered(3, 15, 1, 16, 15), roomy)
	require.Equal(t, []uint32{32 + 16 + 15}, got.sizes)
	offsets := []uint64{}
	for _, r := range got.chunks[0].Gather.Runs {
		for _, p := range expand(t, r, got.chunks[0].Gather.Index) {
			offsets = append(offsets, p.offset)
		}
	}
	require.Equal(t, []uint64{0, 3, 18, 32, 48}, offsets)
}

func TestEmptyDescriptorsAreSkippedButCounted(t *testing.T) {
	src := adjacent(0, 100, 0, 0, 50, 0)
	src[3].Addr, src[3].Place = math.MaxUint64, ports.Place{Kind: ports.Device, Device: 9} // nothing about them matters
	got := mustPlan(t, src, adjacent(150), roomy)
	require.Equal(t, Summary{Descriptors: 6, Pieces: 1, Bytes: 150}, got.summary)
}

func TestPiecesMergeWhereBothSidesContinue(t *testing.T) {
	got := mustPlan(t, adjacent(64, 36, 100), adjacent(64, 36, 100), roomy)
	require.Equal(t, 1, got.summary.Pieces)
	require.Equal(t, []uint32{200}, got.sizes, "no padding inside a piece")
}

// The scatter side still has one run, since the block and the destination continue.
func TestOneSideAloneDoesNotMergePieces(t *testing.T) {
	got := mustPlan(t, scattered(64, 96, 32), adjacent(64, 96, 32), roomy)
	require.Equal(t, 3, got.summary.Pieces)
	require.Len(t, got.chunks[0].Gather.Runs, 3)
	require.Equal(t, []ports.Run{run(0, 4096, 192, 1, 0, 0)}, got.chunks[0].Scatter.Runs)
}

func TestListsCutDifferently(t *testing.T) {
	got := mustPlan(t, scattered(100, 50), scattered(30, 40, 80), roomy)
	require.Equal(t, 4, got.summary.Pieces) // 30, 40, 30, 50
}

func TestRunBreaksOnAHole(t *testing.T) {
	dst := adjacent(64, 64, 32)
	dst[2].Addr++
	got := mustPlan(t, scattered(64, 64, 32), dst, roomy)
	require.Equal(t, []ports.Run{run(0, 4096, 128, 1, 0, 0), run(128, 4096+129, 32, 1, 0, 0)}, got.chunks[0].Scatter.Runs)
}

// 100-byte pages that continue in the destination do not in the block, where each is padded to 128.
func TestPaddingMakesAStrideOfNeighbours(t *testing.T) {
	got := mustPlan(t, scattered(100, 100, 100), adjacent(100, 100, 100), roomy)
	require.Equal(t, []ports.Run{run(0, 4096, 100, 3, 128, 100)}, got.chunks[0].Scatter.Runs)
}

func TestConstantStrides(t *testing.T) {
	up, down := pages(64, 0, 3, 6, 9, 12), pages(64, 40, 32, 24, 16, 8)
	got := mustPlan(t, up, down, roomy)
	require.Equal(t, []ports.Run{run(0, 0, 64, 5, 64, 192)}, got.chunks[0].Gather.Runs)
	require.Equal(t, []ports.Run{run(0, 40*64, 64, 5, 64, -512)}, got.chunks[0].Scatter.Runs)
}

// Where the stride changes after few pieces a table is shorter than a run for each stride, and from some number of pieces on it is not.
func TestRunsEndWhereTheStrideChanges(t *testing.T) {
	got := mustPlan(t, permuted(64, 5, 1), pages(64, 0, 2, 4, 7, 10), roomy)
	require.Equal(t, ports.Runs{Runs: []ports.Run{{Addr: 0, Stride: 64, Piece: 64, Pieces: 5, Step: 64, Table: 0}}, Index: []uint32{0, 2, 4, 7, 10}}, got.chunks[0].Scatter)

	got = mustPlan(t, permuted(64, 12, 1), pages(64, 0, 2, 4, 6, 8, 10, 13, 16, 19, 22, 25, 28), roomy)
	require.Equal(t, []ports.Run{run(0, 0, 64, 6, 64, 128), run(6*64, 13*64, 64, 6, 64, 192)}, got.chunks[0].Scatter.Runs)
	require.Empty(t, got.chunks[0].Scatter.Index)
}

// Pairs of neighbours at a constant distance are one run of double pages.
func TestStretchesMakeRunsToo(t *testing.T) {
	src := permuted(64, 8, 1)
	got := mustPlan(t, src, pages(64, 0, 1, 10, 11, 20, 21, 30, 31), roomy)
	require.Equal(t, []ports.Run{run(0, 0, 128, 4, 128, 640)}, got.chunks[0].Scatter.Runs)
}

// A distance that 64 bits hold only without its sign is no stride, and a sequence must not go round the end of memory.
func TestStridesAreExact(t *testing.T) {
	far := []ports.Descriptor{{Addr: 0, Bytes: 64}, {Addr: 1<<63 + 64, Bytes: 64}, {Addr: 63, Bytes: 64}}
	got := mustPlan(t, far, scattered(64, 64, 64), roomy)
	require.Len(t, got.chunks[0].Gather.Runs, 3)

	farthest := []ports.Descriptor{{Addr: 1 << 63, Bytes: 64}, {Addr: 0, Bytes: 64}, {Addr: 1<<63 + 64, Bytes: 64}, {Addr: 65, Bytes: 64}}
	got = mustPlan(t, farthest, scattered(64, 64, 64, 64), roomy)
	require.Len(t, got.chunks[0].Gather.Runs, 3)

	got = mustPlan(t, farthest[:2], scattered(64, 64), roomy)
	require.Equal(t, []ports.Run{run(0, 1<<63, 64, 2, 64, math.MinInt64)}, got.chunks[0].Gather.Runs)

	var round []ports.Descriptor // by 2^62 up to the end of memory, and round once more
	for i := range uint64(8) {
		round = append(round, ports.Descriptor{Addr: (i+1)<<62 - 100, Bytes: 64})
	}
	got = mustPlan(t, round, scattered(64, 64, 64, 64, 64, 64, 64, 64), roomy)
	require.Equal(t, []uint32{0, 1, 2, 3, 0, 1, 2, 3}, got.chunks[0].Gather.Index)

	var past []ports.Descriptor // by 2^59 past the end of memory
	for i := range uint64(40) {
		past = append(past, ports.Descriptor{Addr: (i+1)<<59 - 100, Bytes: 64})
	}
	got = mustPlan(t, past, permuted(64, 40, 1), roomy)
	require.Equal(t, run(0, 1<<59-100, 64, 32, 64, 1<<59), got.chunks[0].Gather.Runs[0])
}

// Runs that go on in memory just as they did, but not in the block, or not with pieces of the same length.
func TestNeighboursThatOnlyLookAlike(t *testing.T) {
	// every makes count descriptors of these bytes, at distance.
	every := func(from, distance, bytes uint64, count int) (list []ports.Descriptor) {
		for i := range uint64(count) {
			list = append(list, ports.Descriptor{Addr: from + i*distance, Bytes: bytes})
		}
		return list
	}
	lengths := func(list []ports.Descriptor) (all []uint64) {
		for _, d := range list {
			all = append(all, d.Bytes)
		}
		return all
	}
	// inParts cuts every descriptor into so many.
	inParts := func(list []ports.Descriptor, parts uint64) (all []ports.Descriptor) {
		for _, d := range list {
			all = append(all, every(d.Addr, d.Bytes/parts, d.Bytes/parts, int(parts))...)
		}
		return all
	}
	for name, dst := range map[string][]ports.Descriptor{
		"another length":          append(every(0, 1000, 40, 5), every(5000, 1000, 50, 5)...),
		"another step":            append(inParts(every(0, 1000, 20, 8), 2), every(8000, 1000, 20, 4)...),
		"a gap before":            append(append(every(1<<20, 0, 8, 1), inParts(every(0, 1000, 64, 4), 8)...), every(4000, 1000, 64, 4)...),
		"a longer piece in front": append(every(1<<20, 0, 100, 1), every(0, 1000, 40, 6)...),
	} {
		t.Run(name, func(t *testing.T) {
			mustPlan(t, scattered(lengths(dst)...), dst, roomy)
		})
	}
}

func TestNextAfterTheLastChunk(t *testing.T) {
	p := New()
	list := scattered(10)
	_, err := p.Begin(list, list, roomy)
	require.NoError(t, err)
	var c Chunk
	require.True(t, p.Next(&c))
	before := c
	for range 2 {
		require.False(t, p.Next(&c))
		require.Equal(t, before, c)
	}
	require.Equal(t, []uint32{10}, p.ChunkBytes())
}

func TestNextBeforeBegin(t *testing.T) {
	var p Planner
	require.False(t, p.Next(new(Chunk)))
	require.NoError(t, p.Overlap())
	require.Empty(t, p.ChunkBytes())
}

func TestPlanningAllocatesNothing(t *testing.T) {
	for name, lists := range map[string][2][]ports.Descriptor{
		"random pages":    {permuted(4096, 3000, 1), permuted(4096, 3000, 2)},
		"cut differently": {permuted(8192, 1500, 1), permuted(4096, 3000, 2)},
		"lengths in turn": {alternating(3000, 1), alternating(3000, 2)},
		"long pieces":     {pages(1<<20, 5, 3, 1), pages(3<<20, 7)},
	} {
		t.Run(name, func(t *testing.T) {
			p, c := New(), new(Chunk)
			plan := func() {
				_, err := p.Begin(lists[0], lists[1], Limits{ChunkBytes: 1 << 20, Chunks: 20})
				for err == nil && p.Next(c) {
				}
				if err == nil {
					err = p.Overlap()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			require.Zero(t, testing.AllocsPerRun(10, plan))
		})
	}
}
