package simulation

import (
	"encoding/binary"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/ports"
)

// pool is memory of an application, in pages that requests take and give back.
type pool struct {
	life          *life
	base          uint64
	page          uint64
	owner         []*request    // by page; nil: idle
	ever          []bool        // by page: it was in a receive window once
	memory        *agent.Memory // nil: of a hostile peer
	leaving, gone bool          // Deregister was called; it is done
	idle          int
	next          int // where the search for idle pages begins
}

// sparePages is what a pool has beyond what requests can ask for.
const sparePages = 16

// newPool allocates n pages.
func newPool(w *World, l *life, n int) *pool {
	p := &pool{life: l, page: w.setup.pageBytes, owner: make([]*request, n), ever: make([]bool, n), idle: n}
	var err error
	p.base, err = w.sim.Allocate(p.page*uint64(n), ports.Place{})
	must(err)
	w.oracle.addArea(p.base, area{life: l, pool: p})
	return p
}

// register makes the pool known to the agent.
func (p *pool) register(use agent.Use) {
	var err error
	p.memory, err = p.life.agent.Register([]ports.Descriptor{p.whole()}, use)
	must(err)
}

// poolOf is one of the life's pools by its name in operations.
func (l *life) poolOf(name string) *pool {
	return map[string]*pool{"src": l.src, "dst": l.dst, "windows": l.windowed}[name]
}

// leave has the application deregister one of its pools.
func (l *life) leave(name string) {
	p := l.poolOf(name)
	if p == nil || p.leaving || l.closeBy != ports.Never {
		return
	}
	p.leaving = true
	l.node.w.tally.Deregisters++
	if p == l.windowed {
		for _, x := range l.windows {
			if !x.shut {
				x.shut, x.shutAt = true, l.node.w.sim.Now()
			}
		}
	}
	p.memory.DeregisterAsync(func(err error) {
		if err == nil {
			l.node.w.oracle.deregistered(p)
			p.gone = true
		}
	})
	for _, x := range l.windows {
		x.observe()
	}
}

func (p *pool) whole() ports.Descriptor {
	return ports.Descriptor{Addr: p.base, Bytes: p.page * uint64(len(p.owner))}
}

func (p *pool) addr(page int) uint64 { return p.base + uint64(page)*p.page }

// take gives n idle pages to a request: some runs of neighbours, some alone, as a paged cache would. nil: there are not enough.
func (p *pool) take(n int, d draw, r *request) []int {
	if p.idle < n {
		return nil
	}
	pages := make([]int, 0, n)
	at := p.next
	for len(pages) < n {
		if p.owner[at] == nil {
			p.owner[at] = r
			pages = append(pages, at)
		}
		at = (at + 1) % len(p.owner)
		if d.percent(25) {
			at = (at + d.index(8)) % len(p.owner)
		}
	}
	p.next = at
	p.idle -= n
	if d.percent(50) {
		for i := len(pages) - 1; i > 0; i-- {
			j := d.index(i + 1)
			pages[i], pages[j] = pages[j], pages[i]
		}
	}
	return pages
}

// giveBack makes pages idle, and writes over them as their next owner would.
func (p *pool) giveBack(pages []int, w *World) {
	for _, page := range pages {
		p.owner[page] = nil
		fill(p.view(w, page), ^uint64(0), uint64(page))
	}
	p.idle += len(pages)
}

func (p *pool) view(w *World, page int) []byte {
	b, err := w.sim.View(p.addr(page), p.page)
	must(err)
	return b
}

// fill writes a pattern that no other key and page have.
func fill(b []byte, key, page uint64) {
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], word(key, page, uint64(i)))
	}
}

// filled reports the first byte that is not the pattern's, -1 if none.
func filled(b []byte, key, page uint64) int {
	for i := 0; i < len(b); i += 8 {
		if binary.LittleEndian.Uint64(b[i:]) != word(key, page, uint64(i)) {
			return i
		}
	}
	return -1
}

func word(key, page, at uint64) uint64 {
	z := key*0x9E3779B97F4A7C15 + page*0xBF58476D1CE4E5B9 + at*0x94D049BB133111EB
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	return z ^ z>>29
}
