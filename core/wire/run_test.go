package wire_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

func TestCheckRunsAtTheLimits(t *testing.T) {
	const most = math.MaxUint32
	table := make([]uint32, 10)
	for _, c := range []struct {
		name  string
		field string // "" when the runs are valid
		runs  []ports.Run
	}{
		{"no runs", "runs", nil},
		{"one byte", "", []ports.Run{{Piece: 1, Pieces: 1, Table: wire.NoTable}}},
		{"the last byte of 64 bits", "", []ports.Run{{Offset: math.MaxUint64 - 1, Piece: 1, Pieces: 1, Table: wire.NoTable}}},
		{"its end does not fit", "runs[0].offset", []ports.Run{{Offset: math.MaxUint64, Piece: 1, Pieces: 1, Table: wire.NoTable}}},
		{"steps reach the end", "", []ports.Run{{Offset: math.MaxUint64 - 2*most - 1, Step: most, Piece: 1, Pieces: 3, Table: wire.NoTable}}},
		{"steps pass it", "runs[0].offset", []ports.Run{{Offset: math.MaxUint64 - 2*most, Step: most, Piece: 1, Pieces: 3, Table: wire.NoTable}}},
		{"the largest span", "", []ports.Run{{Step: most, Piece: 1, Pieces: most, Table: wire.NoTable}}},
		{"the step of one piece is not used", "", []ports.Run{{Offset: math.MaxUint64 - 1, Step: most, Piece: 1, Pieces: 1, Table: wire.NoTable}}},
		{"the whole table", "", []ports.Run{{Piece: 1, Pieces: 10, Table: 0}}},
		{"the last entry", "", []ports.Run{{Piece: 1, Pieces: 1, Table: 9}}},
		{"one entry too many", "runs[0].table", []ports.Run{{Piece: 1, Pieces: 11, Table: 0}}},
		{"past the last entry", "runs[0].table", []ports.Run{{Piece: 1, Pieces: 1, Table: 10}}},
		{"table and pieces that wrap 32 bits", "runs[0].table", []ports.Run{{Piece: 1, Pieces: 3, Table: 0xFFFFFFFE}}},
		{"2^32-1 bytes in a piece", "", []ports.Run{{Piece: most, Pieces: 1, Table: wire.NoTable}}},
		{"2^32-1 bytes in pieces", "", []ports.Run{{Piece: 1, Pieces: most, Table: wire.NoTable}}},
		{"a byte more", "runs[1].pieces", []ports.Run{{Piece: most, Pieces: 1, Table: wire.NoTable}, {Piece: 1, Pieces: 1, Table: wire.NoTable}}},
		{"2^32 bytes", "runs[0].pieces", []ports.Run{{Piece: 1 << 16, Pieces: 1 << 16, Table: wire.NoTable}}},
		{"bytes that wrap 64 bits with another's", "runs[1].pieces", []ports.Run{{Piece: most, Pieces: 1, Table: wire.NoTable}, {Piece: most, Pieces: most, Table: wire.NoTable}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := wire.CheckRuns(ports.Runs{Runs: c.runs, Index: table})
			if c.field == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, c.field, fieldOf(t, err, "DATA"))
		})
	}
}

// TestCheckRunsIsExact compares the rules with the same rules in unbounded integers.
func TestCheckRunsIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := ports.Runs{Index: make([]uint32, rapid.IntRange(0, 6).Draw(t, "indices"))}
		r.Runs = rapid.SliceOfN(rapid.Custom(looseRun), 0, 4).Draw(t, "runs")
		err := wire.CheckRuns(r)
		if got, want := err == nil, validRuns(r); got != want {
			t.Fatalf("valid is %v by CheckRuns (%v), %v in unbounded integers", got, err, want)
		}
	})
}

func validRuns(r ports.Runs) bool {
	n := func(v uint64) *big.Int { return new(big.Int).SetUint64(v) }
	total := new(big.Int)
	for _, run := range r.Runs {
		piece, pieces := n(uint64(run.Piece)), n(uint64(run.Pieces))
		if piece.Sign() == 0 || pieces.Sign() == 0 {
			return false
		}
		end := new(big.Int).Mul(n(uint64(run.Pieces)-1), n(uint64(run.Step)))
		end.Add(end, piece).Add(end, n(run.Offset))
		if !end.IsUint64() {
			return false
		}
		if run.Table != wire.NoTable && new(big.Int).Add(n(uint64(run.Table)), pieces).Cmp(n(uint64(len(r.Index)))) > 0 {
			return false
		}
		total.Add(total, new(big.Int).Mul(piece, pieces))
	}
	return len(r.Runs) > 0 && total.Cmp(n(math.MaxUint32)) <= 0
}
