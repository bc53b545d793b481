package plan

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/ports"
)

// sizesOf runs the size pass alone, for requests too large to look at byte by byte.
func sizesOf(t *testing.T, src, dst []ports.Descriptor, lim Limits) []uint32 {
	t.Helper()
	p := New()
	_, err := p.Begin(src, dst, lim)
	require.NoError(t, err)
	return p.ChunkBytes()
}

func TestPiecesThatDoNotFitBeginAnotherChunk(t *testing.T) {
	list := permuted(96, 45, 1)
	got := mustPlan(t, list, permuted(96, 45, 2), Limits{ChunkBytes: 20*96 + 50})
	require.Equal(t, []uint32{15 * 96, 15 * 96, 15 * 96}, got.sizes)
	got = mustPlan(t, list, permuted(96, 45, 2), Limits{ChunkBytes: 15*96 + 50, Chunks: 1})
	require.Equal(t, []uint32{15 * 96, 15 * 96, 15 * 96}, got.sizes)
}

func TestADescriptorOfExactlyOneChunk(t *testing.T) {
	got := mustPlan(t, scattered(200), scattered(200), Limits{ChunkBytes: 200})
	require.Equal(t, []uint32{200}, got.sizes)
}

// The parts begin at multiples of 32 from the piece's start, so that they are aligned as the piece is.
func TestAPieceLongerThanAChunkIsCut(t *testing.T) {
	got := mustPlan(t, scattered(1000), scattered(1000), Limits{ChunkBytes: 300})
	require.Equal(t, []uint32{256, 256, 256, 232}, got.sizes)
	require.Equal(t, 1, got.summary.Pieces)
	for i, c := range got.chunks {
		require.Equal(t, 1, c.Pieces)
		require.Equal(t, uint64(1<<30+256*i), c.Gather.Runs[0].Addr)
	}
}

func TestCutsKeepThePiecesAlignment(t *testing.T) {
	list := scattered(100, 1000)
	got := mustPlan(t, list, list, Limits{ChunkBytes: 300})
	require.Greater(t, len(got.chunks), 3)
	for _, c := range got.chunks {
		runs := c.Gather.Runs
		require.Zero(t, (runs[len(runs)-1].Addr-list[len(list)-1].Addr)%Alignment)
	}
}

func TestChunksAreShared(t *testing.T) {
	random := func(n int) ([]ports.Descriptor, []ports.Descriptor) {
		return permuted(4096, n, 1), permuted(4096, n, 2)
	}
	for _, c := range []struct {
		name   string
		pages  int
		limit  uint64
		chunks int
		want   []uint32 // in pages
	}{
		{"even", 18432, 40 << 20, 4, []uint32{4608, 4608, 4608, 4608}},
		{"few as allowed, and even", 18432, 40 << 20, 0, []uint32{9216, 9216}},
		{"one page too many leaves no sliver", 18433, 40 << 20, 4, []uint32{4609, 4608, 4608, 4608}},
		{"fewer than the limit needs", 100, 30 * 4096, 2, []uint32{25, 25, 25, 25}},
		{"a page that does not fit moves on", 61, 30*4096 + 2048, 0, []uint32{30, 16, 15}},
		{"one fits", 100, 100 * 4096, 0, []uint32{100}},
		{"more than pages", 3, 40 << 20, 3, []uint32{1, 1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, dst := random(c.pages)
			sizes := sizesOf(t, src, dst, Limits{ChunkBytes: c.limit, Chunks: c.chunks})
			inPages := []uint32{}
			for _, s := range sizes {
				inPages = append(inPages, s/4096)
			}
			require.Equal(t, c.want, inPages)
		})
	}
}

func TestOneLongPieceIsShared(t *testing.T) {
	list := []ports.Descriptor{{Addr: 1 << 40, Bytes: 64 << 20}}
	sizes := sizesOf(t, list, list, Limits{ChunkBytes: 40 << 20, Chunks: 3})
	require.Equal(t, []uint32{22369632, 22369632, 22369600}, sizes)
}

// 5 GiB in pieces whose ends are beyond 32 bits, at the top of memory.
func TestMoreThan4GiB(t *testing.T) {
	const total = 5 << 30
	src := []ports.Descriptor{{Addr: math.MaxUint64 - total, Bytes: total}}
	dst := []ports.Descriptor{{Addr: 0, Bytes: total - 7}, {Addr: 1 << 50, Bytes: 7}}
	for _, lim := range []Limits{{ChunkBytes: MaxChunkBytes}, {ChunkBytes: 40 << 20}, {ChunkBytes: MaxChunkBytes, Chunks: 7}} {
		p := New()
		summary, err := p.Begin(src, dst, lim)
		require.NoError(t, err)
		require.Equal(t, Summary{Descriptors: 2, Pieces: 2, Bytes: total}, summary)
		var c Chunk
		next, bytes := src[0].Addr, uint64(0)
		for i := 0; p.Next(&c); i++ {
			require.Equal(t, p.ChunkBytes()[i], c.Bytes)
			for _, r := range c.Gather.Runs {
				for _, piece := range expand(t, r, c.Gather.Index) {
					require.Equal(t, next, piece.addr)
					next += piece.length
					bytes += piece.length
				}
			}
		}
		require.EqualValues(t, total, bytes)
	}
}

// A chunk of more pieces than a DATA message has room for would be possible by its bytes alone.
func TestDataMessageIsBounded(t *testing.T) {
	const count = 2*MaxChunkPieces + 10
	src, dst := make([]ports.Descriptor, count), make([]ports.Descriptor, count)
	for i := range src {
		at := uint64(i)
		src[i] = ports.Descriptor{Addr: at * at, Bytes: 1} // growing distances: no two runs of two are one
		dst[i] = ports.Descriptor{Addr: at * at * 3, Bytes: 1}
	}
	p := New()
	summary, err := p.Begin(src, dst, Limits{ChunkBytes: MaxChunkBytes})
	require.NoError(t, err)
	// Only 0 and 1 are neighbours in the source, and nothing in the destination.
	require.Equal(t, Summary{Descriptors: count, Pieces: count, Bytes: count}, summary)
	require.Equal(t, []uint32{MaxChunkPieces, MaxChunkPieces, 10}, p.ChunkBytes())
	require.LessOrEqual(t, dataFixedBytes+runBytes*MaxChunkPieces, MaxDataBytes)
	require.Greater(t, dataFixedBytes+runBytes*(MaxChunkPieces+1), MaxDataBytes)
	var c Chunk
	for p.Next(&c) {
		require.LessOrEqual(t, c.DataBytes(), MaxDataBytes)
	}
}

func TestExactlyMaxChunks(t *testing.T) {
	list := []ports.Descriptor{{Addr: 7, Bytes: MaxChunks}}
	require.Len(t, sizesOf(t, list, list, Limits{ChunkBytes: 1}), MaxChunks)
	require.Len(t, sizesOf(t, list, list, Limits{ChunkBytes: MaxChunkBytes, Chunks: MaxChunks}), MaxChunks/Alignment)
}

// Whole pieces and shares cost few chunks beyond the fewest, and none of those that were asked for is missing.
func TestNumberOfChunks(t *testing.T) {
	p := New()
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.SliceOfN(rapid.Uint64Range(1, 200), 1, 300).Draw(t, "lengths")
		for i := range lengths {
			lengths[i] *= Alignment // no padding
		}
		list := scattered(lengths...)
		limit := rapid.Uint64Range(4096, 100_000).Draw(t, "limit")
		chunks := rapid.IntRange(0, 8).Draw(t, "chunks")
		summary, err := p.Begin(list, list, Limits{ChunkBytes: limit, Chunks: chunks})
		require.NoError(t, err)
		least := max(int(divideUp(summary.Bytes, limit)), chunks)
		require.LessOrEqual(t, len(p.ChunkBytes()), least+least/8+1)
		if summary.Bytes >= 4096*uint64(chunks) {
			require.GreaterOrEqual(t, len(p.ChunkBytes()), least)
		}
	})
}
