package plan

import (
	"math/bits"

	"github.com/kvbounce/kvbounce/ports"
)

// Thresholds, in pieces, that keep a DATA message short: a run takes 40 bytes and a table entry 4.
const (
	// minStrided is how many pieces at a constant stride end an irregular list. A run that splits it costs about as much as so many entries.
	minStrided = 12
	// minRepeated is how many pieces of an earlier list, repeated, end an irregular one.
	minRepeated = 12
	// fewPieces is up to how many pieces a list is looked at for being shorter as strided runs than as a table.
	fewPieces = 32
)

// runBuilder makes the runs of one side of a request, chunk by chunk. It goes through a part's addresses once and takes, at each, the first that holds:
//
//   - they go on at a constant stride for minStrided pieces: a strided run;
//   - minRepeated of them or more stand to each other as those of an earlier irregular list do: an indexed run with that list's table. Earlier lists are found by a hash of two
//     neighbouring distances; one of an earlier chunk is looked for too, since a page list that a cut goes through is the same list in the next chunk, but its table is sent again: a DATA message
//     stands by itself;
//   - else they belong to an irregular list, which ends where one of the others begins: an indexed run with a table of its own, or, where that is shorter, strided runs.
//
// No piece costs more than the 40 bytes of a run of its own.
type runBuilder struct {
	mutation mutation

	addrs []uint64 // of the request's pieces; those of chunks that are planned may have been joined
	lists lists
	spans []span // of all runs so far, for the overlap check
	keep  bool   // spans: this side is checked

	// Of the present chunk.
	joined []part
	runs   []ports.Run
	index  []uint32
}

// begin starts on a request.
func (s *runBuilder) begin(addrs []uint64) {
	s.addrs, s.spans = addrs, s.spans[:0]
	s.lists.reset()
}

// build makes the runs of a chunk, from its parts, the first of which begins at first, in the memory of into's slices.
func (s *runBuilder) build(first int, parts []part, into *ports.Runs) {
	s.runs, s.index = into.Runs[:0], into.Index[:0]
	s.lists.chunk++
	parts = s.join(first, parts)
	for i := range parts {
		p := &parts[i]
		if p.end == first+1 {
			s.single(first, p.length, p.at(0))
		} else {
			s.scan(first, p)
		}
		first = p.end
	}
	into.Runs, into.Index = s.runs, s.index
}

// Multiplier of the hash of distances (2^64 divided by the golden ratio), which spreads small differences over the high bits.
const spread = 0x9e3779b97f4a7c15

// scan makes the runs of a part of at least two pieces.
func (s *runBuilder) scan(first int, p *part) {
	addrs, seen := s.addrs[:p.end], &s.lists.seen
	for list := first; list < p.end; { // where the irregular list begins that has no run yet
		if list+1 == p.end {
			s.single(list, p.length, p.at(list-first))
			return
		}
		last := addrs[list+1]
		distance, alike := last-addrs[list], 0 // alike: how often the distance was the same in a row
		mixed := distance * spread
		k := list + 2
		for ; k < len(addrs); k++ {
			d := addrs[k] - last
			last = addrs[k]
			if d == distance {
				if alike++; alike < minStrided-2 {
					continue
				}
				if end := s.stride(first, list, k+1, p); end > 0 {
					list = end
					break
				}
				continue
			}
			distance, alike = d, 0
			m := d * spread
			h := m + bits.RotateLeft64(mixed, 32)
			mixed = m
			slot := &seen[h>>(64-seenBits)]
			before := *slot
			*slot = h<<32 | uint64(uint32(k))
			if before^h<<32 > 1<<32-1 {
				continue
			}
			if end := s.repeat(first, list, k, int(uint32(before)), p); end > 0 {
				*slot = before // these addresses are in no list
				list = end
				break
			}
		}
		if k == len(addrs) {
			s.list(first, list, p.end, p)
			return
		}
	}
}

// stride makes a run of the pieces that end before end and stand at a constant stride, minStrided of them, and of those that go on so, after the list before
// them. It returns where they end, or 0 when their addresses, as integers, are not at one stride.
func (s *runBuilder) stride(first, list, end int, p *part) int {
	begin := end - minStrided
	from := s.addrs[begin]
	distance := s.addrs[begin+1] - from
	further := p.end // how often the distance can be added to from without passing an end of memory
	switch {
	case int64(distance) > 0:
		further = int(min(^from/distance, uint64(p.end)))
	case distance != 0:
		further = int(min(from/-distance, uint64(p.end)))
	}
	if further < minStrided-1 {
		return 0
	}
	stop := min(p.end, begin+1+further)
	next := s.addrs[end-1] + distance
	for end < stop && s.addrs[end] == next {
		end++
		next += distance
	}
	s.list(first, list, begin, p)
	s.strided(begin, end, p, begin-first)
	return end
}

// strided makes the run of pieces at a constant stride, of which the first is number n of its part. If they continue each other they are one long piece.
func (s *runBuilder) strided(begin, end int, p *part, n int) {
	pieces := uint32(end - begin)
	if pieces == 1 {
		s.single(begin, p.length, p.at(n))
		return
	}
	from, last := s.addrs[begin], s.addrs[end-1]
	stride := s.addrs[begin+1] - from
	if stride == uint64(p.length) && p.step == p.length {
		s.single(begin, pieces*p.length, p.at(n))
		return
	}
	r := s.run()
	r.Offset, r.Addr, r.Stride = p.at(n), from, int64(stride)
	r.Piece, r.Pieces, r.Step, r.Table = p.length, pieces, p.step, ports.NoTable
	if !s.keep && s.mutated("gather at a wrong step") {
		r.Step -= min(r.Step, 8)
	}
	if s.keep {
		s.spans = append(s.spans, span{low: min(from, last), high: max(from, last), shared: stride, at: begin, pieces: end - begin, length: uint64(p.length), strided: true})
	}
}

// single makes the run of one piece, whose address has that number.
func (s *runBuilder) single(at int, length uint32, offset uint64) {
	r := s.run()
	// By field: a literal is built elsewhere and copied in wider words, which stalls.
	r.Offset, r.Addr, r.Stride = offset, s.addrs[at], 0
	r.Piece, r.Pieces, r.Step, r.Table = length, 1, 0, ports.NoTable
	if s.keep {
		s.spans = append(s.spans, span{low: r.Addr, high: r.Addr, at: at, pieces: 1, length: uint64(length), strided: true})
	}
}

// list makes the runs of an irregular list: one with a table, unless strided ones are shorter or the table's entries would not fit 32 bits.
func (s *runBuilder) list(first, begin, end int, p *part) {
	if end-begin <= fewPieces && s.shortList(first, begin, end, p) {
		return
	}
	for begin < end {
		var l list
		l, begin = s.measure(begin, end)
		if l.end == l.begin+1 {
			s.single(l.begin, p.length, p.at(l.begin-first))
			continue
		}
		s.cover(&l, l.begin, l.end)
		s.indexed(&l, l.begin, l.begin, l.end, p, first)
		l.length = p.length
		s.lists.all = append(s.lists.all, l)
	}
}

// shortList makes strided runs of a short list if they take no more bytes than a table.
func (s *runBuilder) shortList(first, begin, end int, p *part) bool {
	const most = (runBytes + indexBytes*fewPieces) / runBytes
	var ends [most]int
	n := 0
	for at := begin; at < end; n++ {
		if (n+1)*runBytes > runBytes+indexBytes*(end-begin) {
			return false
		}
		at = s.sameStride(at, end)
		ends[n] = at
	}
	for _, stop := range ends[:n] {
		s.strided(begin, stop, p, begin-first)
		begin = stop
	}
	return true
}

// sameStride is where the pieces from begin on, before end, stop to stand at one stride.
func (s *runBuilder) sameStride(begin, end int) int {
	at := begin + 1
	for ; at < end; at++ {
		d := s.addrs[at] - s.addrs[at-1]
		up := s.addrs[at] >= s.addrs[at-1]
		if up != (int64(d) >= 0) || at > begin+1 && d != s.addrs[begin+1]-s.addrs[begin] {
			break
		}
	}
	return at
}

// indexed makes the run of pieces begin to end, whose addresses differ from those of a list from its number from on by one distance. The list's table holds them.
func (s *runBuilder) indexed(l *list, from, begin, end int, p *part, first int) {
	r := s.run()
	moved := s.addrs[begin] - s.addrs[from]
	r.Offset, r.Addr, r.Stride = p.at(begin-first), l.low+moved, int64(l.unit)
	r.Piece, r.Pieces, r.Step, r.Table = p.length, uint32(end-begin), p.step, l.table+uint32(from-l.from)
	if s.keep {
		low, high := l.low+moved, l.high+moved
		if end-begin < l.end-l.begin {
			low, high, _ = extent(s.addrs[begin:end])
		}
		s.spans = append(s.spans, span{low: low, high: high, shared: l.unit, at: begin, pieces: end - begin, length: uint64(p.length), implied: p.length <= l.length})
	}
}

// run is a new run at the end, its content undefined.
func (s *runBuilder) run() *ports.Run {
	n := len(s.runs)
	if n < cap(s.runs) {
		s.runs = s.runs[:n+1]
	} else {
		s.runs = append(s.runs, ports.Run{})
	}
	return &s.runs[n]
}
