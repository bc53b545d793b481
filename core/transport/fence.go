package transport

import (
	"slices"
	"time"

	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/ports"
)

// Fencing (protocol.md, 7, A peer that is gone): the caller states that a process can no longer run. Its frames count for nothing from then on. What its writes left on the way lands while this
// side drives the engine, at the latest within the settle delay; after that nothing of it can touch memory here, and nothing that was written to it is read by anyone.

// How a turn counts for the settle delay, by the time since the engine was last driven: within settleGap it counts, beyond settleAnew bytes may have piled up that were not there before.
const (
	settleGap  = 10 * time.Millisecond
	settleAnew = time.Second
)

// FenceReport says what a fence gave back.
type FenceReport struct {
	Peer    ports.Identity
	Settled bool // false when the agent stopped before the settle delay was over; nothing was given back then

	Regions      int // of the arena that the peer might still have written
	RegionBytes  uint64
	Staging      int // blocks that a write to the peer might still have read
	StagingBytes uint64
	Requests     int // to the peer that were quiesced by it, direct ones included
	Kept         int // regions that stay, because their copy has not completed
}

// fence is a settle delay that runs.
type fence struct {
	peer   *peer
	driven time.Duration // how much of the delay has counted
	last   ports.Instant // when the engine was last seen driven, real time
	done   []func(FenceReport)
}

// FencePeer closes everything of an incarnation that can no longer run, and gives it back after the settle delay; done is then called in the reactor. A peer that holds
// nothing is settled at once, unless memory was ever registered for direct use: what it wrote there may still be on the way. The fence is remembered. Any goroutine.
func (t *Transport) FencePeer(id ports.Identity, done func(FenceReport)) error {
	return t.put(func(t *Transport) { t.fencePeer(id, done) }, true)
}

func (t *Transport) fencePeer(id ports.Identity, done func(FenceReport)) {
	if i := slices.IndexFunc(t.fences, func(f *fence) bool { return f.peer.id == id }); i >= 0 {
		t.fences[i].done = append(t.fences[i].done, done)
		return
	}
	p := t.peers[id]
	if p == nil && !t.retired.set[id].fenced && t.registry.everDirect() {
		// It may have written directly, which leaves no trace here.
		p = t.newPeer(id)
		p.superseded = true
	}
	switch {
	case p == nil:
		t.retired.add(id, retiredPeer{superseded: true, fenced: true, lastID: t.retired.lastID(id)})
		done(FenceReport{Peer: id, Settled: true})
		return
	case p.fenced:
		done(FenceReport{Peer: id, Settled: true, Kept: p.party.Totals().Blocks})
		return
	}
	t.log.Info("peer fenced; what it held is given back after the settle delay", "peer", id, "delay", t.settings.SettleDelay)
	if !p.added && !p.superseded {
		t.strangers--
	}
	p.fenced, p.superseded, p.settling = true, true, true
	t.setGate(p)
	if t.control != nil {
		t.control.Disconnect(id)
	}
	t.failAll(p, ErrFenced, "")
	for f := range p.flowList.All {
		t.fenceFlow(f)
	}
	for r := range p.reqs.All {
		t.timers.stop(&r.repeat)
		r.h.settling.Store(true)
	}
	for _, d := range t.directs {
		if d.peer == p {
			d.h.settling.Store(true)
		}
	}
	t.timers.stop(&p.idle)
	t.fences = append(t.fences, &fence{peer: p, last: t.real, done: []func(FenceReport){done}})
}

// fenceFlow closes a flow of a fenced peer. Its queued scatters are dropped, and what it may still be writing is kept until the settle delay is over.
func (t *Transport) fenceFlow(f *flow) {
	switch f.state {
	case flowFinished:
		t.forgetFlow(f)
		return
	case flowClosed:
		return
	case flowOpen:
		t.closeGrants(f)
	}
	f.state = flowFenced
	t.timers.stop(&f.lease)
	t.dropQueued(f)
	for _, rc := range f.chunks {
		if rc.stateNow() == regionGranted {
			rc.hold.Retain()
		}
		if rc.stateNow() == regionScattering && t.mutated("free a fenced peer's region while its scatter runs") {
			t.endScatter(rc)
		}
	}
}

// countDriven counts this turn for the settle delays, if it saw that the engine was driven.
func (t *Transport) countDriven() {
	if t.turnCounter != nil {
		turns := t.turnCounter.Turns()
		if turns == t.turns {
			return
		}
		t.turns = turns
	}
	for _, f := range t.fences {
		switch gap := t.real.Sub(f.last); {
		case gap > settleAnew:
			f.driven = 0
		case gap <= settleGap:
			f.driven += gap
		}
		f.last = t.real
	}
}

// settleFences ends the settle delays that are over, in a turn that drove the engine.
func (t *Transport) settleFences() {
	if len(t.fences) == 0 {
		return
	}
	direct := t.registry.everDirect()
	t.fences = slices.DeleteFunc(t.fences, func(f *fence) bool {
		p := f.peer
		if (direct || p.inUse()) && (f.driven < t.settings.SettleDelay || f.last != t.real) && !t.mutated("end a fence before the settle delay") {
			return false
		}
		t.dirty = true
		report := t.settle(p)
		t.log.Info("a fenced peer is settled", "peer", p.id, "regions", report.Regions, "staging", report.Staging, "requests", report.Requests, "kept", report.Kept)
		for _, done := range f.done {
			done(report)
		}
		return true
	})
}

// settle gives back what a fenced peer held, on the evidence that it is fenced and settled.
func (t *Transport) settle(p *peer) FenceReport {
	report := FenceReport{Peer: p.id, Settled: true}
	if p.engine {
		t.engine.Disconnect(p.id)
		p.engine = false
	}
	for r := range p.reqs.All {
		for i := range r.chunks {
			c := &r.chunks[i]
			if c.write == nil {
				continue
			}
			report.Staging++
			report.StagingBytes += c.staging.Block().Bytes
			if !c.doubted {
				p.pending--
			}
			c.write.Release()
			c.write = nil
			c.staging.Close(drain.Write, drain.FencedAndSettled)
			c.staging = nil
		}
		report.Requests++
		r.h.settling.Store(false)
		t.forget(r)
		t.checkQuiesced(r)
	}
	t.writes = slices.DeleteFunc(t.writes, func(c *chunk) bool { return c.write == nil })
	t.directs = slices.DeleteFunc(t.directs, func(d *direct) bool {
		if d.peer != p || d.transfer == nil {
			return false
		}
		report.Requests++
		d.h.settling.Store(false)
		t.endDirect(d, drain.FencedAndSettled)
		return true
	})
	for f := range p.flowList.All {
		for _, rc := range f.chunks {
			switch {
			case rc == nil || rc.hold == nil:
			case rc.hold.IsOpen(drain.PeerWrite):
				report.Regions++
				report.RegionBytes += rc.hold.Block().Bytes
			case rc.hold.IsOpen(drain.Scatter) && !t.mutated("report nothing of the regions that a fence keeps"):
				report.Kept++
			}
		}
		f.answer = false
		t.closeFlow(f, drain.FencedAndSettled)
	}
	p.settling = false
	if !p.inUse() {
		t.forgetPeer(p)
	}
	return report
}
