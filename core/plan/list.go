package plan

import (
	"math"
	"math/bits"
	"slices"
)

// list is an irregular list of addresses that stands, or stood in an earlier chunk, in an index table. Entry i of the table is (address i - low) / unit.
type list struct {
	begin, end int    // of the side's addresses
	low, high  uint64 // the smallest and the largest
	unit       uint64 // divides the distance of any two; at least 1
	length     uint32 // bytes of its pieces

	// What stands in the table of the chunk with that number.
	chunk    int
	from, to int
	table    uint32 // the entry of from
}

// seenBits: 2^seenBits hashes of distances are remembered, one for each value of as many bits.
const seenBits = 10

// lists are the lists of a request, and the hashes by which repetitions are found.
type lists struct {
	all   []list // in order of begin
	chunk int    // number of the present chunk, from 1
	// seen holds, for a hash of the two distances before an address, its number in the low half and more of the hash in the high half.
	seen [1 << seenBits]uint64
}

func (l *lists) reset() {
	l.all, l.chunk = l.all[:0], 0
	clear(l.seen[:])
}

// find is the list that holds address number at, or nil.
func (l *lists) find(at int) *list {
	low, high := 0, len(l.all)
	for low < high { // the first that begins after at
		if mid := (low + high) / 2; l.all[mid].begin <= at {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 || at >= l.all[low-1].end {
		return nil
	}
	return &l.all[low-1]
}

// repeat looks whether the addresses around number k stand to each other as those around number at do, two of which have the same two distances before them, by the hash. If so for
// minRepeated of them it makes a run of these, after the list before them, and returns where they end; else 0.
func (s *runBuilder) repeat(first, begin, k, at int, p *part) (end int) {
	from, to := begin, k // the list that holds at: the present one, or
	var l *list
	if at < begin {
		if l = s.lists.find(at); l == nil {
			return 0
		}
		from, to = l.begin, l.end
	}
	a := s.addrs
	moved := a[k] - a[at]
	if at-from < 2 || at >= to || a[k-1]-a[at-1] != moved || a[k-2]-a[at-2] != moved {
		return 0
	}
	start := k - 2
	for source := at - 2; start > begin && source > from && a[start-1]-a[source-1] == moved; source-- {
		start--
	}
	source := at - (k - start)
	if l == nil {
		to = start // the present list will end there
	}
	end = k + 1
	older, newer := a[min(at+1, to):to], a[end:p.end]
	older = older[:min(len(older), len(newer))]
	for i, address := range older {
		if newer[i]-address != moved {
			break
		}
		end++
	}
	end = min(end, start+to-source)
	if end-start < minRepeated || l != nil && l.high+moved < l.low+moved {
		return 0
	}
	s.list(first, begin, start, p)
	// That may have moved all lists, and a list that was still open may have become anything.
	l = s.lists.find(source)
	if l == nil || source+end-start > l.end || l.high+moved < l.low+moved {
		return start
	}
	s.cover(l, source, source+end-start)
	s.indexed(l, source, start, end, p, first)
	return end
}

// measure makes a list of addresses from begin on, as many before end as fit one, and says where the rest begins.
func (s *runBuilder) measure(begin, end int) (l list, next int) {
	a := s.addrs[begin:end]
	low, high, shared := extent(a)
	unit := min(max(shared&-shared, 1), 1<<62) // the largest power of two in it that is a stride
	if (high-low)/unit > math.MaxUint32 {
		unit = commonDivisor(a)
	}
	if (high-low)/unit > math.MaxUint32 || unit > math.MaxInt64 {
		low, high = a[0], a[0]
		for i, x := range a {
			if max(high, x)-min(low, x) > math.MaxUint32 {
				return s.measure(begin, begin+i)
			}
			low, high = min(low, x), max(high, x)
		}
	}
	return list{begin: begin, end: end, low: low, high: high, unit: unit}, end
}

// extent is the smallest and the largest address, and all bits of their distances from the first.
func extent(a []uint64) (low, high, shared uint64) {
	first := a[0]
	low, high = first, first
	for _, x := range a {
		low, high = min(low, x), max(high, x)
		shared |= x - first
	}
	return low, high, shared
}

// commonDivisor is the largest number that divides every distance.
func commonDivisor(a []uint64) uint64 {
	g := uint64(0)
	for _, x := range a {
		d := max(x, a[0]) - min(x, a[0])
		for d != 0 {
			g, d = d, g%d
		}
	}
	return max(g, 1)
}

// cover makes sure that numbers from to to of a list are in the present chunk's table: by themselves, or with the whole list where that is not much longer, since later runs
// may need the rest.
func (s *runBuilder) cover(l *list, from, to int) {
	if l.chunk == s.lists.chunk && l.from <= from && to <= l.to {
		return
	}
	if l.end-l.begin <= 4*(to-from) {
		from, to = l.begin, l.end
	}
	n := len(s.index)
	l.chunk, l.from, l.to, l.table = s.lists.chunk, from, to, uint32(n)
	s.index = slices.Grow(s.index, to-from)[:n+to-from]
	l.fill(s.index[n:], s.addrs[from:to])
	if table := s.index[n:]; s.mutated("shift an index table by one entry") {
		copy(table, table[1:])
	}
}

// fill makes the table of some of the list's addresses.
func (l *list) fill(table []uint32, addrs []uint64) {
	addrs, low := addrs[:len(table)], l.low
	if shift := bits.TrailingZeros64(l.unit); l.unit == 1<<shift {
		for i, x := range addrs {
			table[i] = uint32((x - low) >> (shift & 63))
		}
		return
	}
	for i, x := range addrs {
		table[i] = uint32((x - low) / l.unit)
	}
}
