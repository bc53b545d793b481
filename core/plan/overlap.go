package plan

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/kvbounce/kvbounce/ports"
)

// ErrOverlap: a request would write a destination byte twice, and nothing says which write is the last.
var ErrOverlap = errors.New("destination ranges overlap")

// maxBitsPerPiece bounds the bitmap: beyond that, clearing and missing the cache cost more than sorting.
const maxBitsPerPiece = 64

// OverlapCheck finds out whether the chunks of one request write a destination byte twice. It looks at whole runs first. Where runs interleave, as on pages in
// random order, it marks their pieces in a bitmap of the memory they span, one bit for the largest power of two that all their addresses and lengths share. Only where
// that bitmap would be sparse does it sort pieces. Its runs have no index tables. It keeps its scratch; the zero value is ready. Not for concurrent use.
type OverlapCheck struct {
	runs    []span
	tangled bool  // some run begins before the end of the one added before it
	self    error // a run that overlaps itself

	bitmap  []uint64
	hulls   reachSorter
	pieces  reachSorter
	cluster []span // runs whose hulls meet
}

// span is a run's rule in memory, and the reach of all its pieces together.
type span struct {
	hull   reach
	addr   uint64
	stride uint64 // negative: its two's complement
	piece  uint64
	pieces uint32
}

// Reset forgets all chunks.
func (o *OverlapCheck) Reset() {
	o.runs, o.tangled, o.self = o.runs[:0], false, nil
}

// Add takes the destinations of one more chunk, as Planner.Next made it. The chunk may change afterwards.
func (o *OverlapCheck) Add(c *Chunk) {
	for i := range c.Scatter.Runs {
		o.add(&c.Scatter.Runs[i])
	}
}

func (o *OverlapCheck) add(r *ports.Run) {
	s := span{addr: r.Addr, stride: uint64(r.Stride), piece: uint64(r.Piece), pieces: r.Pieces}
	first, last := s.at(0), s.at(r.Pieces-1)
	s.hull = reach{begin: min(first.begin, last.begin), end: max(first.end, last.end), run: uint32(len(o.runs))}
	if r.Pieces > 1 && min(s.stride, -s.stride) < s.piece && o.self == nil {
		o.self = overlap(first, s.at(1))
	}
	if n := len(o.runs); n > 0 && s.hull.begin < o.runs[n-1].hull.end {
		o.tangled = true
	}
	o.runs = append(o.runs, s)
}

// at is piece k. The planner's runs stay within 64 bits, so wrapping arithmetic is exact.
func (s *span) at(k uint32) reach {
	begin := s.addr + uint64(k)*s.stride
	return reach{begin: begin, end: begin + s.piece}
}

// Find returns nil, or an error that wraps ErrOverlap and names two ranges of the chunks since Reset that share bytes. The order of the chunks does not matter to whether, but may
// matter to which.
func (o *OverlapCheck) Find() error {
	if o.self != nil || !o.tangled || o.disjointByBitmap(o.runs) {
		return o.self
	}
	o.hulls.list = o.hulls.list[:0]
	for i := range o.runs {
		o.hulls.list = append(o.hulls.list, o.runs[i].hull)
	}
	o.hulls.sort()
	hulls := o.hulls.list
	for first := 0; first < len(hulls); {
		end, next := hulls[first].end, first+1
		for ; next < len(hulls) && hulls[next].begin < end; next++ {
			end = max(end, hulls[next].end)
		}
		o.cluster = o.cluster[:0]
		for _, h := range hulls[first:next] {
			o.cluster = append(o.cluster, o.runs[h.run])
		}
		if next > first+1 && !o.disjointByBitmap(o.cluster) {
			if err := o.findByPiece(o.cluster); err != nil {
				return err
			}
		}
		first = next
	}
	return nil
}

// disjointByBitmap reports that no two pieces of the runs share a byte. false: two do, or the bitmap would be too large to tell.
func (o *OverlapCheck) disjointByBitmap(runs []span) bool {
	whole, pieces := runs[0].hull, uint64(0)
	for i := range runs {
		s := &runs[i]
		whole.begin, whole.end = min(whole.begin, s.hull.begin), max(whole.end, s.hull.end)
		pieces += uint64(s.pieces)
	}
	shared := whole.end - whole.begin
	for i := range runs {
		s := &runs[i]
		shared |= s.addr - whole.begin | s.stride | s.piece
	}
	shift := bits.TrailingZeros64(shared)
	size := (whole.end - whole.begin) >> shift
	if size/maxBitsPerPiece > pieces {
		return false
	}
	words := int(size/64) + 1
	o.bitmap = slices.Grow(o.bitmap[:0], words)[:words]
	clear(o.bitmap)
	for i := range runs {
		s := &runs[i]
		bit, count := (s.addr-whole.begin)>>shift, s.piece>>shift
		step := uint64(int64(s.stride) >> shift)
		for range s.pieces {
			if !o.mark(bit, count) {
				return false
			}
			bit += step
		}
	}
	return true
}

// mark sets count bits; false when one was set.
func (o *OverlapCheck) mark(bit, count uint64) bool {
	for count > 0 {
		word, at := &o.bitmap[bit/64], bit%64
		n := min(64-at, count)
		mask := ^uint64(0) >> (64 - n) << at
		if *word&mask != 0 {
			return false
		}
		*word |= mask
		bit, count = bit+n, count-n
	}
	return true
}

// findByPiece looks at every piece of the runs.
func (o *OverlapCheck) findByPiece(runs []span) error {
	o.pieces.list = o.pieces.list[:0]
	for i := range runs {
		for k := range runs[i].pieces {
			o.pieces.list = append(o.pieces.list, runs[i].at(k))
		}
	}
	o.pieces.sort()
	pieces := o.pieces.list
	// In this order two neighbours overlap if any two do.
	for i := 1; i < len(pieces); i++ {
		if pieces[i].begin < pieces[i-1].end {
			return overlap(pieces[i-1], pieces[i])
		}
	}
	return nil
}

func overlap(a, b reach) error {
	return fmt.Errorf("%w: %d bytes at %#x and %d bytes at %#x", ErrOverlap, a.end-a.begin, a.begin, b.end-b.begin, b.begin)
}
