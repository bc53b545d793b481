package simulation

import (
	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/ports"
)

// window is a receive window as its application and the oracle know it.
type window struct {
	number   int
	life     *life
	h        *agent.Window
	pages    []int    // of life.windowed
	holder   *request // owns those pages that no request has
	shut     bool     // its application called Close
	shutAt   ports.Instant
	over     bool // its application was told that it is quiesced, and reused the pages
	scatters int  // into it, without evidence
}

// openWindow opens a receive window over some idle pages, some of which were mostly in other windows before.
func (w *World) openWindow(l *life, o Op) {
	if l.windowed == nil || l.windowed.leaving || l.closeBy != ports.Never || w.windows[o.Window] != nil {
		return
	}
	p, d := l.windowed, newDraw(o.Layout, "window")
	x := &window{number: o.Window, life: l, holder: &request{w: w}}
	if x.pages = p.take(o.Pages, d, x.holder); x.pages == nil {
		return
	}
	w.trespass(l, x)
	var ready ports.Event
	if o.Delay > 0 {
		ready = &readyEvent{w: w.sim, at: w.sim.Now().Add(o.Delay)}
	}
	var err error
	x.h, err = l.agent.OpenReceive(windowRuns(p, x.pages, d), ready)
	if err != nil {
		w.oracle.violate("window-refused", "%s: OpenReceive over idle pages: %v", l.label(), err)
		return
	}
	for _, page := range x.pages {
		p.ever[page] = true
	}
	w.windows[o.Window] = x
	l.windows = append(l.windows, x)
	w.tally.Windows++
	l.join(o.Session, nil, x)
}

// trespass tries what must be refused: a window over memory that was registered for direct use, and over a window that is not quiesced, whose memory can't be registered for direct use either.
func (w *World) trespass(l *life, x *window) {
	over := func(addr uint64) error {
		_, err := l.agent.OpenReceive(ports.Runs{Runs: []ports.Run{{Addr: addr, Piece: uint32(w.setup.pageBytes), Pieces: 1, Table: ports.NoTable}}}, nil)
		return err
	}
	if err := over(l.dst.addr(0)); err == nil {
		w.oracle.violate("window-taken", "%s opens a window over memory that was registered for direct use", l.label())
	}
	for _, y := range l.windows {
		if y == x || y.over {
			continue
		}
		page := y.life.windowed.addr(y.pages[0])
		if err := over(page); err == nil {
			w.oracle.violate("window-taken", "%s opens a window over window %d, which is not quiesced", l.label(), y.number)
		}
		if _, err := l.agent.Register([]ports.Descriptor{{Addr: page, Bytes: w.setup.pageBytes}}, agent.Direct); err == nil {
			w.oracle.violate("window-taken", "%s registers memory of window %d, which is not quiesced, for direct use", l.label(), y.number)
		}
	}
}

// windowRuns are the pages, all in one run or each in one.
func windowRuns(p *pool, pages []int, d draw) ports.Runs {
	var runs ports.Runs
	if d.percent(50) {
		for _, page := range pages {
			runs.Runs = append(runs.Runs, ports.Run{Addr: p.addr(page), Piece: uint32(p.page), Pieces: 1, Table: ports.NoTable})
		}
		return runs
	}
	for _, page := range pages {
		runs.Index = append(runs.Index, uint32(page))
	}
	runs.Runs = []ports.Run{{Addr: p.base, Stride: int64(p.page), Piece: uint32(p.page), Pieces: uint32(len(pages))}}
	return runs
}

// close is what the application does when it wants its pages back, whatever its peers do.
func (x *window) close() {
	if !x.shut {
		x.shut, x.shutAt = true, x.life.node.w.sim.Now()
		x.h.Close()
		x.observe()
	}
}

// observe reuses the pages of a window that is quiesced at once.
func (x *window) observe() {
	if x.over || !x.h.IsQuiesced() {
		return
	}
	w := x.life.node.w
	if !x.shut || x.scatters > 0 {
		w.oracle.violate("false-window", "window %d of %s is quiesced while %d scatters into it have no evidence (closed: %t)", x.number, x.life.label(), x.scatters, x.shut)
	}
	x.over = true
	w.oracle.evidence["window quiesced"]++
	x.life.windowed.giveBack(x.pages, w)
}

// assign gives n pages of the window that no request has to one; nil: there are not enough.
func (x *window) assign(n int, d draw, r *request) []int {
	p := x.life.windowed
	var free []int
	for _, page := range x.pages {
		if p.owner[page] == x.holder {
			free = append(free, page)
		}
	}
	if x.shut || len(free) < n {
		return nil
	}
	from := d.index(len(free) - n + 1)
	free = free[from : from+n]
	for _, page := range free {
		p.owner[page] = r
	}
	return free
}

// takeBack gives pages of a request that is over back to the window, for others with its token.
func (x *window) takeBack(r *request) {
	if x.over {
		return
	}
	p := x.life.windowed
	for _, page := range r.dstPages {
		p.owner[page] = x.holder
		fill(p.view(r.w, page), ^uint64(0), uint64(page))
	}
}

// strayPages are pages that were in a window once and are not in x, the open window whose token a request misuses; nil: there are not enough.
func strayPages(p *pool, n int, x *window, d draw) []int {
	in := map[int]bool{}
	if x != nil && !x.shut {
		for _, page := range x.pages {
			in[page] = true
		}
	}
	var pages []int
	for i, at := 0, d.index(len(p.owner)); i < len(p.owner) && len(pages) < n; i, at = i+1, (at+1)%len(p.owner) {
		if p.ever[at] && !in[at] {
			pages = append(pages, at)
		}
	}
	if len(pages) < n {
		return nil
	}
	return pages
}

// windowScatter holds a scatter that is launched against the window of its request.
func (o *oracle) windowScatter(c *copying) {
	r := c.req
	switch {
	case r == nil:
	case r.path == "stray":
		o.violate("outside-window", "%s scatters %s into pages of a receive window, which its token does not open", c.life.label(), r)
	case r.window == nil:
	case r.window.shut:
		o.violate("outside-window", "%s scatters %s into window %d, which is closed", c.life.label(), r, r.window.number)
	default:
		c.window = r.window
		c.window.scatters++
	}
}
