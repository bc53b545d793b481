package simulation

import (
	"slices"

	"github.com/kvbounce/kvbounce/adapters/sim"
	"github.com/kvbounce/kvbounce/ports"
)

// Who touches which memory.

// transferRange is a piece of a transfer that is being handed to an engine.
func (o *oracle) transferRange(e sim.Event) {
	owner := o.w.byID[e.Agent]
	if owner == nil || owner.hostile != nil {
		return
	}
	t := o.transfers[e.ID]
	if t == nil {
		t = &transfer{owner: owner, to: e.Peer}
		o.transfers[e.ID] = t
	}
	if owner.shuns(e.Peer) {
		o.violate("fenced-peer", "%s posts a transfer to %s, which it fenced", owner.label(), o.w.label(e.Peer))
	}
	from := o.areaOf(e.From)
	if !from.arena {
		o.directRange(t, e)
		return
	}
	if from.life != owner || e.Detail != 0 {
		o.violate("outside-memory", "%s transfers from the arena of %s", owner.label(), from.life.label())
		return
	}
	t.source = owner.books.over(e.From, e.Bytes)
	for i := range t.source {
		s := &t.source[i]
		switch {
		case s.gathers > 0:
			o.violate("write-before-gather", "%s writes from staging whose gather has no evidence", owner.label())
		case s.region != nil && !s.region.free():
			o.violate("two-owners", "%s writes from the region that it granted to %s", owner.label(), s.region.flow)
		}
		s.reads++
	}
	if to := o.w.byID[e.Peer]; to != nil && to.hostile != nil {
		t.region = o.hostileWrite(owner, to)
		t.region.flow.posted++
		t.region.flow.writes++
		return
	}
	to := o.areaOf(e.Addr)
	if !to.arena || to.life.id != e.Peer {
		o.violate("outside-region", "%s writes from staging to %#x, which is not in its peer's arena", owner.label(), e.Addr)
		return
	}
	t.target = to.life.books.over(e.Addr, e.Bytes)
	if len(t.target) == 0 || t.target[0].region == nil {
		o.violate("outside-region", "%s writes to %#x of %s, which was never granted", owner.label(), e.Addr, to.life.label())
		return
	}
	r := t.target[0].region
	t.region = r
	switch {
	case r.flow.from != e.Agent:
		o.violate("outside-region", "%s writes into region %d of %s, which is now %s's", owner.label(), r.handle, to.life.label(), r.flow)
	case r.addr != e.Addr || e.Bytes > r.bytes:
		o.violate("outside-region", "%s writes %d bytes at %#x; region %d has %d at %#x", owner.label(), e.Bytes, e.Addr, r.handle, r.bytes, r.addr)
	case r.drained && !r.flow.revoked: // what is posted without access moves nothing
		o.violate("write-after-drain", "%s writes into region %d of %s after its DRAIN arrived", owner.label(), r.handle, r.flow)
	case r.posted:
		o.violate("written-twice", "%s writes into region %d of %s again", owner.label(), r.handle, r.flow)
	}
	r.posted = true
	r.flow.posted++
	r.flow.writes++
	for i := range t.target {
		t.target[i].writes++
	}
}

// hostileWrite stands for a region of a hostile receiver, of which nothing is known. Its sender's own memory is watched all the same.
func (o *oracle) hostileWrite(owner, to *life) *region {
	return &region{flow: &flow{flowKey: flowKey{owner.id, to.id, 0}}}
}

// directRange checks a piece of a direct transfer: it is one request's, on both sides.
func (o *oracle) directRange(t *transfer, e sim.Event) {
	r := o.pageOwner(e.From)
	if r == nil || r != o.pageOwner(e.Addr) || r.from != t.owner {
		o.violate("outside-memory", "%s transfers directly from %#x to %#x, which are not one request's", t.owner.label(), e.From, e.Addr)
		return
	}
	if t.req == nil {
		t.req = r
		r.transfers++
	}
	o.checkDirect(r, e)
}

// pageOwner is the request that owns the page at an address.
func (o *oracle) pageOwner(addr uint64) *request {
	a := o.areaOf(addr)
	if a.pool == nil {
		return nil
	}
	page := (addr - a.pool.base) / a.pool.page
	if page >= uint64(len(a.pool.owner)) {
		return nil
	}
	return a.pool.owner[page]
}

// checkDirect checks that all bytes of a move are still the request's.
func (o *oracle) checkDirect(r *request, e sim.Event) {
	if !o.owned(r.srcPool, e.From, e.Bytes, r) || !o.owned(r.dstPool, e.Addr, e.Bytes, r) || r.h.IsQuiesced() {
		o.violate("touch-after-quiesced", "a direct transfer touches memory of %s after its owner was told that it is quiesced", r)
	}
}

// owned reports whether all pages that the range has bytes in are the request's.
func (o *oracle) owned(p *pool, addr, bytes uint64, r *request) bool {
	if addr < p.base || bytes == 0 {
		return false
	}
	first, last := (addr-p.base)/p.page, (addr-p.base+bytes-1)/p.page
	if last >= uint64(len(p.owner)) {
		return false
	}
	for page := first; page <= last; page++ {
		if p.owner[page] != r {
			return false
		}
	}
	return true
}

func (o *oracle) transferMoves(e sim.Event) {
	t := o.transfers[e.ID]
	if t == nil {
		return
	}
	if t.fenced || t.severed {
		o.violate("touch-after-fence", "a transfer between %s and %s moves bytes after the fence or the revocation of one was over", t.owner.label(), o.w.label(t.to))
	}
	if t.req != nil {
		o.checkDirect(t.req, e)
		t.req.count(e.Addr, e.Bytes)
		return
	}
	if t.region == nil {
		return
	}
	if r := t.region.flow.req; r != nil && r.h.IsQuiesced() {
		o.violate("touch-after-quiesced", "a write of %s moves bytes after its owner was told that it is quiesced", r)
	}
	if t.owner.books.freed {
		o.violate("touch-after-close", "a write of %s reads its arena after it closed without doubt", t.owner.label())
	}
	for i := range t.target {
		if t.target[i].region != t.region {
			o.violate("outside-region", "a write of %s lands in region %d, which is %s's by now", t.region.flow, t.target[i].region.handle, t.target[i].region.flow)
		}
	}
}

func (o *oracle) transferTold(e sim.Event) {
	t := o.transfers[e.ID]
	status := ports.TransferStatus(e.Detail)
	if t != nil && status == ports.FailedUnknown {
		t.failed, t.failedTurn = true, t.owner.turns
	}
	if t == nil || !status.Ended() {
		return
	}
	delete(o.transfers, e.ID)
	if t.fenced {
		return
	}
	o.transferEnded(t, status)
	o.transferOver(t)
	if t.region != nil {
		t.region.written = t.region.written || status == ports.Success
	}
}

// transferOver counts a transfer out of which something proves that it ended.
func (o *oracle) transferOver(t *transfer) {
	if t.req != nil {
		t.req.transfers--
	}
	for i := range t.source {
		t.source[i].reads--
	}
	for i := range t.target {
		t.target[i].writes--
	}
	if t.region != nil {
		t.region.flow.writes--
	}
}

func (o *oracle) copyLaunched(e sim.Event) {
	l := o.w.byID[e.Agent]
	c := &copying{life: l, block: l.books.over(e.Addr, reach(e.Runs))}
	if c.block == nil {
		o.violate("outside-arena", "%s copies %d bytes at %#x, which leave its arena", l.label(), reach(e.Runs), e.Addr)
		return
	}
	o.copies[e.ID] = c
	if e.Kind == sim.GatherLaunched {
		o.gatherLaunched(c, e)
	} else {
		o.scatterLaunched(c, e)
	}
}

// reach is how many bytes of the block the runs span.
func reach(runs []ports.Run) uint64 {
	var end uint64
	for _, r := range runs {
		end = max(end, r.Offset+uint64(r.Pieces-1)*uint64(r.Step)+uint64(r.Piece))
	}
	return end
}

func (o *oracle) gatherLaunched(c *copying, e sim.Event) {
	for i := range c.block {
		s := &c.block[i]
		switch {
		case s.region != nil && !s.region.free():
			o.violate("two-owners", "%s gathers into region %d, which is %s's", c.life.label(), s.region.handle, s.region.flow)
		case s.gathers+s.reads+s.writes+s.scatters > 0:
			o.violate("two-owners", "%s gathers into a block with an access that has no evidence (%d gathers, %d writes from it, %d into it, %d scatters)", c.life.label(), s.gathers, s.reads, s.writes, s.scatters)
		}
		s.gathers++
	}
	eachPiece(e.Runs, e.Index, func(addr, bytes uint64) {
		if c.req == nil {
			c.req = o.pageOwner(addr)
		}
	})
	if c.req == nil {
		o.violate("touch-after-released", "%s gathers from memory that no request owns", c.life.label())
		return
	}
	c.req.gathers++
	o.copyTouches(c, e)
}

func (o *oracle) scatterLaunched(c *copying, e sim.Event) {
	r := c.block[0].region
	switch {
	case r == nil:
		o.violate("foreign-scatter", "%s scatters from a block that was not granted", c.life.label())
		return
	case reach(e.Runs) > r.bytes:
		o.violate("outside-region", "%s scatters %d bytes from region %d, which has %d", c.life.label(), reach(e.Runs), r.handle, r.bytes)
	case r.addr != e.Addr:
		o.violate("foreign-scatter", "%s scatters from %#x; region %d is at %#x", c.life.label(), e.Addr, r.handle, r.addr)
	case r.scattered || r.scatters > 0:
		o.violate("written-twice", "%s scatters region %d of %s again", c.life.label(), r.handle, r.flow)
	case o.isHonest(r.flow.from) && !r.written:
		o.violate("scatter-before-write", "%s scatters region %d of %s, whose write has no success", c.life.label(), r.handle, r.flow)
	}
	c.region, c.req = r, r.flow.req
	c.runs = ports.Runs{Runs: slices.Clone(e.Runs), Index: slices.Clone(e.Index)}
	r.scatters++
	r.flow.scatters++
	for i := range c.block {
		c.block[i].scatters++
	}
	o.windowScatter(c)
	o.copyTouches(c, e)
}

// copyTouches checks that all memory of a copy that runs is still its request's.
func (o *oracle) copyTouches(c *copying, e sim.Event) {
	if c.life.books.freed {
		o.violate("touch-after-close", "a copy of %s runs after it closed without doubt", c.life.label())
	}
	eachPiece(e.Runs, e.Index, func(addr, _ uint64) {
		if p := o.areaOf(addr).pool; p != nil && p.gone && !p.life.dead {
			o.violate("touch-after-deregister", "a copy of %s touches memory that was deregistered", c.life.label())
		}
	})
	switch {
	case c.req != nil && c.req.from.hasFenced(c.life.id): // its memory is nobody's any more
	case c.region == nil:
		o.gatherTouches(c.req, e)
	case c.window != nil && c.window.over:
		o.violate("touch-after-window", "a scatter of %s runs in window %d after it was quiesced", c.req, c.window.number)
	case !o.isHonest(c.region.flow.from):
		o.hostileScatter(c, e)
	case c.req == nil:
		o.violate("foreign-scatter", "%s scatters for %s, which nobody submitted", c.life.label(), c.region.flow)
	default:
		if c.req.h.IsQuiesced() {
			o.violate("touch-after-quiesced", "a scatter of %s runs after its owner was told that it is quiesced", c.req)
		}
		eachPiece(e.Runs, e.Index, func(addr, bytes uint64) {
			if !o.owned(c.req.dstPool, addr, bytes, c.req) {
				o.violate("foreign-scatter", "a scatter of %s writes %d bytes at %#x, which is not its memory now", c.req, bytes, addr)
			}
		})
	}
}

func (o *oracle) gatherTouches(r *request, e sim.Event) {
	if r == nil {
		return
	}
	if r.h.IsSourceReleased() {
		o.violate("touch-after-released", "a gather of %s runs after its owner was told that the source is released", r)
	}
	eachPiece(e.Runs, e.Index, func(addr, bytes uint64) {
		if !o.owned(r.srcPool, addr, bytes, r) {
			o.violate("foreign-gather", "a gather of %s reads %d bytes at %#x, which is not its memory now", r, bytes, addr)
		}
	})
}

// hostileScatter checks that a hostile peer's DATA reaches only registered memory. It never aims at pages of the application, so those are violations too.
func (o *oracle) hostileScatter(c *copying, e sim.Event) {
	eachPiece(e.Runs, e.Index, func(addr, bytes uint64) {
		a := o.areaOf(addr)
		if !a.play || a.life != c.life || addr+bytes > c.life.books.play+playBytes {
			o.violate("outside-memory", "%s scatters %d bytes to %#x for %s, outside the memory it registered for that", c.life.label(), bytes, addr, c.region.flow)
		}
	})
}

// eachPiece calls f for the application's side of each piece.
func eachPiece(runs []ports.Run, index []uint32, f func(addr, bytes uint64)) {
	for _, r := range runs {
		for k := range r.Pieces {
			factor := uint64(k)
			if r.Table != ports.NoTable {
				factor = uint64(index[uint64(r.Table)+uint64(k)])
			}
			f(r.Addr+factor*uint64(r.Stride), uint64(r.Piece))
		}
	}
}

func (o *oracle) copyTold(e sim.Event) {
	c := o.copies[e.ID]
	if c == nil {
		return
	}
	o.copyEnded(c, ports.CopyStatus(e.Detail))
	if ports.CopyStatus(e.Detail) != ports.CopyDone {
		return
	}
	delete(o.copies, e.ID)
	if c.fenced {
		return
	}
	if c.region == nil {
		for i := range c.block {
			c.block[i].gathers--
		}
		if c.req != nil {
			c.req.gathers--
		}
		return
	}
	for i := range c.block {
		c.block[i].scatters--
	}
	c.region.scatters--
	c.region.flow.scatters--
	c.region.scattered = true
	if c.window != nil {
		c.window.scatters--
	}
	if c.req != nil {
		eachPiece(c.runs.Runs, c.runs.Index, c.req.count)
	}
}

// count notes bytes that were written to the destination.
func (r *request) count(addr, bytes uint64) {
	p := r.dstPool
	for bytes > 0 {
		page := int((addr - p.base) / p.page)
		n := min(bytes, p.addr(page)+p.page-addr)
		if i, ok := r.place[page]; ok {
			r.written[i] += n
		}
		addr += n
		bytes -= n
	}
}
