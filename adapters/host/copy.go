package host

import (
	"unsafe"

	"github.com/kvbounce/kvbounce/ports"
)

// A copy is cut into parts for the workers: at about this many bytes, so that handing a part over costs nothing beside copying it and the workers of one copy end at
// about the same time, or at this many runs, so that cutting stays short. A long piece is cut into longer parts: from 1 MiB on, Go's copy on amd64 goes round the cache,
// which moves bytes that no cache holds anyway half again as fast.
const (
	partBytes     = 256 << 10
	longPartBytes = 1 << 20
	partRuns      = 512
)

// position is a place within runs. Piece and offset are of the run's shape.
type position struct {
	run    int
	piece  uint64
	offset uint64 // bytes of that piece before this position
}

// part is bytes of a copy from a position on.
type part struct {
	from  position
	bytes uint64
}

// shape is how many pieces a run is copied in, and the bytes of each. A run that is contiguous on both sides is one piece, which is all of it.
func shape(r *ports.Run) (pieces, bytes uint64) {
	if r.Table == ports.NoTable && r.Step == r.Piece && r.Stride == int64(r.Piece) {
		return 1, uint64(r.Piece) * uint64(r.Pieces)
	}
	return uint64(r.Pieces), uint64(r.Piece)
}

// cut takes the next part off what is left from a position on, and says where the rest begins.
func cut(runs []ports.Run, from position) (p part, rest position) {
	p.from, rest = from, from
	limit := uint64(partBytes)
	if from.run < len(runs) {
		if _, size := shape(&runs[from.run]); size-from.offset >= longPartBytes {
			limit = longPartBytes
		}
	}
	for rest.run < len(runs) && p.bytes < limit && rest.run-from.run < partRuns {
		pieces, size := shape(&runs[rest.run])
		left := (pieces-rest.piece)*size - rest.offset
		if room := limit - p.bytes; left > room {
			rest.offset += room
			rest.piece += rest.offset / size
			rest.offset %= size
			p.bytes += room
			break
		}
		p.bytes += left
		rest = position{run: rest.run + 1}
	}
	return p, rest
}

// copyPart copies one part.
func copyPart(runs ports.Runs, block uint64, scatter bool, p part) {
	from, left := p.from, p.bytes
	for left > 0 {
		run := &runs.Runs[from.run]
		var table []uint32
		if run.Table != ports.NoTable {
			table = runs.Index[run.Table:][:run.Pieces]
		}
		left -= copyRun(run, table, block+run.Offset, scatter, from, left)
		from = position{run: from.run + 1}
	}
}

// copyRun copies at most limit bytes of a run, from a position on, and returns how many it copied. It is the hot loop: 4 KiB pieces pass at more than one in a
// microsecond.
func copyRun(run *ports.Run, table []uint32, block uint64, scatter bool, from position, limit uint64) (copied uint64) {
	pieces, size := shape(run)
	stride, step := uint64(run.Stride), uint64(run.Step) // two's complement: a negative stride wraps to the right address
	offset := from.offset
	for k := from.piece; k < pieces && copied < limit; k++ {
		n := min(size-offset, limit-copied)
		factor := k
		if table != nil {
			factor = uint64(table[k])
		}
		to, source := at(block+k*step+offset), at(run.Addr+factor*stride+offset)
		if scatter {
			to, source = source, to
		}
		copy(unsafe.Slice(to, n), unsafe.Slice(source, n))
		copied += n
		offset = 0
	}
	return copied
}
