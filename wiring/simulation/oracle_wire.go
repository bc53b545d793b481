package simulation

import (
	"fmt"
	"slices"

	"github.com/kvbounce/kvbounce/adapters/sim"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// What frames state must be true of the engines and devices when they leave.

// frameSent takes in a frame that leaves, or that the channel does not take: what it grants is granted all the same.
func (o *oracle) frameSent(e sim.Event, taken bool) {
	if l := o.w.byID[e.Agent]; l != nil && o.w.chooser.over {
		l.framesAfter++
	}
	env, err := wire.DecodeEnvelope(e.Data)
	if err != nil {
		return
	}
	h, err := wire.DecodeHeader(env.Message)
	if err != nil {
		return
	}
	o.frameCounted(e, h)
	if l := o.w.byID[e.Agent]; l != nil && l.shuns(ports.Identity(env.To)) {
		o.violate("fenced-peer", "%s sends %s to %s, which it fenced", l.label(), h.Type, o.w.label(ports.Identity(env.To)))
	}
	// to and from are those of the flow: its sender and its receiver.
	from, to := ports.Identity(env.From), ports.Identity(env.To)
	honest := from == e.Agent && o.isHonest(from)
	switch {
	case h.Type == wire.TypeGrant:
		if honest && o.grant.Decode(env.Message) == nil {
			o.granted(flowKey{to, from, h.Request}, e.At)
		}
		return
	case !taken:
		return
	}
	switch h.Type {
	case wire.TypeWant:
		if o.want.Decode(env.Message) == nil {
			k := flowKey{from, to, h.Request}
			if honest {
				o.flow(k)
				o.checkOldest(k, o.want.Oldest)
			}
			o.said[e.ID] = statement{flowKey: k, oldest: o.want.Oldest, chunks: len(o.want.ChunkBytes)}
		}
	case wire.TypeDrain:
		if o.drain.Decode(env.Message) == nil {
			k := flowKey{from, to, h.Request}
			if f := o.flows[k]; honest && f != nil && f.writes > 0 {
				o.violate("false-drain", "%s says by DRAIN that no write of %s can land any more, but %d have no evidence", from.Name(), f, f.writes)
			}
			o.said[e.ID] = statement{flowKey: k, drain: true}
		}
	case wire.TypeData:
		if honest && o.data.Decode(env.Message) == nil {
			o.dataSent(flowKey{from, to, h.Request})
		}
	case wire.TypeAck:
		if honest && o.ack.Decode(env.Message) == nil && o.ack.Region != 0 {
			o.acked(flowKey{to, from, h.Request})
		}
	case wire.TypeNack:
		if honest && o.nack.Decode(env.Message) == nil && o.nack.Chunk == wire.WholeRequest && o.nack.Reason != wire.ReasonOverloaded {
			o.stopWaiting(o.flows[flowKey{to, from, h.Request}])
		}
	case wire.TypeDrainAck:
		if f := o.flows[flowKey{to, from, h.Request}]; honest && f != nil && f.scatters > 0 {
			o.violate("false-drain-ack", "%s answers DRAIN of %s while %d of its scatters have no evidence", from.Name(), f, f.scatters)
		}
	}
}

func (o *oracle) isHonest(id ports.Identity) bool {
	l := o.w.byID[id]
	return l != nil && l.hostile == nil
}

// checkOldest holds a WANT's `oldest` against what is still being written below it.
func (o *oracle) checkOldest(k flowKey, oldest uint64) {
	for _, f := range o.pair(k.from, k.to).live {
		if f.id < oldest && f.writes > 0 {
			o.violate("false-drain", "%s says by oldest=%d that no write of %s can land any more, but %d have no evidence", k.from.Name(), oldest, f, f.writes)
		}
	}
}

func (o *oracle) dataSent(k flowKey) {
	r := o.regionOf(k)
	switch {
	case r == nil:
		o.violate("false-data", "%s sends DATA of request %d for region %d, which was not granted to it", k.from.Name(), k.id, o.data.Region)
	case !r.written:
		o.violate("false-data", "%s sends DATA of %s for region %d before the success of its write was latched", k.from.Name(), r.flow, r.handle)
	}
}

// regionOf is the region that the DATA just decoded names, if it is that flow's and chunk's.
func (o *oracle) regionOf(k flowKey) *region {
	to := o.w.byID[k.to]
	if to == nil || to.books == nil {
		return o.hostileRegion(k)
	}
	if r := to.books.regions[o.data.Region]; r != nil && r.flow.flowKey == k && r.chunk == o.data.Chunk {
		return r
	}
	return nil
}

// hostileRegion stands for whatever a hostile receiver granted.
func (o *oracle) hostileRegion(k flowKey) *region { return &region{flow: o.flow(k), written: true} }

func (o *oracle) acked(k flowKey) {
	from := o.w.byID[k.to]
	r := from.books.regions[o.ack.Region]
	if r == nil || r.flow.flowKey != k || r.chunk != o.ack.Chunk || !r.scattered {
		o.violate("false-ack", "%s acknowledges chunk %d of request %d from %s (region %d), which is not scattered", k.to.Name(), o.ack.Chunk, k.id, k.from.Name(), o.ack.Region)
	}
}

// granted takes a GRANT in: new regions must be free of every other owner, repeated ones the same as before.
func (o *oracle) granted(k flowKey, at ports.Instant) {
	l := o.w.byID[k.to]
	f := o.flow(k)
	for _, c := range o.grant.Credits {
		if r := l.books.regions[c.Region]; r != nil {
			if r.flow != f || r.chunk != c.Chunk || r.addr != c.Addr || r.bytes != uint64(c.Length) {
				o.violate("two-owners", "%s grants region %d to chunk %d of %s; it was chunk %d's of %s", l.label(), c.Region, c.Chunk, f, r.chunk, r.flow)
			}
			continue
		}
		r := &region{flow: f, handle: c.Region, addr: c.Addr, bytes: uint64(c.Length), chunk: c.Chunk}
		o.newRegion(l, r)
		if held := f.holds(); held > l.node.setup.window {
			o.violate("window", "%s lets %s hold %d regions; its window is %d", l.label(), f, held, l.node.setup.window)
		}
		o.countGrant(l, f, at)
	}
}

func (o *oracle) newRegion(l *life, r *region) {
	l.books.regions[r.handle] = r
	r.flow.regions = append(r.flow.regions, r)
	block := l.books.over(r.addr, r.bytes)
	if block == nil {
		o.violate("outside-arena", "%s grants %d bytes at %#x, which leave its arena", l.label(), r.bytes, r.addr)
	}
	for i := range block {
		s := &block[i]
		switch {
		case s.region != nil && !s.region.free():
			o.violate("two-owners", "%s grants region %d to %s over region %d, which is still %s's", l.label(), r.handle, r.flow, s.region.handle, s.region.flow)
		case s.writes > 0:
			o.violate("region-reuse", "%s grants region %d to %s where an earlier write has no evidence", l.label(), r.handle, r.flow)
		case s.gathers+s.reads > 0:
			o.violate("two-owners", "%s grants region %d to %s over staging that is in use", l.label(), r.handle, r.flow)
		case s.scatters > 0:
			o.violate("region-reuse", "%s grants region %d to %s where an earlier scatter has no evidence", l.label(), r.handle, r.flow)
		}
		s.region = r
	}
}

// heard takes in what a frame states when it arrives at its addressee.
func (o *oracle) heard(s statement, at ports.Instant) {
	if s.drain {
		if f := o.flows[s.flowKey]; f != nil {
			o.drainedFlow(f)
		}
		return
	}
	p := o.pair(s.from, s.to)
	keep := p.live[:0]
	for _, f := range p.live {
		if f.id < s.oldest {
			o.drainedFlow(f)
		}
		if !f.drained {
			keep = append(keep, f)
		}
	}
	clear(p.live[len(keep):])
	p.live = keep
	f := o.flow(s.flowKey)
	f.chunks = s.chunks
	if f.drained { // a WANT that comes late makes the flow anew
		f.drained = false
		p.live = append(p.live, f)
	}
	if o.isHonest(s.from) && f.wanted < 0 && f.receiver != nil && f.receiver.books != nil && !f.drained {
		f.wanted = at
		f.receiver.books.waiting = append(f.receiver.books.waiting, f)
	}
}

// drainedFlow notes that no write of a flow can land any more. Regions that are granted later, to a WANT that comes late, are another matter.
func (o *oracle) drainedFlow(f *flow) {
	f.drained = true
	for _, r := range f.regions {
		r.drained = true
	}
	o.stopWaiting(f)
}

// countGrant holds a grant against the scheduler's promise to the flows that still wait.
func (o *oracle) countGrant(l *life, f *flow, at ports.Instant) {
	if f.granted == 0 && f.wanted >= 0 {
		o.waits = append(o.waits, int64(at.Sub(f.wanted)))
	}
	f.granted++
	f.passed, f.rivals = 0, 0
	if f.granted >= f.chunks {
		o.stopWaiting(f)
	}
	fair := o.w.setup.fair
	if fair == 0 {
		return
	}
	for _, g := range l.books.waiting {
		g.rivals = max(g.rivals, len(l.books.waiting))
		if g == f || g.holds() >= l.node.setup.window {
			continue
		}
		if g.passed++; g.passed > fair*(8+g.rivals) {
			o.violate("unfair", "%s gave %d grants to others while %s waited for one (up to %d flows waited)", l.label(), g.passed, g, g.rivals)
		}
	}
}

// holds is how many regions of the flow are not free.
func (f *flow) holds() int {
	n := 0
	for _, r := range f.regions {
		if !r.free() {
			n++
		}
	}
	return n
}

func (o *oracle) stopWaiting(f *flow) {
	if f == nil || f.receiver == nil || f.receiver.books == nil {
		return
	}
	b := f.receiver.books
	if i := slices.Index(b.waiting, f); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
}

func (f *flow) String() string {
	if f.req != nil {
		return f.req.String()
	}
	return fmt.Sprintf("request %d of %s to %s", f.id, f.from, f.to)
}

// frameText is a frame in words, for a log.
func frameText(b []byte) string {
	f, err := wire.DecodeFrame(b)
	if err != nil {
		return err.Error()
	}
	switch m := f.Message.(type) {
	case *wire.Want:
		return fmt.Sprintf("WANT request=%d oldest=%d chunks=%v", m.Request, m.Oldest, m.ChunkBytes)
	case *wire.Grant:
		return fmt.Sprintf("GRANT request=%d credits=%+v", m.Request, m.Credits)
	case *wire.Data:
		return fmt.Sprintf("DATA request=%d region=%d chunk=%d/%d runs=%d", m.Request, m.Region, m.Chunk, m.Chunks, len(m.Runs.Runs))
	case *wire.Ack:
		return fmt.Sprintf("ACK request=%d region=%d chunk=%d", m.Request, m.Region, int32(m.Chunk))
	case *wire.Nack:
		return fmt.Sprintf("NACK request=%d region=%d chunk=%d %s %q", m.Request, m.Region, int32(m.Chunk), m.Reason, m.Text)
	case *wire.Drain:
		return fmt.Sprintf("DRAIN request=%d", m.Request)
	case *wire.DrainAck:
		return fmt.Sprintf("DRAIN_ACK request=%d", m.Request)
	}
	return "?"
}
