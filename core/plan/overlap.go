package plan

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sort"

	"github.com/kvbounce/kvbounce/ports"
)

// ErrOverlap: a request would write a destination byte twice, and nothing says which write is the last.
var ErrOverlap = errors.New("destination ranges overlap")

// maxBitsPerPiece bounds the bitmap: beyond that, clearing and missing the cache cost more than sorting.
const maxBitsPerPiece = 64

// span is a run as the overlap check sees it: the addresses of its pieces, and what they have in common.
type span struct {
	low, high uint64 // the smallest and the largest address
	shared    uint64 // the lowest bit that is set in it, if any, divides the distance of any two addresses
	length    uint64 // bytes of each piece
	at        int    // number of the first address
	pieces    int
	strided   bool // at the constant stride shared
	implied   bool // pieces of another run, as long as these or longer, stand to each other as these do
}

// end is the address after the span's last byte.
func (s *span) end() uint64 { return s.high + s.length }

// overlapCheck finds out whether a request writes a destination byte twice. It looks at whole runs first: those whose spans meet no other's can only overlap themselves, which
// strides tell, and lists tell once for all runs that repeat them. Where spans meet, as those of pages in random order do, and in a list, it marks the pieces in a bitmap of the memory
// they span, one bit for the largest power of two that all their addresses and lengths share. Only where that bitmap would be sparse does it sort pieces. It keeps its scratch.
type overlapCheck struct {
	bitmap  []uint64
	spans   reachSorter
	pieces  reachSorter
	cluster []span // spans that meet
}

// any reports whether two pieces of the runs share a byte.
func (o *overlapCheck) any(addrs []uint64, spans []span) bool {
	list := sized(o.spans.list, len(spans))
	sorted, end := true, uint64(0)
	for i := range spans {
		s := &spans[i]
		list[i] = reach{begin: s.low, end: s.end(), run: uint32(i)}
		sorted = sorted && s.low >= end
		end = s.end()
	}
	o.spans.list = list
	if !sorted {
		o.spans.sort()
		list = o.spans.list
	}
	for first := 0; first < len(list); {
		end, next := list[first].end, first+1
		for ; next < len(list) && list[next].begin < end; next++ {
			end = max(end, list[next].end)
		}
		o.cluster = o.cluster[:0]
		for _, r := range list[first:next] {
			o.cluster = append(o.cluster, spans[r.run])
		}
		if o.meet(addrs, o.cluster, end) {
			return true
		}
		first = next
	}
	return false
}

// meet reports whether two pieces of a cluster, which ends at end, share a byte.
func (o *overlapCheck) meet(addrs []uint64, cluster []span, end uint64) bool {
	if s := &cluster[0]; len(cluster) == 1 && (s.strided || s.implied) {
		return s.strided && s.pieces > 1 && min(s.shared, -s.shared) < s.length
	}
	// The spans are in order of their lowest addresses.
	low, shared, pieces := cluster[0].low, end-cluster[0].low, uint64(0)
	for i := range cluster {
		s := &cluster[i]
		shared |= s.low - low | s.shared | s.length
		pieces += uint64(s.pieces)
	}
	shift := bits.TrailingZeros64(shared)
	if size := (end - low) >> shift; size/maxBitsPerPiece <= pieces {
		o.bitmap = sized(o.bitmap, int(size/64)+1)
		clear(o.bitmap)
		for i := range cluster {
			if o.mark(addrs, &cluster[i], low, shift) {
				return true
			}
		}
		return false
	}
	return o.sortPieces(addrs, cluster)
}

// mark sets the bits of a span's pieces and reports whether one was set before.
func (o *overlapCheck) mark(addrs []uint64, s *span, low uint64, shift int) bool {
	if s.pieces == 1 { // its address may have changed since: the rest of a piece that was cut
		return o.set((s.low-low)>>shift, s.length>>shift)
	}
	bitmap, count := o.bitmap, s.length>>shift
	ones := ^uint64(0) >> (64 - min(count, 64))
	for _, a := range addrs[s.at : s.at+s.pieces] {
		bit := (a - low) >> (shift & 63)
		if at := bit % 64; at+count <= 64 { // within a word, the usual case
			word, mask := &bitmap[bit/64], ones<<at
			if *word&mask != 0 {
				return true
			}
			*word |= mask
		} else if o.set(bit, count) {
			return true
		}
	}
	return false
}

// set sets count bits and reports whether one was set before.
func (o *overlapCheck) set(bit, count uint64) bool {
	for count > 0 {
		word, at := &o.bitmap[bit/64], bit%64
		n := min(64-at, count)
		mask := ^uint64(0) >> (64 - n) << at
		if *word&mask != 0 {
			return true
		}
		*word |= mask
		bit, count = bit+n, count-n
	}
	return false
}

// sortPieces looks at every piece of a cluster.
func (o *overlapCheck) sortPieces(addrs []uint64, cluster []span) bool {
	list := o.pieces.list[:0]
	for i := range cluster {
		s := &cluster[i]
		if s.pieces == 1 {
			list = append(list, reach{begin: s.low, end: s.end()})
			continue
		}
		for _, a := range addrs[s.at : s.at+s.pieces] {
			list = append(list, reach{begin: a, end: a + s.length})
		}
	}
	o.pieces.list = list
	return o.pieces.overlap()
}

// describe names the first descriptor that shares bytes with an earlier one, and the first of those. Only wrong requests pay for it.
func (o *overlapCheck) describe(dst []ports.Descriptor) error {
	later := sort.Search(len(dst), func(n int) bool { // the lowest number of descriptors less one that overlap
		o.pieces.list = o.pieces.list[:0]
		for _, d := range dst[:n+1] {
			if d.Bytes > 0 {
				o.pieces.list = append(o.pieces.list, reach{begin: d.Addr, end: d.Addr + d.Bytes})
			}
		}
		return o.pieces.overlap()
	})
	if later == len(dst) { // the caller changed them meanwhile
		return ErrOverlap
	}
	b := dst[later]
	earlier := slices.IndexFunc(dst, func(a ports.Descriptor) bool {
		return a.Bytes > 0 && a.Addr < b.Addr+b.Bytes && b.Addr < a.Addr+a.Bytes
	})
	a := dst[earlier]
	offset := func(n int) (bytes uint64) {
		for _, d := range dst[:n] {
			bytes += d.Bytes
		}
		return bytes
	}
	return fmt.Errorf("%w: descriptor %d, %d bytes at %#x (offset %d of the request), and descriptor %d, %d bytes at %#x (offset %d)",
		ErrOverlap, earlier, a.Bytes, a.Addr, offset(earlier), later, b.Bytes, b.Addr, offset(later))
}
