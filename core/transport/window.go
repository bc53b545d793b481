package transport

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// Errors of OpenWindow and AddDirect, for errors.Is.
var (
	// ErrOverlap: a range is in a receive window that is not quiesced, or a copy into it runs.
	ErrOverlap = errors.New("the range is still in use")
	// ErrRegisteredDirect: a range was registered for direct use once. Peers may hold a key to it for ever, so a window over it would prove nothing.
	ErrRegisteredDirect = errors.New("the range was registered for direct use")
)

// maxSheets bounds the shapes of windows that are told apart page by page after the last window of the shape. Of older ones whole planes count as windowed, the pages between included.
const maxSheets = 64

// Window is a receive window: memory that only requests with its token may write, while it is open (protocol.md, 7, Receive windows). Its methods may be called from any goroutine.
type Window struct {
	registry *Registry
	token    uint64
	bytes    uint64
	parts    []part
	ready    ports.Event // the reactor's
	closed   bool        // these two are guarded by the registry's mutex
	running  int         // scatters into it
	quiesced latch
}

// part is the pages of a window that lie in one sheet.
type part struct {
	sheet *sheet
	set   pages
}

// Token is what the application hands to the sender's, with the addresses. Whoever has it may write the window while it is open.
func (w *Window) Token() uint64 { return w.token }

// Bytes are the window's bytes.
func (w *Window) Bytes() uint64 { return w.bytes }

// Close stops admission at once: no copy into the window is let in any more. It may be called any number of times. The memory may be reused when the window is quiesced.
func (w *Window) Close() {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	w.shut()
}

// IsClosed reports whether the window was closed, by Close or because its memory was deregistered.
func (w *Window) IsClosed() bool {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	return w.closed
}

// Quiesced is closed when the window is closed and no copy into it runs: its memory may be reused. No message, no peer and no timeout takes part in that.
func (w *Window) Quiesced() <-chan struct{} { return w.quiesced.done() }

// IsQuiesced reports whether Quiesced is closed, without waiting.
func (w *Window) IsQuiesced() bool { return w.quiesced.isSet() }

// WaitQuiesced waits for Quiesced. nil says that the memory may be reused.
func (w *Window) WaitQuiesced(ctx context.Context) error { return wait(ctx, &w.quiesced) }

// shut is Close under the registry's mutex.
func (w *Window) shut() {
	if !w.closed {
		w.closed = true
		w.registry.version.Add(1)
		w.settle()
	}
}

// settle ends a closed window that no copy runs in.
func (w *Window) settle() {
	if !w.closed || w.running > 0 && !w.registry.mutated("quiesce a window while scatters run in it") {
		return
	}
	delete(w.registry.windows, w.token)
	for i := range w.parts {
		p := &w.parts[i]
		p.sheet.live.remove(&p.set)
		p.sheet.windows--
	}
	w.quiesced.set()
}

// OpenWindow opens a receive window over the pieces of the runs, in memory of the place. Offset and Step of the runs mean nothing here. The memory must be registered, never for direct use, and
// idle when ready (nil: now) has fired; requests with the token wait for that. Any goroutine.
func (g *Registry) OpenWindow(runs ports.Runs, place ports.Place, ready ports.Event, random ports.Randomness) (*Window, error) {
	bytes, err := checkWindow(runs)
	if err != nil {
		return nil, err
	}
	list := groups(runs)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.CheckDestinations(runs, place); err != nil {
		return nil, err
	}
	if i, k, found := anyIn(runs, place, g.direct); found && !g.mutated("open a window over memory registered for direct use") {
		return nil, fmt.Errorf("run %d, piece %d: %w", i, k, ErrRegisteredDirect)
	}
	for i := range list {
		if g.taken(&list[i], runs.Index) && !g.mutated("open a window over another") {
			return nil, fmt.Errorf("receive window: %w: a window over it is not quiesced, or a copy into it runs", ErrOverlap)
		}
	}
	w := &Window{registry: g, bytes: bytes, ready: ready}
	for w.token == 0 || g.windows[w.token] != nil {
		w.token = random.Uint64()
	}
	for _, gr := range list {
		s := g.sheetOf(&gr, place)
		s.admit(&gr)
		w.parts = append(w.parts, part{sheet: s, set: gr.set})
	}
	if g.windows == nil {
		g.windows = map[uint64]*Window{}
	}
	g.windows[w.token] = w
	g.version.Add(1)
	return w, nil
}

// checkWindow holds the runs of a new window against what runs must be, and adds up their bytes.
func checkWindow(runs ports.Runs) (bytes uint64, err error) {
	if len(runs.Runs) == 0 {
		return 0, errors.New("receive window: no runs")
	}
	for i, r := range runs.Runs {
		switch {
		case r.Piece == 0 || r.Pieces == 0:
			return 0, fmt.Errorf("receive window: run %d: piece is %d and pieces is %d, want at least 1", i, r.Piece, r.Pieces)
		case r.Table != ports.NoTable && uint64(r.Table)+uint64(r.Pieces) > uint64(len(runs.Index)):
			return 0, fmt.Errorf("receive window: run %d: table is %d, want %d entries within the %d indices", i, r.Table, r.Pieces, len(runs.Index))
		case r.Pieces > 1 && r.Stride != 0 && strideOf(r) < uint64(r.Piece):
			return 0, fmt.Errorf("receive window: run %d: stride is %d, want at least the piece's %d bytes", i, r.Stride, r.Piece)
		}
		bytes += uint64(r.Piece) * uint64(r.Pieces)
	}
	return bytes, nil
}

// taken reports whether pages of a new window are in one that is not quiesced, or in a copy without a window that runs.
func (g *Registry) taken(gr *group, index []uint32) bool {
	runs := ports.Runs{Runs: gr.runs, Index: index}
	for _, s := range g.sheets {
		switch {
		case s.windows == 0:
		case s.fits(gr):
			if s.live.meets(&gr.set) {
				return true
			}
		case s.hitsAny(runs, &s.live, math.MaxInt):
			return true
		}
	}
	if len(g.copies) == 0 {
		return false
	}
	// A sheet of the group alone asks the copies' runs.
	alone := sheet{stride: gr.key.stride, planes: gr.planes}
	alone.admit(gr)
	return slices.ContainsFunc(g.copies, func(rc *regionChunk) bool { return alone.hitsAny(rc.runs, &alone.live, math.MaxInt) })
}

// sheetOf finds the sheet of a group's shape, or makes it.
func (g *Registry) sheetOf(gr *group, place ports.Place) *sheet {
	for _, s := range g.sheets {
		if s.place == place && s.fits(gr) {
			return s
		}
	}
	if i := slices.IndexFunc(g.sheets, func(s *sheet) bool { return s.windows == 0 }); i >= 0 && len(g.sheets) >= maxSheets {
		s := g.sheets[i]
		for j, p := range s.planes {
			g.folded = append(g.folded, span{start: p.addr + s.low*s.stride, last: s.ends[j], place: s.place})
		}
		g.folded = mergeSpans(g.folded)
		g.sheets = slices.Delete(g.sheets, i, i+1)
	}
	s := &sheet{place: place, stride: gr.key.stride, planes: gr.planes}
	g.sheets = append(g.sheets, s)
	return s
}

// window is the open window of a token, or nil.
func (g *Registry) window(token uint64) *Window {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.openWindow(token)
}

func (g *Registry) openWindow(token uint64) *Window {
	if w := g.windows[token]; w != nil && (!w.closed || g.mutated("take the token of a closed window")) {
		return w
	}
	return nil
}

// Admit says why DATA of a request with this token (0: none) may not write the pieces of the runs; the reason is 0 when it may.
func (g *Registry) Admit(runs ports.Runs, place ports.Place, token uint64) (wire.Reason, string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.admit(runs, place, token)
}

func (g *Registry) admit(runs ports.Runs, place ports.Place, token uint64) (wire.Reason, string) {
	if token != 0 {
		w := g.openWindow(token)
		if w == nil {
			return wire.ReasonReceiveWindow, noWindow
		}
		if i, k, found := w.outside(runs); found && !g.mutated("let a token reach outside its window") {
			return wire.ReasonReceiveWindow, fmt.Sprintf("run %d, piece %d: its destination is not in the request's receive window", i, k)
		}
		return 0, ""
	}
	if err := g.CheckDestinations(runs, place); err != nil {
		return wire.ReasonUnregistered, err.Error()
	}
	_, _, windowed := anyIn(runs, place, g.folded)
	if g.mutated("forget that memory was in a receive window") {
		return 0, ""
	}
	if windowed || slices.ContainsFunc(g.sheets, func(s *sheet) bool { return s.hitsAny(runs, &s.ever, maxPieceChecks) }) {
		return wire.ReasonReceiveWindow, "a destination was in a receive window once, and needs the token of an open one"
	}
	return 0, ""
}

const noWindow = "no open window has this token"

// enter counts a scatter in that is about to be launched, after a last look at whether it may be: windows were closed and memory was deregistered since its DATA was accepted. Reactor.
func (g *Registry) enter(rc *regionChunk, place ports.Place) (wire.Reason, string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if rc.checked != g.version.Load() && !g.mutated("skip the last look before a scatter is launched") {
		if reason, text := g.admit(rc.runs, place, rc.flow.token); reason != 0 {
			return reason, text
		}
	}
	if rc.window = g.openWindow(rc.flow.token); rc.window != nil {
		rc.window.running++
	} else {
		g.copies = append(g.copies, rc)
	}
	return 0, ""
}

// leave counts a scatter out that ended by evidence. Reactor.
func (g *Registry) leave(rc *regionChunk) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w := rc.window; w != nil {
		rc.window = nil
		w.running--
		w.settle()
		return
	}
	i := slices.Index(g.copies, rc)
	g.copies = slices.Delete(g.copies, i, i+1)
}

// outside finds the first piece of the runs that the window does not cover. A run of which one plane covers every page costs what its table costs once, whatever the number of planes. One message's pieces
// beyond maxPieceChecks count as outside.
func (w *Window) outside(runs ports.Runs) (run int, piece uint32, found bool) {
	var table extent
	var seen seenPages
	left := maxPieceChecks
	for i, r := range runs.Runs {
		low, _ := table.of(r, runs.Index)
		if first, ok := position(r, low, 0); ok && w.coversRun(r, runs.Index, low, first, &seen, &left) {
			continue
		}
		for k := range r.Pieces {
			m := multiple(r, runs.Index, k)
			first, ok1 := position(r, m, 0)
			last, ok2 := position(r, m, r.Piece-1)
			if left--; left < 0 || !ok1 || !ok2 || !w.covers(first, last) {
				return i, k, true
			}
		}
	}
	return 0, 0, false
}

// seenPages is the last combination of pages that was found to be in the window.
type seenPages struct {
	part          *part
	page          uint64
	table, pieces uint32
	back          bool
}

// coversRun reports whether the pieces of a run, the lowest at first, are parts of pages of one plane that are all in the window.
func (w *Window) coversRun(r ports.Run, index []uint32, low uint32, first uint64, seen *seenPages, left *int) bool {
	stride := strideOf(r)
	for i := range w.parts {
		p := &w.parts[i]
		if p.sheet.stride != stride {
			continue
		}
		if p.sheet.near(first, first, func(pl plane) bool {
			if first < pl.addr || (first-pl.addr)%stride+uint64(r.Piece) > pl.piece {
				return false
			}
			now := seenPages{part: p, page: (first - pl.addr) / stride, table: r.Table, pieces: r.Pieces, back: r.Stride < 0}
			if now == *seen {
				return true
			}
			key := groupKey{back: now.back, low: low}
			for k := range r.Pieces {
				if *left--; *left < 0 || !p.set.has(now.page+key.distance(multiple(r, index, k))) {
					return false
				}
			}
			*seen = now
			return true
		}) {
			return true
		}
	}
	return false
}

// covers reports whether all bytes from first to last are in the window.
func (w *Window) covers(first, last uint64) bool {
	for at := first; ; {
		end, ok := uint64(0), false
		for i := 0; i < len(w.parts) && !ok; i++ {
			end, ok = w.parts[i].sheet.reach(at, &w.parts[i].set)
		}
		if !ok || end >= last {
			return ok
		}
		at = end + 1
	}
}

// hits reports whether the window has bytes of a range.
func (w *Window) hits(d ports.Descriptor) bool {
	return slices.ContainsFunc(w.parts, func(p part) bool {
		return p.sheet.place == d.Place && d.Bytes > 0 && p.sheet.hits(d.Addr, d.Addr+d.Bytes-1, &p.set)
	})
}
