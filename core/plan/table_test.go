package plan

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/ports"
)

// planes are planes of a paged cache: each holds the same pages in the same order, and they stand at irregular distances.
func planes(count int, pages []ports.Descriptor, distance uint64) (list []ports.Descriptor) {
	base := uint64(0)
	for i := range uint64(count) {
		for _, d := range pages {
			d.Addr += base
			list = append(list, d)
		}
		base += distance + i*i%7*pages[0].Bytes
	}
	return list
}

// random64 is a list of pages far apart from each other, in random order.
func random64(pages int, seed uint64) []ports.Descriptor {
	list := permuted(64, pages, seed)
	for i := range list {
		list[i].Addr *= 4
	}
	return list
}

func TestATableIsSentOnceAChunk(t *testing.T) {
	src, dst := planes(20, random64(50, 1), 10000), planes(20, random64(50, 2), 20000)
	got := mustPlan(t, src, dst, roomy)
	for _, runs := range []ports.Runs{got.chunks[0].Gather, got.chunks[0].Scatter} {
		require.Len(t, runs.Runs, 20)
		require.Len(t, runs.Index, 50)
		for i, r := range runs.Runs {
			require.Equal(t, ports.Run{Offset: uint64(i) * 50 * 64, Addr: r.Addr, Stride: 256, Piece: 64, Pieces: 50, Step: 64, Table: 0}, r)
		}
	}
}

// A cut through a plane costs one more run, not another table: the run takes a part of the table that the other planes need anyway.
func TestACutPlaneUsesAPartOfTheTable(t *testing.T) {
	src, dst := planes(20, random64(50, 1), 10000), planes(20, random64(50, 2), 20000)
	got := mustPlan(t, src, dst, Limits{ChunkBytes: 1 << 20, Chunks: 3})
	require.Len(t, got.chunks, 3)
	for i, c := range got.chunks {
		require.Len(t, c.Scatter.Index, 50)
		require.LessOrEqual(t, len(c.Scatter.Runs), 8)
		if i > 0 {
			require.NotZero(t, c.Scatter.Runs[0].Table, "the chunk begins in the middle of a plane")
		}
	}
	require.NotEqual(t, got.chunks[0].Scatter.Runs[0].Addr, got.chunks[1].Scatter.Runs[0].Addr)
}

// Keys and values with page lists of their own, and one plane of pages in order between them.
func TestSeveralLists(t *testing.T) {
	var dst []ports.Descriptor
	keys, values := random64(40, 1), random64(60, 2)
	for i := range uint64(8) {
		for _, d := range keys {
			dst = append(dst, ports.Descriptor{Addr: d.Addr + i<<20, Bytes: 64})
		}
		for n := range uint64(30) {
			dst = append(dst, ports.Descriptor{Addr: 1<<30 + i<<20 + 128*n, Bytes: 64})
		}
		for _, d := range values {
			dst = append(dst, ports.Descriptor{Addr: d.Addr + 1<<40 + i*i<<20, Bytes: 64})
		}
	}
	got := mustPlan(t, random64(len(dst), 3), dst, roomy)
	require.Len(t, got.chunks[0].Scatter.Runs, 8*3)
	require.InDelta(t, 40+60, len(got.chunks[0].Scatter.Index), 4) // a page more or less may count as the strided plane's
}

// The last page of each plane is half used, so that each plane is a run and a piece.
func TestHalfPages(t *testing.T) {
	half := func(list []ports.Descriptor) []ports.Descriptor {
		list[len(list)-1].Bytes = 32
		return list
	}
	got := mustPlan(t, planes(10, half(random64(50, 1)), 10000), planes(10, half(random64(50, 2)), 20000), roomy)
	require.Len(t, got.chunks[0].Scatter.Runs, 20)
	require.Len(t, got.chunks[0].Scatter.Index, 49)
}

// 20000 pages in random order cost 4 bytes each and a run a chunk.
func TestRandomPagesCostFourBytes(t *testing.T) {
	for _, bytes := range []uint64{4096, 3 * 1024, 1000} {
		p, data := New(), 0
		_, err := p.Begin(permuted(bytes, 20000, 1), permuted(bytes, 20000, 2), Limits{ChunkBytes: 40 << 20, Chunks: 8})
		require.NoError(t, err)
		var c Chunk
		for p.Next(&c) {
			data += c.DataBytes()
		}
		require.Less(t, data, 4*20000+2048, "pages of %d bytes", bytes)
	}
}

// Pages farther apart than 32 bits of the largest power of two between them.
func TestTablesOfFarPages(t *testing.T) {
	far := func(scale uint64) (list []ports.Descriptor) {
		for _, d := range permuted(1, 300, 1) {
			list = append(list, ports.Descriptor{Addr: d.Addr * scale, Bytes: 33})
		}
		return list
	}
	got := mustPlan(t, far(1e12+1), permuted(33, 300, 2), roomy)
	require.Equal(t, int64(1e12+1), got.chunks[0].Gather.Runs[0].Stride)

	// And with nothing in common: as many tables as the 32 bits make necessary.
	list := far(1e12 + 1)
	list[7].Addr++
	list[250].Addr = math.MaxUint64 - 33
	mustPlan(t, list, permuted(33, 300, 2), roomy)
}

// A list whose repetition goes round the end of memory is no repetition, as exact integers.
func TestRepetitionRoundTheEnd(t *testing.T) {
	list := random64(50, 1)
	again := random64(50, 1)
	for i := range again {
		again[i].Addr -= 4000
	}
	mustPlan(t, append(list, again...), random64(100, 2), roomy)
}

// anyPages draws one side of a cache: planes with page lists that repeat wholly, in part or not, pages in order, neighbours, odd pages, pieces cut in parts.
func anyPages(t *rapid.T, label string, total int) (list []ports.Descriptor) {
	bytes := rapid.SampledFrom([]uint64{1, 2, 7, 16, 20, 32, 33}).Draw(t, label+" page")
	lists := make([][]ports.Descriptor, rapid.IntRange(1, 3).Draw(t, label+" lists"))
	for i := range lists {
		lists[i] = permuted(bytes, rapid.IntRange(1, 80).Draw(t, label+" pages"), rapid.Uint64().Draw(t, label+" order"))
	}
	for left := total; left > 0; {
		base := rapid.OneOf(rapid.Uint64Range(0, 1<<20), rapid.Uint64Range(0, math.MaxUint64-1<<20)).Draw(t, label+" base")
		pages := rapid.SampledFrom(lists).Draw(t, label+" list")
		first := rapid.IntRange(0, len(pages)-1).Draw(t, label+" first")
		pages = pages[first:]
		stride := bytes * rapid.Uint64Range(0, 5).Draw(t, label+" stride")
		strided, down := rapid.IntRange(0, 3).Draw(t, label+" strided") == 0, rapid.Bool().Draw(t, label+" down")
		for i, d := range pages {
			if left == 0 {
				break
			}
			switch {
			case strided && down:
				d.Addr = stride * uint64(len(pages)-i)
			case strided:
				d.Addr = stride * uint64(i)
			}
			d.Addr += base
			d.Bytes = min(d.Bytes, uint64(left))
			left -= int(d.Bytes)
			list = append(list, d)
		}
		if left > 0 && rapid.Bool().Draw(t, label+" odd") {
			n := rapid.IntRange(1, min(left, 50)).Draw(t, label+" odd bytes")
			list = append(list, ports.Descriptor{Addr: base, Bytes: uint64(n)})
			left -= n
		}
	}
	return list
}

// Whatever repeats, the runs and their tables move every byte, and never take more than one run a piece would.
func TestTablesMoveEveryByte(t *testing.T) {
	p := New()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(1, 6000).Draw(t, "total")
		src, dst := anyPages(t, "src", total), anyPages(t, "dst", total)
		lim := Limits{
			ChunkBytes: rapid.OneOf(rapid.Uint64Range(100, 3000), rapid.Just(uint64(MaxChunkBytes))).Draw(t, "chunk bytes"),
			Chunks:     rapid.IntRange(0, 8).Draw(t, "chunks"),
			Taper:      rapid.Bool().Draw(t, "taper"),
		}
		got, err := planAll(p, src, dst, lim)
		require.NoError(t, err)
		check(t, src, dst, lim, got)
		require.Equal(t, overlaps(dst), got.overlap != nil, "%v", got.overlap)
	})
}

// More descriptors and bytes than 32 bits hold, held against the lists piece by piece.
func TestManyLargePages(t *testing.T) {
	const count, bytes = 110_000, 64 << 10
	src, dst := permuted(bytes, count, 1), permuted(bytes, count, 2)
	p := New()
	summary, err := p.Begin(src, dst, Limits{ChunkBytes: 40 << 20})
	require.NoError(t, err)
	require.Equal(t, uint64(count)*bytes, summary.Bytes)
	var c Chunk
	n, data := 0, 0
	for p.Next(&c) {
		data += c.DataBytes()
		first := n
		n = onSide(t, c.Gather, src, first)
		require.Equal(t, n, onSide(t, c.Scatter, dst, first))
	}
	require.Equal(t, count, n)
	require.Less(t, data, 5*count)
	require.NoError(t, p.Overlap())
}

// onSide holds runs in the block's order against the descriptors from number next on and returns the number of the next one.
func onSide(t *testing.T, runs ports.Runs, list []ports.Descriptor, next int) int {
	end := uint64(0)
	for _, r := range runs.Runs {
		for _, piece := range expand(t, r, runs.Index) {
			require.Equal(t, end, piece.offset)
			end += piece.length
			for at := uint64(0); at < piece.length; next++ {
				require.Equal(t, list[next].Addr, piece.addr+at)
				at += list[next].Bytes
			}
		}
	}
	return next
}
