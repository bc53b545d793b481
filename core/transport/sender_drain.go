package transport

import (
	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/core/wire"
)

// The sender's life of a request after its failure: nothing new is started, what runs is waited for, and the receiver is told by DRAIN when no write can
// land any more.

// scatterDoubtRepeat is how often DRAIN is repeated to a receiver that answered with NACK 7: a copy of its own is in doubt there.
const scatterDoubtRepeat = 60 * second

// fail ends a request logically, unless it has ended. Physically it ends when the evidence is in.
func (t *Transport) fail(r *request, f *Failure) {
	if r.peer == nil || r.state >= requestDraining {
		return
	}
	f.Peer, f.Request = r.peer.id, r.id
	if r.state == requestWaiting {
		t.endUntracked(r, f)
		return
	}
	r.state = requestDraining
	r.peer.draining++
	t.draining++
	t.counters.Add(BounceFailed, 1)
	t.timers.stop(&r.progress)
	t.timers.stop(&r.repeat)
	r.backoff = drainFirst
	r.drainEnd = t.now.Add(r.peer.info.RequestTimeout)
	for i := range r.chunks {
		t.endChunk(&r.chunks[i])
	}
	r.h.end(f, r.stages(t.now))
	if t.mutated("tell quiesced at the logical end") || r.peer.fenced && t.mutated("tell quiesced when the peer is fenced and not settled") {
		r.h.quiesce()
	}
	t.advanceDrain(r)
}

// failAll fails every request to a peer that is in progress, direct ones included.
func (t *Transport) failAll(p *peer, kind error, text string) {
	for r := range p.reqs.All {
		t.fail(r, &Failure{Kind: kind, Text: text})
	}
	t.failUnstarted(p, kind, text)
	for _, d := range t.directs {
		if d.peer == p {
			t.failDirect(d, &Failure{Kind: kind, Text: text})
		}
	}
}

// endChunk stops everything of a chunk that has not been handed to the device or the engine. Its staging goes back when what has been is over.
func (t *Transport) endChunk(c *chunk) {
	running := c.state == chunkGathering || c.state == chunkWriting
	if c.state == chunkGathering && c.gather != nil && t.mutated("drop staging under a running gather") {
		c.staging.Close(drain.Gather, drain.CopyCompleted)
		c.staging.Drop()
		c.staging = t.ledger.HoldDirect(&c.req.account)
		c.staging.Open(drain.Gather)
	}
	t.endAhead(c)
	c.node.Unlink()
	if c.staging != nil {
		c.staging.Drop()
		if !running {
			c.staging = nil
		}
	}
	// A running gather reads its runs until its event fires.
	if c.state != chunkGathering {
		t.recycle(c)
	}
	c.state = chunkOver
}

// advanceDrain looks at what is still open of a failed request, and takes the next step towards its physical end.
func (t *Transport) advanceDrain(r *request) {
	if r.account.Open(drain.Gather) == 0 {
		for i := range r.chunks {
			t.recycle(&r.chunks[i])
		}
		r.h.released.set()
	}
	if r.state == requestForgotten {
		t.checkQuiesced(r)
		t.release(r.peer)
		return
	}
	if r.account.Open(drain.Write) > 0 && !t.mutated("send DRAIN while a write has no evidence") {
		return
	}
	t.checkQuiesced(r)
	if !r.mayDrain && !r.peer.fenced {
		r.mayDrain = true
		t.sendDrain(r.peer, r.id)
		t.timers.arm(&r.repeat, t.now.Add(t.jitter(r.backoff)))
	}
}

// checkQuiesced tells the caller when nothing that the request started can touch memory any more: nothing of it runs here, and it wrote nothing or the receiver answered its DRAIN.
func (t *Transport) checkQuiesced(r *request) {
	if r.account.Open(drain.Gather) > 0 || r.account.Open(drain.Write) > 0 {
		return
	}
	if r.state == requestForgotten || !r.account.Happened(drain.Write) {
		r.h.quiesce()
	}
}

func (t *Transport) nackWhileDraining(r *request, n *wire.Nack) {
	if !r.mayDrain {
		return
	}
	switch {
	case n.Reason == wire.ReasonExpired:
		t.sendDrain(r.peer, r.id)
	case n.Reason == wire.ReasonScatterFailed && n.Chunk == wire.WholeRequest:
		// The answer to a DRAIN; a chunk's own NACK 7 was sent before one and says nothing of it.
		if !r.drainSlow {
			r.drainSlow = true
			t.log.Warn("the receiver has a copy in doubt; its answer to DRAIN is asked for once a minute", "peer", r.peer.id, "request", r.id)
		}
		t.timers.arm(&r.repeat, t.now.Add(scatterDoubtRepeat))
	}
}

func (t *Transport) onDrainAck(p *peer, a *wire.DrainAck) {
	r := p.requests[a.Request]
	switch {
	case r == nil || r.state == requestActive:
		if t.mutated("answer a stray DRAIN_ACK by DRAIN") {
			t.sendDrain(p, a.Request)
		}
	case !r.mayDrain:
		t.counters.Add(StrayFrames, 1)
	default:
		t.forget(r)
		t.checkQuiesced(r)
	}
}

// repeatDrain sends DRAIN again. A request that wrote nothing only frees regions by it, which a lease or a later `oldest` does too, so it gives up after a while.
func (t *Transport) repeatDrain(r *request) {
	if !r.account.Happened(drain.Write) && (!r.peer.heard || !t.now.Before(r.drainEnd)) {
		t.forget(r)
		return
	}
	if r.drainSlow {
		t.repeated(r)
		t.sendDrain(r.peer, r.id)
		t.timers.arm(&r.repeat, t.now.Add(scatterDoubtRepeat))
		return
	}
	if !t.mayRepeat(r, 2*r.backoff) {
		return
	}
	if !t.mutated("never repeat DRAIN") {
		t.sendDrain(r.peer, r.id)
	}
}

// forget ends the tracking of a request. Its number is then below every later `oldest`.
func (t *Transport) forget(r *request) {
	if r.state == requestDraining {
		r.peer.draining--
		t.draining--
	}
	r.state = requestForgotten
	t.timers.stop(&r.repeat)
	t.timers.stop(&r.progress)
	r.peer.untrack(r)
	if t.mutated("reuse a request number") && r.id == r.peer.lastID {
		r.peer.lastID--
	}
	for i := range r.chunks {
		c := &r.chunks[i]
		if c.state != chunkOver {
			t.endChunk(c)
		}
	}
	t.release(r.peer)
}
