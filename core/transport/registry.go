package transport

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/ports"
)

// Registry knows the memory that is registered with this agent, the only memory that a peer's DATA may reach, and the receive windows over it (window.go). It is changed by any goroutine and
// read by the reactor.
type Registry struct {
	mu      sync.Mutex
	ranges  [][]ports.Descriptor // as registered
	merged  atomic.Pointer[[]span]
	version atomic.Uint64

	direct  []span             // ever registered for direct use
	windows map[uint64]*Window // not quiesced, by token
	sheets  []*sheet
	folded  []span         // was once in a window of a shape that is no longer in sheets
	copies  []*regionChunk // scatters without a window that run

	mutation mutation
}

// Version changes whenever what is registered, or which windows are open, does.
func (g *Registry) Version() uint64 { return g.version.Load() }

// span is a range of memory of one place.
type span struct {
	start, last uint64 // first and last byte
	place       ports.Place
}

// everDirect reports whether memory was ever registered for direct use: any peer may have a key to it, and write it without a trace in this agent's books.
func (g *Registry) everDirect() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.direct) > 0 && !g.mutated("forget direct writes when a peer is fenced")
}

// Add makes ranges known. The slice must not change until Remove.
func (g *Registry) Add(ranges []ports.Descriptor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ranges = append(g.ranges, ranges)
	g.merge()
}

// AddDirect is Add for memory that peers' engines may reach by themselves. It refuses ranges in a receive window that is not quiesced.
func (g *Registry) AddDirect(ranges []ports.Descriptor) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, d := range ranges {
		for _, w := range g.windows { // which one is found does not matter
			if w.hits(d) && !g.mutated("register memory of a window for direct use") {
				return fmt.Errorf("range %d: %w: a receive window over it is not quiesced", i, ErrOverlap)
			}
		}
	}
	g.direct = mergeSpans(appendSpans(g.direct, ranges))
	g.ranges = append(g.ranges, ranges)
	g.merge()
	return nil
}

// Remove takes back what Add or AddDirect was given, and closes the receive windows over it.
func (g *Registry) Remove(ranges []ports.Descriptor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, r := range g.ranges {
		if len(r) == len(ranges) && (len(r) == 0 || &r[0] == &ranges[0]) {
			g.ranges = slices.Delete(g.ranges, i, i+1)
			break
		}
	}
	g.merge()
	for _, w := range g.windows { // in whatever order
		if slices.ContainsFunc(ranges, w.hits) {
			w.shut()
		}
	}
}

func (g *Registry) merge() {
	var all []span
	for _, ranges := range g.ranges {
		all = appendSpans(all, ranges)
	}
	all = mergeSpans(all)
	g.merged.Store(&all)
	g.version.Add(1)
}

func appendSpans(all []span, ranges []ports.Descriptor) []span {
	for _, d := range ranges {
		if d.Bytes > 0 {
			all = append(all, span{start: d.Addr, last: d.Addr + d.Bytes - 1, place: d.Place})
		}
	}
	return all
}

// mergeSpans sorts spans and joins those that meet or adjoin, in place.
func mergeSpans(all []span) []span {
	slices.SortFunc(all, compareSpans)
	merged := all[:0]
	for _, s := range all {
		if n := len(merged); n > 0 && merged[n-1].place == s.place && (merged[n-1].last >= s.start || merged[n-1].last+1 == s.start) {
			merged[n-1].last = max(merged[n-1].last, s.last)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

func compareSpans(a, b span) int {
	return cmp.Or(a.place.Compare(b.place), cmp.Compare(a.start, b.start))
}

// covers reports whether the bytes first to last (both included) are registered.
func covers(spans []span, first, last uint64, place ports.Place) bool {
	i, found := slices.BinarySearchFunc(spans, span{start: first, place: place}, compareSpans)
	if !found {
		i--
	}
	return i >= 0 && spans[i].place == place && spans[i].start <= first && last <= spans[i].last
}

// CheckDestinations reports the first run with a piece outside registered memory of the place. Runs are checked whole; only one whose hull is not inside one range is
// checked piece by piece.
func (g *Registry) CheckDestinations(runs ports.Runs, place ports.Place) error {
	var spans []span
	if p := g.merged.Load(); p != nil {
		spans = *p
	}
	if i, k, found := findPiece(runs, func(first, last uint64) bool { return !covers(spans, first, last, place) }); found {
		return fmt.Errorf("run %d, piece %d: its destination is not in memory registered here", i, k)
	}
	return nil
}

// maxPieceChecks bounds how many pieces of one DATA are looked at one by one: more than a planner makes in a chunk (plan.MaxChunkPieces), and some milliseconds at the most for each shape of windows. Without a bound a message of a
// hundred bytes, one run of millions of pieces, would cost seconds.
const maxPieceChecks = 1 << 17

// findPiece finds the first piece that is bad, or has no 64-bit address. A run whose hull, lowest to highest byte, is not bad has none that is; else it is looked at piece by piece.
//
// One message's pieces beyond maxPieceChecks count as found.
func findPiece(runs ports.Runs, bad func(first, last uint64) bool) (run int, piece uint32, found bool) {
	var table extent
	left := maxPieceChecks
	for i, r := range runs.Runs {
		low, high := table.of(r, runs.Index)
		first, ok1 := position(r, low, 0)
		last, ok2 := position(r, high, r.Piece-1)
		if ok1 && ok2 && !bad(first, last) {
			continue
		}
		for k := range r.Pieces {
			if left--; left < 0 {
				return i, k, true
			}
			m := multiple(r, runs.Index, k)
			first, ok1 := position(r, m, 0)
			last, ok2 := position(r, m, r.Piece-1)
			if !ok1 || !ok2 || bad(first, last) {
				return i, k, true
			}
		}
	}
	return 0, 0, false
}

// anyIn finds the first piece that has bytes in the spans, which are merged.
func anyIn(runs ports.Runs, place ports.Place, spans []span) (run int, piece uint32, found bool) {
	if len(spans) == 0 {
		return 0, 0, false
	}
	return findPiece(runs, func(first, last uint64) bool {
		i := sort.Search(len(spans), func(i int) bool { return compareSpans(spans[i], span{start: last, place: place}) > 0 })
		return i > 0 && spans[i-1].place == place && spans[i-1].last >= first
	})
}

// strideOf is the distance of a run's places, whatever its direction.
func strideOf(r ports.Run) uint64 {
	if r.Stride < 0 {
		return -uint64(r.Stride)
	}
	return uint64(r.Stride)
}

// multiple is how many strides piece k of a run stands from the run's address.
func multiple(r ports.Run, index []uint32, k uint32) uint32 {
	if r.Table == ports.NoTable {
		return k
	}
	return index[r.Table+k]
}

// position is addr + m*stride + plus, exactly; ok is false when that is no 64-bit address.
func position(r ports.Run, m, plus uint32) (uint64, bool) {
	over, by := bits.Mul64(uint64(m), strideOf(r))
	if over != 0 {
		return 0, false
	}
	addr, carry := r.Addr, uint64(0)
	if r.Stride < 0 {
		addr, carry = bits.Sub64(addr, by, 0)
	} else {
		addr, carry = bits.Add64(addr, by, 0)
	}
	if carry != 0 {
		return 0, false
	}
	addr, carry = bits.Add64(addr, uint64(plus), 0)
	return addr, carry == 0
}

// extent finds the smallest and largest index of a run's part of the table, once for runs in a row that share it.
type extent struct {
	table, pieces uint32
	low, high     uint32
	known         bool
}

// of returns the multiples of the stride at which the run's lowest and highest piece stand.
func (e *extent) of(r ports.Run, index []uint32) (low, high uint32) {
	if r.Table == ports.NoTable {
		low, high = 0, r.Pieces-1
	} else {
		if !e.known || e.table != r.Table || e.pieces != r.Pieces {
			low, high := extremes(index[r.Table : uint64(r.Table)+uint64(r.Pieces)])
			*e = extent{table: r.Table, pieces: r.Pieces, low: low, high: high, known: true}
		}
		low, high = e.low, e.high
	}
	if r.Stride < 0 {
		return high, low
	}
	return low, high
}

// extremes is the smallest and the largest of a list that is not empty. A hot path: the table of a chunk has thousands of entries. Two by two, so that they do not wait for each other.
func extremes(list []uint32) (low, high uint32) {
	low, high = list[0], list[0]
	low2, high2 := low, high
	for ; len(list) >= 4; list = list[4:] {
		v := (*[4]uint32)(list)
		low, high = min(low, v[0], v[1]), max(high, v[0], v[1])
		low2, high2 = min(low2, v[2], v[3]), max(high2, v[2], v[3])
	}
	for _, v := range list {
		low, high = min(low, v), max(high, v)
	}
	return min(low, low2), max(high, high2)
}

// checkPlaces reports the first run that leaves the chunk's bytes in the region, or pieces that add up to more than the chunk.
func checkPlaces(runs ports.Runs, chunkBytes uint64) error {
	if len(runs.Runs) > plan.MaxChunkPieces {
		return fmt.Errorf("%d runs, want at most the %d that a DATA message of 4 MiB holds", len(runs.Runs), plan.MaxChunkPieces)
	}
	var sum uint64
	for i, r := range runs.Runs {
		reach := uint64(r.Pieces-1)*uint64(r.Step) + uint64(r.Piece)
		if end := r.Offset + reach; end < r.Offset || end > chunkBytes {
			return fmt.Errorf("run %d leaves the chunk's %d bytes", i, chunkBytes)
		}
		sum += uint64(r.Piece) * uint64(r.Pieces)
		if sum > chunkBytes {
			return fmt.Errorf("the pieces add up to more than the chunk's %d bytes", chunkBytes)
		}
	}
	return nil
}

// touches reports whether a piece of the runs, in memory of the place, meets one of the ranges.
func touches(runs ports.Runs, place ports.Place, ranges []ports.Descriptor) bool {
	_, _, found := findPiece(runs, func(first, last uint64) bool { return meets(first, last, place, ranges) })
	return found
}

// meets reports whether the bytes first to last (both included) of the place meet one of the ranges.
func meets(first, last uint64, place ports.Place, ranges []ports.Descriptor) bool {
	for _, d := range ranges {
		if d.Bytes > 0 && d.Place == place && first <= d.Addr+d.Bytes-1 && d.Addr <= last {
			return true
		}
	}
	return false
}

// meetsAny reports whether one of the descriptors meets one of the ranges.
func meetsAny(list, ranges []ports.Descriptor) bool {
	for _, d := range list {
		if d.Bytes > 0 && meets(d.Addr, d.Addr+d.Bytes-1, d.Place, ranges) {
			return true
		}
	}
	return false
}
