package cuda

import (
	"math"
	"sort"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/kernels"
	"github.com/kvbounce/kvbounce/ports"
)

// The sizes that gather_scatter.cu asserts of its side.
func TestLayoutIsTheKernels(t *testing.T) {
	require.EqualValues(t, entryBytes, unsafe.Sizeof(entry{}))
	require.Equal(t, []uintptr{0, 8, 16, 24, 28, 32, 36}, func(e entry) []uintptr {
		return []uintptr{unsafe.Offsetof(e.offset), unsafe.Offsetof(e.addr), unsafe.Offsetof(e.stride), unsafe.Offsetof(e.piece), unsafe.Offsetof(e.step), unsafe.Offsetof(e.table), unsafe.Offsetof(e.parts)}
	}(entry{}))
	var p launchPlan
	require.EqualValues(t, 4096, unsafe.Sizeof(p))
	require.Equal(t, []uintptr{0, 8, 16, 24, 32, 36, 40, 44, 48}, []uintptr{
		unsafe.Offsetof(p.firsts), unsafe.Offsetof(p.entries), unsafe.Offsetof(p.index), unsafe.Offsetof(p.block),
		unsafe.Offsetof(p.count), unsafe.Offsetof(p.units), unsafe.Offsetof(p.batch), unsafe.Offsetof(p.indexAt), unsafe.Offsetof(p.words),
	})
	require.Contains(t, kernels.PTX, ".param .align 8 .b8 kvb_gather_param_0[4096]")
	require.Contains(t, kernels.PTX, ".param .align 8 .b8 kvb_scatter_param_0[4096]")
}

// Each list of a plan has its own words, entries at even ones, in the plan or in memory, and as much is in the plan as fits.
func TestLay(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		runs := rapid.OneOf(rapid.IntRange(1, 110), rapid.IntRange(1, 100_000)).Draw(r, "runs")
		indices := rapid.OneOf(rapid.IntRange(0, 1100), rapid.IntRange(0, 100_000)).Draw(r, "indices")
		var ends [2]int // of what is used, in the plan and in memory
		firsts, entries, index, memory := lay(runs, indices)
		for _, l := range []struct {
			at    spot
			words int
		}{{firsts, runs}, {entries, 10 * runs}, {index, indices}} {
			where := 0
			if l.at.inMemory {
				where = 1
				require.Greater(r, ends[0]+l.words, inlineWords, "it would have fitted")
			}
			require.Equal(r, ends[where], l.at.word)
			require.Zero(r, l.at.word%2)
			ends[where] += (l.words + 1) / 2 * 2
		}
		require.LessOrEqual(r, ends[0], inlineWords)
		require.Equal(r, ends[1], memory)
		// As the kernels find the entries that are in the plan.
		require.True(r, entries.inMemory || entries.word == (runs+1)&^1)
	})
}

func drawRun(r *rapid.T) ports.Run {
	run := ports.Run{
		Offset: rapid.Uint64Range(0, 1<<20).Draw(r, "offset"),
		Addr:   rapid.Uint64Range(0, 1<<40).Draw(r, "addr"),
		Stride: rapid.Int64Range(-1<<20, 1<<20).Draw(r, "stride"),
		Piece:  rapid.OneOf(rapid.Uint32Range(1, 700), rapid.Uint32Range(1, 20000)).Draw(r, "piece"),
		Table:  rapid.SampledFrom([]uint32{0, ports.NoTable}).Draw(r, "table"),
	}
	run.Pieces = rapid.Uint32Range(1, 2+20000/run.Piece).Draw(r, "pieces")
	run.Step = run.Piece + rapid.Uint32Range(0, 64).Draw(r, "gap")
	if rapid.Bool().Draw(r, "aligned") {
		align := rapid.SampledFrom([]uint64{2, 4, 8, 16, 32}).Draw(r, "alignment")
		run.Offset, run.Addr, run.Stride = run.Offset&^(align-1), run.Addr&^(align-1), run.Stride&^int64(align-1)
		run.Piece, run.Step = (run.Piece+uint32(align)-1)&^uint32(align-1), (run.Step+uint32(align)-1)&^uint32(align-1)
	}
	return run
}

// Every byte of every piece is in one unit, and every unit in one batch.
func TestUnitsAreTheRunsOnce(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		runs := rapid.SliceOfN(rapid.Custom(drawRun), 1, 5).Draw(r, "runs")
		firsts, entries := make([]uint32, len(runs)), make([]entry, len(runs))
		units, bytes, err := countUnits(runs)
		require.NoError(r, err)
		fill(firsts, entries, runs)
		var covered uint64
		for unit := range units {
			// As kvb_gather looks it up.
			i := sort.Search(len(firsts), func(i int) bool { return firsts[i] > unit }) - 1
			e, run := entries[i], runs[i]
			require.Equal(r, run, ports.Run{Offset: e.offset, Addr: e.addr, Stride: e.stride, Piece: e.piece, Pieces: run.Pieces, Step: e.step, Table: e.table})
			k, part := (unit-firsts[i])/e.parts, (unit-firsts[i])%e.parts
			require.Less(r, k, run.Pieces)
			require.Less(r, part*partBytes, run.Piece)
			covered += uint64(min(run.Piece-part*partBytes, partBytes))
		}
		require.Equal(r, bytes, covered)
	})
}

func TestSpread(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		units := rapid.OneOf(rapid.Uint32Range(1, 100_000), rapid.Uint32Range(1, maxUnits)).Draw(r, "units")
		mean := rapid.Uint64Range(1, partBytes).Draw(r, "mean bytes")
		most := rapid.OneOf(rapid.IntRange(1, 5000), rapid.IntRange(1, math.MaxInt32)).Draw(r, "most")
		batch, blocks := spread(units, uint64(units)*mean, most)
		require.GreaterOrEqual(r, batch, uint32(1))
		require.LessOrEqual(r, batch, uint32(warpLanes))
		require.GreaterOrEqual(r, blocks, 1)
		require.LessOrEqual(r, blocks, most)
		inRound, rounds := uint64(batch)*uint64(blocks)*warpsOfBlock, uint64(1)
		if mean > partBytes/2 {
			rounds = 2
		}
		require.True(r, rounds*inRound >= uint64(units) || batch == warpLanes && blocks == most, "as few rounds as wanted, or as much in each as one can hold")
		require.Less(r, inRound-uint64(batch)*warpsOfBlock, uint64(units), "no block without a unit")
	})
}

func TestLargestCopy(t *testing.T) {
	units, _, err := countUnits([]ports.Run{{Piece: math.MaxUint32, Pieces: 1, Table: ports.NoTable}})
	require.NoError(t, err)
	require.EqualValues(t, 1<<20, units)
	units, _, err = countUnits([]ports.Run{{Piece: 2, Pieces: math.MaxInt32}, {Piece: 1, Pieces: 1}})
	require.NoError(t, err)
	require.EqualValues(t, 1<<31, units)
	_, _, err = countUnits([]ports.Run{{Piece: 2, Pieces: math.MaxInt32}, {Piece: 1, Pieces: 2}})
	require.ErrorContains(t, err, "run 1")
	units, _, err = countUnits(nil)
	require.NoError(t, err)
	require.Zero(t, units)
}
