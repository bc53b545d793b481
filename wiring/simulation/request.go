package simulation

import (
	"fmt"

	"github.com/kvbounce/kvbounce/adapters/sim"
	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
)

// request is a submitted request as its application and the oracle know it.
type request struct {
	w         *World
	number    int
	from, to  *life // to holds the other side's memory, whether it sends or receives
	path      string
	h         *agent.Handle
	began     ports.Instant
	ended     ports.Instant // logically
	cancelled bool          // its application called Cancel
	released  bool          // its application was told, and reused the source
	over      bool          // likewise all its memory

	// The i-th page of the source goes to the i-th of the destination.
	srcPool, dstPool   *pool
	srcPages, dstPages []int
	written            []uint64 // bytes written to each destination page, repeats included
	place              map[int]int
	window             *window // of path window
	transfers          int     // direct ones of it that have no evidence
	gathers            int     // gathers of it that have no evidence
}

func (r *request) String() string {
	return fmt.Sprintf("request %d (%s, %s to %s, id %d)", r.number, r.path, r.from.label(), r.to.label(), r.h.ID())
}

// hostileTarget reports whether the other side may do with its memory what it likes.
func (r *request) hostileTarget() bool { return r.to.hostile != nil }

// readyEvent is a caller's event that fires at an instant.
type readyEvent struct {
	w  *sim.World
	at ports.Instant
}

// Status implements ports.Event.
func (e *readyEvent) Status() ports.CopyStatus {
	if e.w.Now() < e.at {
		return ports.CopyPending
	}
	return ports.CopyDone
}

// Err implements ports.Event.
func (e *readyEvent) Err() error { return nil }

// submit does what an application does: takes memory, fills the source, and hands the request over.
func (w *World) submit(o Op) {
	n := w.byName[o.Agent]
	if n == nil || n.now == nil || n.now.agent == nil || n.now.closeBy != ports.Never {
		return
	}
	from, to := n.now, n.known[o.Peer]
	if to == nil || w.byNumber[o.Request] != nil {
		return
	}
	r := &request{w: w, number: o.Request, from: from, to: to, path: o.Path, began: w.sim.Now()}
	d := newDraw(o.Layout, "layout")
	r.srcPool, r.dstPool = from.src, to.dst
	if o.Path == "read" {
		r.srcPool, r.dstPool = to.src, from.dst
	}
	if from.src.leaving || r.path == "read" && from.dst.leaving {
		return
	}
	if r.srcPages = r.srcPool.take(o.Pages, d, r); r.srcPages == nil {
		return
	}
	q := agent.Request{Op: agent.Write, Peer: to.id, Route: agent.ForceBounce}
	target := r.takeTarget(o, d, &q)
	if target == nil {
		r.srcPool.giveBack(r.srcPages, w)
		return
	}
	r.written, r.place = make([]uint64, o.Pages), make(map[int]int, o.Pages)
	for i, page := range r.srcPages {
		fill(r.srcPool.view(w, page), uint64(r.number), uint64(i))
	}
	for i, page := range r.dstPages {
		r.place[page] = i
		fill(r.dstPool.view(w, page), ^uint64(r.number), uint64(i))
	}
	src, dst := descriptors(r.srcPool, r.srcPages, d), descriptors(r.dstPool, target, d)
	if o.Path == "overlap" {
		src = append(src, ports.Descriptor{Addr: r.srcPool.addr(r.srcPages[0]), Bytes: r.srcPool.page})
		dst = append(dst, ports.Descriptor{Addr: r.dstPool.addr(r.dstPages[o.Pages-1]), Bytes: r.dstPool.page})
	}
	q.Local, q.Remote = src, dst
	switch o.Path {
	case "direct":
		q.Route = agent.ForceDirect
	case "read":
		q.Op, q.Route, q.Local, q.Remote = agent.Read, agent.Auto, dst, src
	case "auto":
		q.Route = agent.Auto
	}
	if o.Delay > 0 {
		q.Ready = &readyEvent{w: w.sim, at: w.sim.Now().Add(o.Delay)}
	}
	if o.Notify {
		q.Notify = fmt.Appendf(nil, "request %d", o.Request)
	}
	h, err := from.agent.Submit(q)
	w.refusal = err
	if err != nil {
		w.oracle.refused(from, err)
		r.srcPool.giveBack(r.srcPages, w)
		r.giveBackTarget()
		return
	}
	r.h = h
	w.oracle.taken(r)
	from.open = append(from.open, r)
	from.join(o.Session, r, nil)
	w.requests = append(w.requests, r)
	w.byNumber[r.number] = r
}

// takeTarget takes the pages that a request writes: idle ones, or ones of a window. A stray request takes none, and aims at those of others.
func (r *request) takeTarget(o Op, d draw, q *agent.Request) []int {
	x := r.w.windows[o.Window]
	switch {
	case o.Path != "window" && o.Path != "stray":
		r.dstPages = r.dstPool.take(o.Pages, d, r)
		return r.dstPages
	case x == nil && o.Window > 0, x != nil && x.life != r.to, r.to.windowed == nil:
		return nil
	}
	r.dstPool, q.Route = r.to.windowed, agent.Auto
	if x != nil {
		q.Token = x.h.Token()
	} else {
		q.Route = agent.ForceBounce
	}
	if o.Path == "stray" {
		return strayPages(r.dstPool, o.Pages, x, d)
	}
	if x == nil {
		return nil
	}
	r.window = x
	r.dstPages = x.assign(o.Pages, d, r)
	return r.dstPages
}

// giveBackTarget gives up the pages that the request wrote.
func (r *request) giveBackTarget() {
	if r.window != nil {
		r.window.takeBack(r)
		return
	}
	r.dstPool.giveBack(r.dstPages, r.w)
}

// descriptors are the pages in order, neighbours sometimes joined and pages sometimes cut, so that both sides are cut differently.
func descriptors(p *pool, pages []int, d draw) []ports.Descriptor {
	var out []ports.Descriptor
	for _, page := range pages {
		one := ports.Descriptor{Addr: p.addr(page), Bytes: p.page}
		switch n := len(out); {
		case n > 0 && out[n-1].Addr+out[n-1].Bytes == one.Addr && d.percent(70):
			out[n-1].Bytes += one.Bytes
		case d.percent(10):
			half := 8 * (1 + d.below(p.page/8-1))
			out = append(out, ports.Descriptor{Addr: one.Addr, Bytes: half}, ports.Descriptor{Addr: one.Addr + half, Bytes: one.Bytes - half})
		default:
			out = append(out, one)
		}
	}
	return out
}

// observe looks at the handle after a turn, as the application does, and reuses what it may. It reports whether the request is over.
func (r *request) observe() bool {
	if r.ended == 0 && r.h.Status() != transport.InProgress {
		r.ended = r.w.sim.Now()
		r.logEnd()
		if r.h.Status() == transport.Succeeded {
			r.w.oracle.succeeded(r)
			r.noteRoute()
		} else {
			r.w.oracle.failed(r)
		}
	}
	if !r.released && r.h.IsSourceReleased() {
		r.w.oracle.sourceReleased(r)
		r.released = true
		r.srcPool.giveBack(r.srcPages, r.w)
	}
	if !r.over && r.h.IsQuiesced() {
		r.w.oracle.quiesced(r)
		r.over = true
		r.giveBackTarget()
	}
	return r.over
}

func (r *request) logEnd() {
	if r.w.log == nil {
		return
	}
	if err := r.h.Err(); err != nil {
		r.w.log("%12d %s failed: %v", r.w.sim.Now(), r, err)
		return
	}
	r.w.log("%12d %s succeeded", r.w.sim.Now(), r)
}

// perform does one operation. What makes no sense any more, since an agent died or a request was shrunk away, is left out.
func (w *World) perform(o Op) {
	if w.log != nil {
		w.log("%12d %s", w.sim.Now(), o)
	}
	n := w.byName[o.Agent]
	var l *life
	if n != nil {
		l = n.now
	}
	if r := w.byNumber[o.Request]; r != nil && l == nil {
		l = r.from
	}
	if w.setup.order && l != nil {
		w.sim.Tell(l.id, []byte(o.String()))
	}
	switch {
	case o.Verb == OpSubmit:
		w.submit(o)
	case o.Verb == OpCancel:
		if r := w.byNumber[o.Request]; r != nil && !r.from.dead {
			w.oracle.cancelled(r)
			r.cancelled = true
			r.h.Cancel()
		}
	case o.Verb == OpCut:
		w.chooser.cut[[2]string{o.Agent, o.Peer}] = true
	case o.Verb == OpHeal:
		delete(w.chooser.cut, [2]string{o.Agent, o.Peer})
	case o.Verb == OpStart:
		if n != nil {
			n.start()
		}
	case l == nil:
	case o.Verb == OpHostile:
		if l.hostile != nil {
			l.hostile.act(newDraw(o.Layout, "hostile"))
		}
	case l.agent == nil:
	case o.Verb == OpAdd:
		w.introduce(l, w.byName[o.Peer])
	case o.Verb == OpRemove:
		if peer := n.known[o.Peer]; peer != nil && l.closeBy == ports.Never {
			delete(n.known, o.Peer)
			must(l.agent.RemovePeerAsync(peer.id, func() {}))
		}
	case o.Verb == OpOpen:
		w.openWindow(l, o)
	case o.Verb == OpShut:
		if x := w.windows[o.Window]; x != nil && x.life == l {
			x.close()
		}
	case o.Verb == OpAbort, o.Verb == OpRetire:
		if e := l.session(o.Session); e != nil && l.closeBy == ports.Never {
			e.do(o.Verb)
		}
	case o.Verb == OpLeave:
		l.leave(o.Path)
	case o.Verb == OpFence:
		l.fence(w.byName[o.Peer])
	case o.Verb == OpRevoke:
		if peer := w.byName[o.Peer]; peer != nil && peer.now != nil && l.closeBy == ports.Never {
			delete(n.known, o.Peer)
			must(l.agent.RevokePeerAsync(peer.now.id, func(bool) {}))
		}
	case o.Verb == OpCrash:
		l.crash()
	case o.Verb == OpClose:
		if l.closeBy == ports.Never {
			l.agent.BeginClose()
			l.closeBy = w.sim.Now().Add(l.skew - l.paused + n.config().CloseDeadline)
			l.wake()
		}
	case o.Verb == OpPause:
		l.pausedTil = max(l.pausedTil, w.sim.Now().Add(o.Delay))
	case o.Verb == OpJump:
		l.skew += o.Delay
		l.wake()
	}
}

// introduce tells an agent of the peer's present life.
func (w *World) introduce(l *life, peer *node) {
	if peer == nil || peer.now == nil || l.closeBy != ports.Never {
		return
	}
	p := peer.now
	l.agent.AddPeerAsync(p.desc, false, func(_ agent.PeerReport, err error) {
		if err == nil {
			l.node.known[peer.setup.name] = p
		}
	})
}
