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
	require.EqualValues(t, 40, unsafe.Sizeof(ports.Run{}))
	require.EqualValues(t, entryBytes, unsafe.Sizeof(entry{}))
	require.EqualValues(t, 40+entryBytes*inlineEntries, unsafe.Sizeof(launchPlan{}))
	require.LessOrEqual(t, unsafe.Sizeof(launchPlan{}), uintptr(4096))
	var p launchPlan
	require.Equal(t, []uintptr{0, 8, 16, 24, 28, 32, 40}, []uintptr{
		unsafe.Offsetof(p.table), unsafe.Offsetof(p.index), unsafe.Offsetof(p.block), unsafe.Offsetof(p.count), unsafe.Offsetof(p.units), unsafe.Offsetof(p.batch), unsafe.Offsetof(p.inlined),
	})
	require.Contains(t, kernels.PTX, ".param .align 8 .b8 kvb_gather_param_0[3880]")
	require.Contains(t, kernels.PTX, ".param .align 8 .b8 kvb_scatter_param_0[3880]")
	require.EqualValues(t, 3880, unsafe.Sizeof(launchPlan{}))
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
		entries := make([]entry, len(runs))
		units, err := countUnits(runs)
		require.NoError(r, err)
		fill(entries, runs)
		var covered uint64
		for unit := range units {
			// As kvb_gather looks it up.
			i := sort.Search(len(entries), func(i int) bool { return entries[i].first > unit }) - 1
			e := entries[i]
			require.Equal(r, runs[i], e.run)
			k, part := (unit-e.first)/e.parts, (unit-e.first)%e.parts
			require.Less(r, k, e.run.Pieces)
			require.Less(r, part*partBytes, e.run.Piece)
			covered += uint64(min(e.run.Piece-part*partBytes, partBytes))
		}
		var bytes uint64
		for _, run := range runs {
			bytes += uint64(run.Piece) * uint64(run.Pieces)
		}
		require.Equal(r, bytes, covered)
	})
}

func TestSpread(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		units := rapid.OneOf(rapid.Uint32Range(1, 100_000), rapid.Uint32Range(1, maxUnits)).Draw(r, "units")
		most := rapid.OneOf(rapid.IntRange(1, 5000), rapid.IntRange(1, math.MaxInt32)).Draw(r, "most")
		batch, blocks := spread(units, most)
		require.GreaterOrEqual(r, batch, uint32(1))
		require.LessOrEqual(r, batch, uint32(warpLanes))
		require.GreaterOrEqual(r, blocks, 1)
		require.LessOrEqual(r, blocks, most)
		inRound := uint64(batch) * uint64(blocks) * warpsOfBlock
		require.True(r, inRound >= uint64(units) || batch == warpLanes && blocks == most, "one round, or as much as a round can hold")
		require.Less(r, inRound-uint64(batch)*warpsOfBlock, uint64(units), "no block without a unit")
	})
}

func TestLargestCopy(t *testing.T) {
	units, err := countUnits([]ports.Run{{Piece: math.MaxUint32, Pieces: 1, Table: ports.NoTable}})
	require.NoError(t, err)
	require.EqualValues(t, 1<<20, units)
	units, err = countUnits([]ports.Run{{Piece: 2, Pieces: math.MaxInt32}, {Piece: 1, Pieces: 1}})
	require.NoError(t, err)
	require.EqualValues(t, 1<<31, units)
	_, err = countUnits([]ports.Run{{Piece: 2, Pieces: math.MaxInt32}, {Piece: 1, Pieces: 2}})
	require.ErrorContains(t, err, "run 1")
	units, err = countUnits(nil)
	require.NoError(t, err)
	require.Zero(t, units)
}
