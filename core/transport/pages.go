package transport

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/kvbounce/kvbounce/ports"
)

// pages is a set of page numbers: a bitmap from its first word on. What it costs is per word of 64 pages.
type pages struct {
	first uint64 // which word words[0] is
	words []uint64
}

// room makes the bitmap reach from page low to page high.
func (s *pages) room(low, high uint64) {
	low, high = low/64, high/64
	if n := uint64(len(s.words)); n > 0 {
		if low >= s.first && high < s.first+n {
			return
		}
		low, high = min(low, s.first), max(high, s.first+n-1)
	} else {
		s.first = low
	}
	words := make([]uint64, high-low+1)
	copy(words[s.first-low:], s.words)
	s.first, s.words = low, words
}

// put adds a page that there is room for.
func (s *pages) put(n uint64) { s.words[n/64-s.first] |= 1 << (n % 64) }

func (s *pages) has(n uint64) bool {
	w := n/64 - s.first // far beyond the end for a page before the first word
	return w < uint64(len(s.words)) && s.words[w]>>(n%64)&1 != 0
}

// seek is the first page from n on that is in the set, or that is not; the largest number if there is none.
func (s *pages) seek(n uint64, in bool) uint64 {
	for {
		w := n/64 - s.first
		switch {
		case w < uint64(len(s.words)):
			word := s.words[w]
			if !in {
				word = ^word
			}
			if word >>= n % 64; word != 0 {
				return n + uint64(bits.TrailingZeros64(word))
			}
			n = (n/64 + 1) * 64
		case !in:
			return n
		case len(s.words) > 0 && n/64 < s.first:
			n = s.first * 64
		default:
			return math.MaxUint64
		}
	}
}

// common is the words that both bitmaps have.
func (s *pages) common(o *pages) (mine, others []uint64) {
	low, high := max(s.first, o.first), min(s.first+uint64(len(s.words)), o.first+uint64(len(o.words)))
	if low >= high {
		return nil, nil
	}
	return s.words[low-s.first : high-s.first], o.words[low-o.first : high-o.first]
}

func (s *pages) meets(o *pages) bool {
	mine, others := s.common(o)
	for i, w := range others {
		if mine[i]&w != 0 {
			return true
		}
	}
	return false
}

// add adds all pages of another set.
func (s *pages) add(o *pages) {
	s.room(o.first*64, (o.first+uint64(len(o.words)))*64-1)
	mine, others := s.common(o)
	for i, w := range others {
		mine[i] |= w
	}
}

func (s *pages) remove(o *pages) {
	mine, others := s.common(o)
	for i, w := range others {
		mine[i] &^= w
	}
}

// plane is where pages of one kind lie: page n is the piece bytes at addr + n*stride, the stride being the sheet's.
type plane struct{ addr, piece uint64 }

// sheet is planes of which the same pages are used together, as K and V of every layer are: one bitmap then stands for all of them.
type sheet struct {
	place     ports.Place
	stride    uint64
	planes    []plane  // by addr, the first below one stride
	ends      []uint64 // the last byte of any page of planes[:i+1]
	low, high uint64   // lowest and highest page that was ever in a window
	ever      pages    // that were ever in a window
	live      pages    // that are in a window which is not quiesced
	windows   int      // parts of such windows
}

// maxSpread bounds how far apart the pages of one bitmap lie, so that windows at the two ends of the address space do not make one of gigabytes.
const maxSpread = 1 << 26

// fits reports whether a group has the sheet's planes, and other pages of it are other memory: then comparing pages is comparing memory.
func (s *sheet) fits(g *group) bool {
	low, high := min(s.low, g.low), max(s.high, g.high)
	return s.stride == g.key.stride && slices.Equal(s.planes, g.planes) && high-low < maxSpread && apart(s.planes, s.stride, low, high)
}

// apart reports whether no page from low to high of one plane meets one of another: the planes lie apart as wholes, or they interleave without meeting.
func apart(planes []plane, stride, low, high uint64) bool {
	for from, to := 0, 0; from < len(planes); from = to {
		end := planes[from].addr
		for to = from; to < len(planes) && (to == from || planes[to].addr+low*stride <= end); to++ {
			end = max(end, planes[to].addr+high*stride+planes[to].piece-1)
		}
		if to-from > 1 && !interleave(planes[from:to], stride) {
			return false
		}
	}
	return true
}

// interleave reports whether no page of one plane meets any page of another.
func interleave(planes []plane, stride uint64) bool {
	list := slices.Clone(planes)
	for i := range list {
		list[i].addr %= stride
	}
	slices.SortFunc(list, func(a, b plane) int { return cmp.Compare(a.addr, b.addr) })
	next := list[0].addr + stride
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].addr+list[i].piece > next {
			return false
		}
		next = list[i].addr
	}
	return true
}

// admit takes a part of a new window in.
func (s *sheet) admit(g *group) {
	if len(s.ever.words) == 0 {
		s.low, s.high = g.low, g.high
	}
	s.low, s.high = min(s.low, g.low), max(s.high, g.high)
	s.ever.add(&g.set)
	s.live.add(&g.set)
	s.windows++
	s.ends = s.ends[:0]
	end := uint64(0)
	for _, p := range s.planes {
		end = max(end, p.addr+s.high*s.stride+p.piece-1)
		s.ends = append(s.ends, end)
	}
}

// near asks f about each plane whose pages, the lowest to the highest, may meet the bytes first to last, until it says yes. Planes that lie apart are found by halving, interleaved ones are looked at in turn.
func (s *sheet) near(first, last uint64, f func(p plane) bool) bool {
	i := sort.Search(len(s.planes), func(i int) bool { return s.planes[i].addr+s.low*s.stride > last })
	for i--; i >= 0 && s.ends[i] >= first; i-- {
		if f(s.planes[i]) {
			return true
		}
	}
	return false
}

// hits reports whether the bytes first to last meet a page of the set.
func (s *sheet) hits(first, last uint64, set *pages) bool {
	return s.near(first, last, func(p plane) bool { return s.meets(p, first, last, set) })
}

// meets is hits for one plane.
func (s *sheet) meets(p plane, first, last uint64, set *pages) bool {
	if last < p.addr {
		return false
	}
	n := uint64(0)
	if first > p.addr {
		n = (first - p.addr) / s.stride
		if (first-p.addr)-n*s.stride >= p.piece {
			n++
		}
	}
	return set.seek(n, true) <= (last-p.addr)/s.stride
}

// hitsAny reports whether a piece of the runs, which have 64-bit addresses, meets a page of the set. Pieces beyond the first most that must be looked at count as such.
func (s *sheet) hitsAny(runs ports.Runs, set *pages, most int) bool {
	var table extent
	for _, r := range runs.Runs {
		low, high := table.of(r, runs.Index)
		first, _ := position(r, low, 0)
		last, _ := position(r, high, r.Piece-1)
		if s.near(first, last, func(p plane) bool {
			for k := range r.Pieces {
				most--
				at, _ := position(r, multiple(r, runs.Index, k), 0)
				if most < 0 || s.meets(p, at, at+uint64(r.Piece)-1, set) {
					return true
				}
			}
			return false
		}) {
			return true
		}
	}
	return false
}

// reach is the last byte up to which pages of the set cover memory from at on; ok is false when none covers at.
func (s *sheet) reach(at uint64, set *pages) (end uint64, ok bool) {
	ok = s.near(at, at, func(p plane) bool {
		if at < p.addr {
			return false
		}
		n := (at - p.addr) / s.stride
		if (at-p.addr)%s.stride >= p.piece || !set.has(n) {
			return false
		}
		end = p.addr + n*s.stride + p.piece - 1
		if p.piece == s.stride {
			end = p.addr + set.seek(n, false)*s.stride - 1
		}
		return true
	})
	return end, ok
}

// group is runs of a window that share pages: the planes of a sheet, and which pages.
type group struct {
	key    groupKey
	runs   []ports.Run
	planes []plane
	set    pages

	low, high uint64 // of the pages
}

type groupKey struct {
	stride        uint64
	table, pieces uint32
	back          bool // strides go down
	low, high     uint32
}

// distance is how many pages above the run's lowest one the multiple m of its stride lies.
func (k groupKey) distance(m uint32) uint64 {
	if k.back {
		return uint64(k.low - m)
	}
	return uint64(m - k.low)
}

// groups sorts a window's runs by the pages that they use. Page numbers count from address 0, less whole strides below the first plane, so that the same memory gives the same planes whichever page the caller counts from.
func groups(runs ports.Runs) []group {
	var list []group
	var table extent
	known := map[groupKey]int{}
	for _, r := range runs.Runs {
		low, high := table.of(r, runs.Index)
		addr, _ := position(r, low, 0)
		key := groupKey{stride: strideOf(r), table: r.Table, pieces: r.Pieces, back: r.Stride < 0, low: low, high: high}
		if low == high || r.Stride == 0 {
			key = groupKey{stride: uint64(r.Piece), table: ports.NoTable, pieces: 1}
		}
		i, ok := known[key]
		if !ok {
			i = len(list)
			known[key] = i
			list = append(list, group{key: key})
		}
		list[i].runs = append(list[i].runs, r)
		list[i].planes = append(list[i].planes, plane{addr: addr, piece: uint64(r.Piece)})
	}
	for i := range list {
		list[i].fill(runs.Index)
	}
	return list
}

func (g *group) fill(index []uint32) {
	slices.SortFunc(g.planes, func(a, b plane) int { return cmp.Compare(a.addr, b.addr) })
	k := g.key
	base := g.planes[0].addr / k.stride
	g.low, g.high = base, base
	for i := range g.planes {
		g.planes[i].addr -= base * k.stride
	}
	if k.pieces > 1 {
		g.high += k.distance(k.high)
	}
	g.set.room(g.low, g.high)
	if k.pieces == 1 {
		g.set.put(base)
		return
	}
	for p := range k.pieces {
		g.set.put(base + k.distance(multiple(g.runs[0], index, p)))
	}
}
