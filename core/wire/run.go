package wire

import (
	"fmt"
	"math"

	"github.com/kvbounce/kvbounce/ports"
)

// RunBytes is the size of a run on the wire.
const RunBytes = 40

// CheckRuns checks the rules for runs that need nothing but the runs (protocol.md, 3): at least one run, and in each at least one piece of at least one byte, region offsets that fit 64 bits,
// and a table within the indices; and pieces of at most 2^32-1 bytes in all. It does not look at destinations: those are checked, as exact integers, by who knows what memory is allowed. Errors
// are *FieldError of "DATA".
func CheckRuns(r ports.Runs) error {
	if len(r.Runs) == 0 {
		return wrong(TypeData.String(), "runs", "empty", "at least one run")
	}
	indices := uint64(len(r.Index))
	var total uint64
	for i := range r.Runs {
		run := &r.Runs[i]
		if run.Piece == 0 {
			return wrongRun(i, "piece", 0, "at least 1")
		}
		if run.Pieces == 0 {
			return wrongRun(i, "pieces", 0, "at least 1")
		}
		// Neither product nor sum overflows: (2^32-2)(2^32-1) + 2^32-1 < 2^64.
		span := uint64(run.Pieces-1)*uint64(run.Step) + uint64(run.Piece)
		if run.Offset > math.MaxUint64-span {
			return wrongRun(i, "offset", run.Offset, fmt.Sprintf("at most %d: the pieces must end below 2^64", math.MaxUint64-span))
		}
		if run.Table != NoTable && uint64(run.Table)+uint64(run.Pieces) > indices {
			return wrongRun(i, "table", run.Table, fmt.Sprintf("%d entries within the %d indices, or %d for none", run.Pieces, indices, uint32(NoTable)))
		}
		// total is below 2^32 here, and the product at most (2^32-1)^2: no overflow.
		total += uint64(run.Piece) * uint64(run.Pieces)
		if total > math.MaxUint32 {
			return wrongRun(i, "pieces", fmt.Sprintf("%d, which makes %d bytes", run.Pieces, total), fmt.Sprintf("at most %d bytes in all runs", uint32(math.MaxUint32)))
		}
	}
	return nil
}

func wrongRun(i int, field string, got any, allowed string) error {
	return wrong(TypeData.String(), element("runs", i, field), got, allowed)
}

func appendRuns(dst []byte, runs []ports.Run) []byte {
	dst, out := extend(dst, RunBytes*len(runs))
	for i := range runs {
		p, r := out[i*RunBytes:][:RunBytes], &runs[i]
		le.PutUint64(p, r.Offset)
		le.PutUint64(p[8:], r.Addr)
		le.PutUint64(p[16:], uint64(r.Stride))
		le.PutUint32(p[24:], r.Piece)
		le.PutUint32(p[28:], r.Pieces)
		le.PutUint32(p[32:], r.Step)
		le.PutUint32(p[36:], r.Table)
	}
	return dst
}

// readRuns fills runs from b, which has RunBytes for each. A hot path: field by field, because a composite literal is built aside and copied.
func readRuns(runs []ports.Run, b []byte) {
	for i := range runs {
		p, r := b[i*RunBytes:][:RunBytes], &runs[i]
		r.Offset = le.Uint64(p)
		r.Addr = le.Uint64(p[8:])
		r.Stride = int64(le.Uint64(p[16:]))
		r.Piece = le.Uint32(p[24:])
		r.Pieces = le.Uint32(p[28:])
		r.Step = le.Uint32(p[32:])
		r.Table = le.Uint32(p[36:])
	}
}
