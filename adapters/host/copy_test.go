package host

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/ports"
)

// Cutting any runs yields parts that follow one another without gap or overlap, add up to all bytes, and keep to the limits.
func TestPartsAreTheWholeCopyOnce(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		runs := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) ports.Run {
			run := ports.Run{
				Piece:  rapid.OneOf(rapid.Uint32Range(1, 5000), rapid.Uint32Range(1, 3<<20)).Draw(r, "piece"),
				Pieces: rapid.OneOf(rapid.Just(uint32(1)), rapid.Uint32Range(1, 300)).Draw(r, "pieces"),
				Table:  rapid.SampledFrom([]uint32{0, ports.NoTable}).Draw(r, "table"),
			}
			run.Step, run.Stride = run.Piece, int64(run.Piece)
			if rapid.Bool().Draw(r, "gaps") {
				run.Step++
			}
			return run
		}), 0, 20).Draw(r, "runs")
		if rapid.IntRange(0, 20).Draw(r, "many") == 0 {
			for range 3 * partRuns {
				runs = append(runs, ports.Run{Piece: 1, Pieces: 1, Table: ports.NoTable})
			}
		}
		var want, got uint64
		for _, run := range runs {
			want += uint64(run.Piece) * uint64(run.Pieces)
		}
		at := position{}
		for at.run < len(runs) {
			p, rest := cut(runs, at)
			require.Equal(r, at, p.from)
			require.LessOrEqual(r, p.bytes, uint64(longPartBytes))
			require.LessOrEqual(r, rest.run-at.run, partRuns)
			require.Equal(r, bytesBefore(runs, rest)-bytesBefore(runs, at), p.bytes)
			require.Positive(r, p.bytes)
			got += p.bytes
			at = rest
		}
		require.Equal(r, want, got)
	})
}

// bytesBefore counts the bytes of the runs before a position.
func bytesBefore(runs []ports.Run, at position) (bytes uint64) {
	for i := range runs[:at.run] {
		pieces, size := shape(&runs[i])
		bytes += pieces * size
	}
	if at.run < len(runs) {
		_, size := shape(&runs[at.run])
		bytes += at.piece*size + at.offset
	}
	return bytes
}

// The longest run that a frame can describe is cut without overflow.
func TestCutOfFourGiB(t *testing.T) {
	runs := []ports.Run{{Piece: math.MaxUint32, Pieces: 1, Step: 0, Table: ports.NoTable}}
	parts, at := 0, position{}
	for at.run < len(runs) {
		_, at = cut(runs, at)
		parts++
	}
	require.Equal(t, 4<<30/longPartBytes, parts-3, "the last MiB, short by a byte, is no longer a long piece")
}
