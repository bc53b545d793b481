package porttest

import (
	"bytes"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/ports"
)

// computeMemory is memory under test and what it should hold.
type computeMemory struct {
	f    ComputeFixture
	addr uint64
	want []byte
}

// newComputeMemory fills memory with a pattern in which neighbours, and other salts, differ.
func newComputeMemory(f ComputeFixture, addr, size uint64, salt byte) *computeMemory {
	m := &computeMemory{f: f, addr: addr, want: make([]byte, size)}
	for i := range m.want {
		m.want[i] = byte(i)*7 + byte(i>>8)*13 + byte(i>>16)*29 + salt*101
	}
	f.Write(addr, m.want)
	return m
}

// check compares all of it.
func (m *computeMemory) check(t require.TestingT, what string) {
	got := make([]byte, len(m.want))
	m.f.Read(m.addr, got)
	if bytes.Equal(got, m.want) {
		return
	}
	for i := range got {
		if got[i] != m.want[i] {
			require.Failf(t, "wrong byte", "%s: byte %d is %#x, want %#x", what, i, got[i], m.want[i])
		}
	}
}

// computeApply is the definition of a copy, one byte after the other, on what both sides should hold. at is where the block begins in block.
func computeApply(runs ports.Runs, app, block *computeMemory, at uint64, scatter bool) {
	for _, run := range runs.Runs {
		for k := range uint64(run.Pieces) {
			factor := k
			if run.Table != ports.NoTable {
				factor = uint64(runs.Index[uint64(run.Table)+k])
			}
			inApp := run.Addr + factor*uint64(run.Stride) - app.addr
			inBlock := at + run.Offset + k*uint64(run.Step)
			for b := range uint64(run.Piece) {
				if scatter {
					app.want[inApp+b] = block.want[inBlock+b]
				} else {
					block.want[inBlock+b] = app.want[inApp+b]
				}
			}
		}
	}
}

// computeDrawRuns draws runs whose pieces overlap on neither side: each run has its own part of the application's memory, in random order, and
// its own part of the block.
func computeDrawRuns(r *rapid.T, app, appBytes, blockBytes uint64) ports.Runs {
	var runs ports.Runs
	var offset, used uint64
	for {
		run, span := computeDrawRun(r, &runs.Index)
		offset += uint64(rapid.IntRange(0, 40).Draw(r, "block gap"))
		used += uint64(rapid.IntRange(0, 40).Draw(r, "gap"))
		blockSpan := uint64(run.Pieces-1)*uint64(run.Step) + uint64(run.Piece)
		if offset+blockSpan > blockBytes || used+span > appBytes {
			break
		}
		run.Offset = offset
		run.Addr += app + used
		offset += blockSpan
		used += span
		runs.Runs = append(runs.Runs, run)
		if rapid.IntRange(0, 9).Draw(r, "last") == 0 {
			break
		}
	}
	slices.Reverse(runs.Runs) // neither side's order is ascending in general
	return runs
}

// computeDrawRun draws one run without its place in the block. Its Addr is the distance (modulo 2^64) from the lowest byte that it touches, of the span bytes that it
// needs.
func computeDrawRun(r *rapid.T, index *[]uint32) (run ports.Run, span uint64) {
	run.Piece = uint32(rapid.OneOf(
		rapid.IntRange(1, 40), rapid.SampledFrom([]int{1, 2, 4, 8, 16, 32, 64, 128, 256, 4096}), rapid.IntRange(1, 9000)).Draw(r, "piece"))
	most := 48
	if run.Piece > 512 {
		most = 5
	}
	run.Pieces = uint32(rapid.IntRange(1, most).Draw(r, "pieces"))
	run.Step = run.Piece + uint32(rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 70)).Draw(r, "step gap"))
	stride := int64(run.Piece) + int64(rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 70)).Draw(r, "stride gap"))
	run.Stride = stride
	if rapid.Bool().Draw(r, "descending") {
		run.Stride = -stride
	}
	run.Table = ports.NoTable
	first, last := int64(0), int64(run.Pieces)-1 // the factors of Stride that occur are within these
	if rapid.Bool().Draw(r, "indexed") {
		spare := rapid.IntRange(0, 8).Draw(r, "spare")
		first = int64(rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 1<<20)).Draw(r, "index base"))
		last = first + int64(run.Pieces) - 1 + int64(spare)
		factors := make([]uint32, 0, last-first+1)
		for i := first; i <= last; i++ {
			factors = append(factors, uint32(i))
		}
		factors = rapid.Permutation(factors).Draw(r, "order")
		run.Table = uint32(len(*index))
		*index = append(*index, factors...) // the spare entries belong to no piece
	}
	// The lowest piece stands at the span's start.
	lowest := first * run.Stride
	if run.Stride < 0 {
		lowest = last * run.Stride
	}
	run.Addr = uint64(-lowest)
	return run, uint64(last-first)*uint64(stride) + uint64(run.Piece)
}
