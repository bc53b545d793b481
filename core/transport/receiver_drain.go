package transport

import (
	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/core/wire"
)

// The receiver's life of a flow after its lease ended or its sender drained it.

// expiredFirst and expiredMost bound how often an expired flow that still holds regions says so.
const (
	expiredFirst = 2 * second
	expiredMost  = 60 * second
)

// renewLease starts an open flow's lease anew, unless a copy of it is queued or running: then it is held.
func (t *Transport) renewLease(f *flow) {
	if f.state != flowOpen || f.copies > 0 {
		return
	}
	t.timers.arm(&f.lease, t.now.Add(t.settings.ReceiverLease))
}

// fire is the end of a flow's lease, or its next NACK 10.
func (f *flow) fire(t *Transport, _ timerKind) {
	switch f.state {
	case flowOpen:
		t.expire(f)
	case flowExpired:
		t.sayExpired(f)
	}
}

// expire closes a flow whose sender has been silent for a lease. Silence proves nothing: regions stay as they are.
func (t *Transport) expire(f *flow) {
	t.counters.Add(FlowsExpired, 1)
	t.closeGrants(f)
	f.state = flowExpired
	if f.account.Open(drain.PeerWrite) == 0 && f.account.Open(drain.Scatter) == 0 {
		t.nackFlow(f, wire.ReasonExpired, "the flow's lease ended")
		t.forgetLive(f)
		return
	}
	t.log.Warn("a flow's lease ended while it holds regions; they are kept until the peer drains the request or is fenced", "peer", f.peer.id, "request", f.id)
	for _, rc := range f.chunks {
		if rc.stateNow() == regionGranted && t.mutated("free the regions of an expired flow") {
			t.closeRegion(rc, drain.SenderDrained)
			rc.state = regionOver
			t.freeRegion(rc)
			continue
		}
		if rc != nil && rc.hold != nil {
			rc.hold.Retain()
		}
	}
	f.backoff = expiredFirst
	t.sayExpired(f)
}

func (t *Transport) sayExpired(f *flow) {
	if !t.mutated("say nothing of an expired flow") {
		t.nackFlow(f, wire.ReasonExpired, "the flow's lease ended; its regions wait for DRAIN")
	}
	t.timers.arm(&f.lease, t.now.Add(t.jitter(f.backoff)))
	f.backoff = min(2*f.backoff, expiredMost)
}

func (t *Transport) forgetLive(f *flow) {
	t.forgetFlow(f)
	t.endLive(f)
}

func (t *Transport) onDrain(p *peer, d *wire.Drain) {
	t.wayBack(p, d.Endpoint)
	f := p.flows[d.Request]
	switch {
	case f == nil:
		t.answerDrain(p, d.Request)
	case f.state == flowFinished:
		t.answerDrain(p, f.id)
		t.forgetFlow(f)
	default:
		f.answer = true
		t.closeFlow(f, drain.SenderDrained)
	}
}

// closeBelow acts on every request of the peer below oldest as its DRAIN would, without an answer: the sender tracks none of them any more.
func (t *Transport) closeBelow(p *peer, oldest uint64) {
	if oldest <= p.highestOldest {
		return
	}
	p.highestOldest = oldest
	p.drained.dropBelow(oldest)
	for f := range p.flowList.All {
		if f.id >= oldest {
			return
		}
		if f.state == flowFinished {
			t.forgetFlow(f)
		} else {
			t.closeFlow(f, drain.SenderDrained)
		}
	}
}

// closeFlow closes a flow on evidence that no write of the request can land any more. Regions without a scatter go back at once.
func (t *Transport) closeFlow(f *flow, e drain.Evidence) {
	if f.state == flowOpen {
		t.closeGrants(f)
	}
	f.state = flowClosed
	t.timers.stop(&f.lease)
	t.dropQueued(f)
	for _, rc := range f.chunks {
		if rc.stateNow() == regionGranted {
			t.closeRegion(rc, e)
			rc.state = regionOver
			if !t.mutated("keep the regions of a drained flow") {
				t.freeRegion(rc)
			}
		}
	}
	t.advanceClosed(f)
}

// dropQueued drops a flow's queued scatters: not launched, they touched nothing. The queue skips them.
func (t *Transport) dropQueued(f *flow) {
	for _, rc := range f.chunks {
		if rc.stateNow() == regionQueued {
			t.giveRuns(rc)
			rc.state = regionOver
			f.copies--
			t.freeRegion(rc)
		}
	}
}

// advanceClosed answers and forgets a closed flow when no copy of it is left.
func (t *Transport) advanceClosed(f *flow) {
	open, doubtful := f.account.Open(drain.Scatter), f.account.Doubtful(drain.Scatter)
	switch {
	case open > doubtful:
		if f.answer && t.mutated("answer DRAIN before the scatter ends") {
			t.sendDrainAck(f.peer, f.id)
		}
		return
	case doubtful > 0:
		if f.answer {
			f.answer = false
			t.nackFlow(f, wire.ReasonScatterFailed, "a scatter of the request failed and may still run")
		}
		return
	}
	if f.answer {
		t.answerDrain(f.peer, f.id)
	}
	t.forgetLive(f)
}

// answerDrain answers a DRAIN of which nothing is left to do, and remembers it for a WANT that it overtook.
func (t *Transport) answerDrain(p *peer, id uint64) {
	t.sendDrainAck(p, id)
	if id >= p.highestOldest {
		p.drained.add(id)
	}
}
