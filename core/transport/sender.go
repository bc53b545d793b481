package transport

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/kvbounce/kvbounce/core/credit"
	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// The sender's life of a request. Each function is one event; the table is protocol.md's, 7, Frame by state.

func (t *Transport) startRequest(r *request) {
	p := t.peers[r.sub.Peer]
	if p == nil {
		t.endUntracked(r, &Failure{Peer: r.sub.Peer, Kind: ErrUnknownPeer})
		return
	}
	if f := t.refusal(p); f != nil {
		t.endUntracked(r, f)
		return
	}
	r.peer = p
	r.account.Party = &p.party
	r.chunks = make([]chunk, len(r.sub.Chunks))
	for i := range r.chunks {
		c := &r.chunks[i]
		c.req, c.index, c.node.Of = r, uint32(i), c
	}
	for i, c := range r.sub.Plan {
		r.chunks[i].plan, r.chunks[i].state = c, chunkPlanned
	}
	r.planned = len(r.sub.Plan)
	r.repeat = timer{kind: timerRepeat, owner: r}
	r.progress = timer{kind: timerProgress, owner: r}
	if r.sub.Ready != nil {
		r.state = requestWaiting
		t.waiting = append(t.waiting, r)
		return
	}
	t.activate(r)
}

// endUntracked fails a request that never sent anything.
func (t *Transport) endUntracked(r *request, f *Failure) {
	r.state = requestForgotten
	t.counters.Add(BounceFailed, 1)
	for i := range r.chunks {
		t.endChunk(&r.chunks[i])
	}
	r.h.end(f, r.stages(t.now))
	r.h.quiesce()
}

// activate begins to track the request and sends its WANT.
func (t *Transport) activate(r *request) {
	r.state = requestActive
	r.peer.track(r)
	r.began, r.last = t.now, t.now
	t.sendWant(r)
	r.backoff = repeatFirst
	t.timers.arm(&r.repeat, t.now.Add(t.jitter(r.backoff)))
	t.timers.arm(&r.progress, t.now.Add(r.peer.info.RequestTimeout))
	for i := range r.chunks {
		t.queueGather(&r.chunks[i])
	}
}

// pollReady looks at the events that callers' requests wait for.
func (t *Transport) pollReady() {
	t.waiting = slices.DeleteFunc(t.waiting, func(r *request) bool {
		if r.state != requestWaiting {
			return true
		}
		switch r.sub.Ready.Status() {
		case ports.CopyPending:
			return false
		case ports.CopyFailed:
			t.endUntracked(r, &Failure{Peer: r.peer.id, Kind: ErrGatherFailed, Text: "the caller's ready event failed", Cause: r.sub.Ready.Err()})
		default:
			t.dirty = true
			if f := t.refusal(r.peer); f != nil {
				t.endUntracked(r, f)
			} else {
				t.activate(r)
			}
		}
		return true
	})
}

func (t *Transport) onPlanned(r *request, c *plan.Chunk, took time.Duration) {
	r.h.planTime += took
	if r.state >= requestDraining || r.planned == len(r.chunks) {
		r.sub.Recycle(c)
		return
	}
	ch := &r.chunks[r.planned]
	r.planned++
	ch.plan, ch.state = c, chunkPlanned
	t.queueGather(ch)
}

// onPlanChecked sends the DATA that was held back.
func (t *Transport) onPlanChecked(r *request, took time.Duration) {
	r.checked = true
	r.h.planTime += took
	if r.state != requestActive {
		return
	}
	for i := range r.chunks {
		if c := &r.chunks[i]; c.state == chunkWritten {
			r.firstData = t.now
			t.sendData(c)
		}
	}
}

// queueGather puts a planned chunk where the next turn looks for it.
func (t *Transport) queueGather(c *chunk) {
	switch {
	case c.state != chunkPlanned || c.req.state != requestActive:
	case c.credited():
		t.needy.Push(&c.node)
	default:
		t.eager.Push(&c.node)
	}
}

// launchGathers starts gathers while there are copy contexts and staging: first for chunks that have a credit, whose bytes can leave at once, then ahead of credits.
func (t *Transport) launchGathers() {
	if !t.launchNeedy(math.MaxInt) || !t.settings.EagerGather {
		return
	}
	for n := t.eager.First; n != nil; n = t.eager.First {
		c := n.Of
		if t.copiesFull() || t.eagerUse+uint64(c.plan.Bytes) > t.credits.Usable()/2 {
			return
		}
		block, ok := t.credits.Alloc(uint64(c.plan.Bytes), credit.ForStaging)
		if !ok {
			return
		}
		c.staging = t.ledger.Hold(&c.held, block, &c.req.account)
		if !t.gather(c) {
			return
		}
	}
}

// launchNeedy starts at most so many gathers of chunks that have a credit. It reports whether none is left that could start.
func (t *Transport) launchNeedy(most int) bool {
	for ; most > 0 && t.needy.First != nil; most-- {
		c := t.needy.First.Of
		if t.copiesFull() || !t.stage(c) || !t.gather(c) {
			return false
		}
	}
	return true
}

func (t *Transport) copiesFull() bool {
	return len(t.gathers)+len(t.scatters) >= t.compute.Contexts()
}

// stage gives a credited chunk staging, taking it from chunks that were gathered ahead of their credit if there is no other.
func (t *Transport) stage(c *chunk) bool {
	for {
		block, ok := t.credits.Alloc(uint64(c.plan.Bytes), credit.ForStaging)
		if ok {
			c.staging = t.ledger.Hold(&c.held, block, &c.req.account)
			return true
		}
		// The youngest is taken: the oldest is the next to get a credit.
		var victim *chunk
		if last := t.cached.Last; last != nil {
			victim = last.Of
		} else if t.mutated("take staging under a running gather") {
			victim = t.endGather()
		}
		if victim == nil || t.mutated("keep gathered chunks' staging from those with a credit") {
			return false
		}
		t.takeStaging(victim)
	}
}

// takeStaging takes the staging of a chunk that stands gathered without a credit. It will be gathered again.
func (t *Transport) takeStaging(c *chunk) {
	t.counters.Add(StagingTaken, 1)
	t.dropStaging(c)
	c.state = chunkPlanned
	t.queueGather(c)
}

// dropStaging says that the chunk needs its staging no more.
func (t *Transport) dropStaging(c *chunk) {
	if c.staging == nil {
		return
	}
	t.endAhead(c)
	c.node.Unlink()
	c.staging.Drop()
	c.staging = nil
}

// endAhead says that the chunk's staging no longer stands ahead of its credit.
func (t *Transport) endAhead(c *chunk) {
	if c.ahead {
		c.ahead = false
		t.eagerUse -= uint64(c.plan.Bytes)
	}
}

// gather launches a chunk's gather into its staging. It reports false when no copy context was free.
func (t *Transport) gather(c *chunk) bool {
	c.staging.Open(drain.Gather)
	event, err := t.compute.Gather(c.plan.Gather, t.arena.Base+c.staging.Block().Offset)
	if errors.Is(err, ports.ErrBusy) || errors.Is(err, ports.ErrNotLaunched) {
		c.staging.Close(drain.Gather, drain.NeverStarted)
		c.staging.Drop()
		c.staging = nil
		if !errors.Is(err, ports.ErrBusy) {
			t.fail(c.req, &Failure{Kind: ErrGatherFailed, Cause: err})
			return true
		}
		return false
	}
	t.counters.Add(GathersRun, 1)
	c.node.Unlink()
	c.state = chunkGathering
	if !c.credited() {
		c.ahead = true
		t.eagerUse += uint64(c.plan.Bytes)
	}
	if err != nil {
		t.gatherInDoubt(c, err)
		return true
	}
	c.gather = event
	t.gathers = append(t.gathers, c)
	r := c.req
	if r.firstGather == 0 {
		r.firstGather = t.now
	}
	if !c.ran {
		c.ran = true
		t.progress(r)
	}
	return true
}

func (t *Transport) pollGathers() {
	t.gathers = slices.DeleteFunc(t.gathers, func(c *chunk) bool {
		e, pending := drain.OfCopy(c.gather.Status())
		if !pending {
			t.dirty = true
			t.onGathered(c, e)
		}
		return !pending
	})
}

func (t *Transport) onGathered(c *chunk, e drain.Evidence) {
	r := c.req
	if !e.Closes(drain.Gather) {
		t.gatherInDoubt(c, c.gather.Err())
		return
	}
	c.gather = nil
	r.lastGather = t.now
	c.staging.Close(drain.Gather, e)
	if r.state != requestActive {
		t.advanceDrain(r)
		return
	}
	c.state = chunkGathered
	if c.credited() {
		t.write(c)
	} else {
		t.cached.Push(&c.node)
	}
	t.checkSource(r)
}

// gatherInDoubt keeps the staging and the source of a gather that failed: the device may still be copying.
func (t *Transport) gatherInDoubt(c *chunk, cause error) {
	c.staging.Doubt(drain.Gather)
	t.stuckGathers = append(t.stuckGathers, c)
	t.log.Error("a gather failed and nothing proves that it ended; its source and its staging are in doubt", "peer", c.req.peer.id, "request", c.req.id, "chunk", c.index, "cause", cause)
	t.fail(c.req, &Failure{Kind: ErrGatherFailed, Cause: cause})
}

// checkSource tells the caller when its source is read no more: every chunk stands gathered in staging that can't be taken, or is past that.
func (t *Transport) checkSource(r *request) {
	if t.mutated("tell source released while a gather runs") && r.account.Open(drain.Gather) > 0 {
		r.h.released.set()
	}
	if r.h.released.isSet() || r.planned < len(r.chunks) || r.account.Open(drain.Gather) > 0 {
		return
	}
	for i := range r.chunks {
		if c := &r.chunks[i]; c.state < chunkGathered || (c.state == chunkGathered && !c.credited()) {
			return
		}
	}
	r.h.released.set()
}

func (t *Transport) onGrant(p *peer, g *wire.Grant) {
	r := p.requests[g.Request]
	switch {
	case r == nil:
		t.answerUntracked(p, g.Request)
		return
	case r.state == requestDraining:
		if r.mayDrain {
			// The receiver admitted a WANT that its DRAIN had overtaken; said again, DRAIN ends that flow now and not with its lease.
			t.sendDrain(p, r.id)
		}
		return
	case r.state != requestActive:
		return
	}
	for _, cr := range g.Credits {
		t.onCredit(r, cr, g.Chunks)
	}
}

// onCredit takes a credit if the chunk has none and the length is the chunk's.
func (t *Transport) onCredit(r *request, cr wire.Credit, chunks uint32) {
	if int(chunks) != len(r.chunks) || r.chunks[cr.Chunk].credited() || cr.Length != r.sub.Chunks[cr.Chunk] {
		if c := cr.Chunk; int(c) >= len(r.chunks) || r.chunks[c].credit != cr {
			t.counters.Add(StaleGrants, 1)
		}
		return
	}
	c := &r.chunks[cr.Chunk]
	c.credit = cr
	r.credits++
	r.lastCredit = t.now
	t.endAhead(c)
	t.progress(r)
	switch c.state {
	case chunkPlanned:
		t.queueGather(c)
	case chunkGathered:
		c.node.Unlink()
		t.write(c)
		t.checkSource(r)
	}
}

// write posts a gathered chunk into its region.
func (t *Transport) write(c *chunk) {
	r := c.req
	c.state = chunkWriting
	bytes := uint64(c.plan.Bytes)
	t.pairLocal[0] = ports.Descriptor{Addr: t.arena.Base + c.staging.Block().Offset, Bytes: bytes, Place: t.arena.Place}
	t.pairRemote[0] = ports.Descriptor{Addr: c.credit.Addr, Bytes: bytes, Place: ports.Place{Kind: r.peer.info.Arena, Device: c.credit.Device}}
	c.staging.Open(drain.Write)
	c.write = t.engine.PostWrite(r.peer.id, t.pairLocal[:], t.pairRemote[:])
	r.peer.pending++
	if t.mutated("send DATA before the write's success") {
		t.sendData(c)
	}
	t.writes = append(t.writes, c)
	t.counters.Add(WritesPosted, 1)
	t.dirty = true
	if r.firstWrite == 0 {
		r.firstWrite = t.now
	}
}

func (t *Transport) pollWrites() {
	// Handling one write may fail its peer's other requests, which removes nothing from this list, or post new writes, which are added behind.
	n := 0
	for i := 0; i < len(t.writes); i++ {
		c := t.writes[i]
		e, pending := t.evidenceOf(c.req.peer, c.write)
		if pending || (c.doubted && !e.Closes(drain.Write)) {
			t.writes[n] = c
			n++
			continue
		}
		t.dirty = true
		if !t.onWritten(c, e) {
			t.writes[n] = c
			n++
		}
	}
	clear(t.writes[n:])
	t.writes = t.writes[:n]
}

// onWritten takes what the engine says of a write that is pending no more. It reports false while the write has no evidence and must be looked at again.
func (t *Transport) onWritten(c *chunk, e drain.Evidence) bool {
	r := c.req
	if !c.doubted {
		r.peer.pending--
	}
	switch {
	case e != drain.ErrorStatus:
	case t.mutated("release staging on a failed write"):
		e = drain.NothingPosted
	case t.mutated("take a failed write for a success"):
		e = drain.EngineSuccess
	}
	if !e.Closes(drain.Write) {
		c.doubted = true
		c.staging.Doubt(drain.Write)
		t.fail(r, &Failure{Kind: ErrWriteFailed, Cause: c.write.Err()})
		t.doubt(r.peer, c.write.Err())
		return false
	}
	err := c.write.Err()
	c.write.Release()
	c.write = nil
	c.staging.Close(drain.Write, e)
	if !t.mutated("forget to give staging back") && !(e == drain.NothingPosted && t.mutated("keep the staging of a write that was never posted")) {
		c.staging.Drop()
	}
	c.staging = nil
	r.lastWrite = t.now
	switch {
	case r.state != requestActive:
		t.advanceDrain(r)
	case e == drain.EngineSuccess:
		c.state = chunkWritten
		if r.firstData == 0 {
			r.firstData = t.now
		}
		t.progress(r)
		t.sendData(c)
	default:
		t.fail(r, &Failure{Kind: ErrWriteFailed, Cause: err})
	}
	return true
}

func (t *Transport) onAck(p *peer, a *wire.Ack) {
	r := p.requests[a.Request]
	if r == nil || r.state != requestActive {
		return
	}
	if int(a.Chunks) != len(r.chunks) {
		t.counters.Add(StaleAcks, 1)
		return
	}
	if a.Chunk == wire.WholeRequest {
		// Queued: the receiver knows of the request, so repeats can be rare. With a credit in hand it is an old answer, and a lost DATA must not wait for it.
		if r.credits > 0 {
			return
		}
		r.backoff = repeatMost
		t.timers.arm(&r.repeat, t.now.Add(t.jitter(r.backoff)))
		return
	}
	c := &r.chunks[a.Chunk]
	switch {
	case c.state == chunkAcked:
	case c.state != chunkWritten || !r.checked || c.credit.Region != a.Region: // unchecked: its DATA was not sent
		t.counters.Add(StaleAcks, 1)
	default:
		c.state = chunkAcked
		t.recycle(c)
		r.acked++
		r.lastAcked = t.now
		t.progress(r)
		if r.acked == len(r.chunks) || t.mutated("succeed with one ACK missing") && r.acked == len(r.chunks)-1 {
			t.succeed(r)
		}
	}
}

// succeed ends a request whose every write is latched and every chunk scattered.
func (t *Transport) succeed(r *request) {
	t.counters.Add(BounceSucceeded, 1)
	t.counters.Add(BouncedBytes, r.sub.Bytes)
	if len(r.sub.Notify) > 0 {
		t.notice(r.peer.id, r.sub.Notify)
	}
	t.forget(r)
	r.h.end(nil, r.stages(t.now))
}

func (t *Transport) onNack(p *peer, n *wire.Nack) {
	t.counters.Add(NacksReceived, 1)
	r := p.requests[n.Request]
	switch {
	case r == nil:
		if n.Reason != wire.ReasonScatterFailed {
			t.answerUntracked(p, n.Request)
		}
		return
	case r.state == requestDraining:
		t.nackWhileDraining(r, n)
		return
	}
	if n.Chunk != wire.WholeRequest && int(n.Chunk) < len(r.chunks) && r.chunks[n.Chunk].state == chunkAcked {
		return
	}
	if n.Reason == wire.ReasonOverloaded {
		// The receiver has no room; the same WANT may fare better later. This is no progress: the next repeat is the retry, and repeats back off by themselves.
		return
	}
	t.fail(r, &Failure{Kind: ErrRefused, Reason: n.Reason, Text: n.Text})
}

// answerUntracked states that no write of a request can land any more: it is not tracked, so it ended with evidence. A number that was never drawn gets no answer: the statement would still be
// on its way when the number is used.
func (t *Transport) answerUntracked(p *peer, id uint64) {
	if id > p.lastID {
		t.counters.Add(StrayFrames, 1)
		return
	}
	t.sendDrain(p, id)
}

// recycle gives a chunk's plan back to the planner.
func (t *Transport) recycle(c *chunk) {
	if c.plan != nil {
		c.req.sub.Recycle(c.plan)
		c.plan = nil
	}
}
