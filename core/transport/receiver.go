package transport

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kvbounce/kvbounce/core/credit"
	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// The receiver's life of a flow. Each function is one event; the table is protocol.md's, 7, Frame by state.

// maxFinished bounds the finished flows that are kept for re-ACK, per peer. A duplicate for a dropped one is an unknown flow: it may cost that request, never bytes.
const maxFinished = 1024

// Chunks of finished flows are kept for the next grants, and decoded runs for the next DATA, within bounds that a peer can't stretch for long.
const (
	maxSpareChunks = 1024
	maxSpareRuns   = 64
	maxSpareCap    = 1 << 15
)

func (t *Transport) onWant(p *peer, w *wire.Want) {
	t.wayBack(p, w.Endpoint)
	t.closeBelow(p, w.Oldest)
	if w.Request < p.highestOldest {
		t.counters.Add(WantsBelowOldest, 1)
		return
	}
	f := p.flows[w.Request]
	if f == nil && p.drained.has(w.Request) {
		t.counters.Add(WantsAfterDrain, 1)
		return
	}
	if f == nil {
		t.admit(p, w)
		return
	}
	t.renewLease(f)
	switch {
	case f.state == flowExpired || f.state == flowClosed:
		t.nackWhole(p, w.Request, uint32(len(w.ChunkBytes)), wire.ReasonExpired, "the flow is closed")
	case f.state == flowOpen && (f.token != w.Token || !slices.Equal(f.sizes, w.ChunkBytes)):
		t.nackWhole(p, w.Request, uint32(len(w.ChunkBytes)), wire.ReasonMalformed, "a repeated WANT contradicts the first")
	default:
		t.answerWant(f)
	}
}

// answerWant says again what a repeated WANT asks for: credits of chunks that hold one, that it is queued, and ACKs of those that are done.
func (t *Transport) answerWant(f *flow) {
	if f.state == flowFinished {
		t.sendAcks(f)
		return
	}
	credits := t.out.grant.Credits[:0]
	done, pending := false, uint32(0)
	for i, rc := range f.chunks {
		switch rc.stateNow() {
		case regionNone:
			pending = max(pending, f.sizes[i])
		case regionDone:
			done = true
		case regionGranted, regionQueued, regionScattering:
			if t.mutated("forget a lost GRANT's credit") {
				continue
			}
			credits = append(credits, t.creditOf(rc))
		}
	}
	switch {
	case len(credits) > 0:
		t.sendGrant(f, credits)
	case pending > 0 && !t.placeable(pending):
		t.nackFlow(f, wire.ReasonOverloaded, noRoom)
	case !done:
		t.sendQueued(f)
	}
	if done {
		t.sendAcks(f)
	}
}

// maxAcks is how many ACKs answer one WANT: so few that they leave room for credits among the frames that a peer gets before it says more (maxUnanswered). The others' turn is the next time; and a lost ACK is
// repaired by its DATA too.
const maxAcks = maxUnanswered / 4

// sendAcks says again which chunks are done.
func (t *Transport) sendAcks(f *flow) {
	sent := 0
	for range f.count() {
		i := f.nextAck % f.count()
		if sent == maxAcks {
			return
		}
		f.nextAck = i + 1
		region, done := uint64(0), f.state == flowFinished
		if done {
			region = f.acked[i]
		} else if rc := f.chunks[i]; rc.stateNow() == regionDone {
			region, done = rc.region, true
		}
		if done {
			t.sendAck(f, uint32(i), region)
			sent++
		}
	}
}

// noRoom is the text of NACK 9 when blocks in doubt stand in every place for a chunk.
const noRoom = "blocks in doubt leave no room for a chunk of the request"

func (t *Transport) placeable(bytes uint32) bool {
	return t.credits.Placeable(uint64(bytes), credit.ForGrant)
}

// admit takes a new flow, or refuses it without keeping anything.
func (t *Transport) admit(p *peer, w *wire.Want) {
	refuse := func(reason wire.Reason, text string) {
		t.nackWhole(p, w.Request, uint32(len(w.ChunkBytes)), reason, text)
	}
	limit := t.settings.MaxChunk
	window := t.registry.window(w.Token)
	switch largest := slices.Max(w.ChunkBytes); {
	case t.closing:
		refuse(wire.ReasonRefused, "the receiver is closing")
		return
	case p.superseded:
		refuse(wire.ReasonRefused, "a newer incarnation of the name was added")
		return
	case w.Token != 0 && window == nil:
		refuse(wire.ReasonReceiveWindow, noWindow)
		return
	case w.Token == 0 && t.settings.RequireToken:
		refuse(wire.ReasonReceiveWindow, "the receiver requires a receive token")
		return
	case len(w.ChunkBytes) > plan.MaxChunks:
		refuse(wire.ReasonTooLarge, fmt.Sprintf("the request has %d chunks, at most %d are allowed", len(w.ChunkBytes), plan.MaxChunks))
		return
	case uint64(largest) > limit:
		refuse(wire.ReasonTooLarge, fmt.Sprintf("a chunk has %d bytes, at most %d are allowed", largest, limit))
		return
	case p.live >= t.settings.MaxFlowsPerPeer:
		refuse(wire.ReasonOverloaded, fmt.Sprintf("the peer has %d flows, at most %d are allowed", p.live, t.settings.MaxFlowsPerPeer))
		return
	case !t.placeable(largest) || !t.credits.Room():
		refuse(wire.ReasonOverloaded, noRoom)
		return
	}
	f := &flow{peer: p, id: w.Request, token: w.Token, sizes: slices.Clone(w.ChunkBytes)}
	f.account.Party = &p.party
	f.chunks = make([]*regionChunk, len(f.sizes))
	f.lease = timer{kind: timerLease, owner: f}
	p.insert(f)
	p.live++
	t.liveFlows++
	t.timers.stop(&p.idle)
	if window != nil && window.ready != nil {
		t.unready = append(t.unready, f)
	} else {
		f.credits = t.grants.Open(f, f.sizes)
	}
	t.renewLease(f)
	t.counters.Add(FlowsAdmitted, 1)
}

// pollWindows lets flows ask for regions whose receive window's ready event has fired.
func (t *Transport) pollWindows() {
	t.unready = slices.DeleteFunc(t.unready, func(f *flow) bool {
		if f.state != flowOpen {
			return true
		}
		w, status := t.registry.window(f.token), ports.CopyFailed
		if w != nil {
			status = w.ready.Status()
		}
		switch status {
		case ports.CopyPending:
			return false
		case ports.CopyDone:
			f.credits = t.grants.Open(f, f.sizes)
		default:
			text := noWindow
			if w != nil {
				text = "the window's ready event failed"
				t.log.Error("the ready event of a receive window failed; the window is closed", "cause", w.ready.Err())
				w.Close()
			}
			t.nackFlow(f, wire.ReasonReceiveWindow, text)
			t.forgetLive(f)
		}
		t.dirty = true
		return true
	})
}

// closeGrants takes a flow out of the scheduler, if it is in it.
func (t *Transport) closeGrants(f *flow) {
	if f.credits != nil {
		t.grants.Close(f.credits)
	}
}

// grant gives out what the arena has room for, and tells each flow's peer in one message.
func (t *Transport) grant() {
	if t.grants == nil {
		return
	}
	for {
		g, ok := t.grants.Next()
		if !ok {
			if t.clearWay() {
				continue
			}
			break
		}
		f := g.Flow.Owner.(*flow)
		t.nextRegion++
		rc := t.takeChunk()
		rc.flow, rc.index, rc.state, rc.region = f, uint32(g.Chunk), regionGranted, t.nextRegion
		f.chunks[g.Chunk] = rc
		rc.hold = t.ledger.Hold(&rc.held, g.Block, &f.account)
		rc.hold.Open(drain.PeerWrite)
		t.regions++
		if len(f.pending) == 0 {
			t.granted = append(t.granted, f)
		}
		f.pending = append(f.pending, t.creditOf(rc))
	}
	for i, f := range t.granted {
		t.sendGrant(f, f.pending)
		f.pending = f.pending[:0]
		t.renewLease(f)
		t.granted[i] = nil
		t.dirty = true
	}
	t.granted = t.granted[:0]
}

// clearWay gives up staging without a credit that lies where a waiting grant is promised room (core/credit), and reports whether there was any.
func (t *Transport) clearWay() (cleared bool) {
	if t.grants.Active() == 0 {
		return false
	}
	for c := range t.cached.All {
		if t.credits.InTheWay(c.staging.Block()) {
			t.takeStaging(c)
			cleared = true
		}
	}
	return cleared
}

func (t *Transport) onData(p *peer, d *wire.Data) {
	f := p.flows[d.Request]
	if t.mutated("accept DATA for a region of another flow") {
		f = t.anyFlow(f, d)
	}
	refuse := func(reason wire.Reason, text string) {
		t.nack(p, wire.Nack{Request: d.Request, Region: d.Region, Chunk: d.Chunk, Chunks: d.Chunks, Reason: reason, Text: text})
	}
	switch {
	case d.Request < p.highestOldest:
		return
	case f == nil:
		refuse(wire.ReasonUnknownFlow, "the flow is not known")
		return
	}
	t.renewLease(f)
	if int(d.Chunks) != f.count() {
		refuse(wire.ReasonMalformed, fmt.Sprintf("the request has %d chunks", f.count()))
		return
	}
	if f.state == flowFinished {
		if f.acked[d.Chunk] != d.Region {
			refuse(wire.ReasonOutsideChunk, fmt.Sprintf("chunk %d was not granted region %d", d.Chunk, d.Region))
			return
		}
		t.sendAck(f, d.Chunk, d.Region)
		return
	}
	rc := f.chunks[d.Chunk]
	switch {
	case rc.stateNow() == regionDone && rc.region == d.Region:
		t.sendAck(f, rc.index, rc.region)
		return
	case f.state == flowExpired || f.state == flowClosed:
		t.nackFlow(f, wire.ReasonExpired, "the flow is closed")
		return
	case rc == nil || rc.region != d.Region:
		refuse(wire.ReasonOutsideChunk, fmt.Sprintf("chunk %d was not granted region %d", d.Chunk, d.Region))
		return
	case rc.state == regionInDoubt:
		refuse(wire.ReasonScatterFailed, "the chunk's scatter failed")
		return
	case rc.state != regionGranted:
		if rc.state == regionScattering && t.mutated("scatter a chunk again when DATA is repeated") {
			_, _ = t.compute.Scatter(rc.runs, t.arena.Base+rc.hold.Block().Offset)
		}
		return
	}
	// Read first: what is taken back while the check runs must be seen at launch.
	version := t.registry.Version()
	if reason, text := t.checkData(f, rc, d.Runs); reason != 0 {
		refuse(reason, text)
		return
	}
	rc.checked = version
	// The sender sends DATA only after the success of its write was latched.
	t.closeRegion(rc, drain.SenderLatched)
	rc.state = regionQueued
	f.copies++
	// The decoder's slices become the chunk's; it decodes into spare ones from now on.
	rc.runs, d.Runs = d.Runs, take(&t.spareRuns)
	t.timers.stop(&f.lease)
	t.scatterQ = append(t.scatterQ, rc)
}

// checkData holds the DATA of a granted chunk against what it may do.
func (t *Transport) checkData(f *flow, rc *regionChunk, runs ports.Runs) (wire.Reason, string) {
	if err := checkPlaces(runs, uint64(f.sizes[rc.index])); err != nil && !t.mutated("accept runs outside the chunk") {
		return wire.ReasonOutsideChunk, err.Error()
	}
	if reason, text := t.registry.Admit(runs, t.arena.Place, f.token); reason != 0 && !t.mutated("accept destinations outside registered memory") {
		return reason, text
	}
	return 0, ""
}

// closeRegion notes the evidence that the peer's write into the region ended.
func (t *Transport) closeRegion(rc *regionChunk, e drain.Evidence) {
	rc.hold.Close(drain.PeerWrite, e)
	t.regions--
}

// launchScatters starts queued scatters while there are copy contexts.
func (t *Transport) launchScatters() {
	t.scatterQ = slices.DeleteFunc(t.scatterQ, func(rc *regionChunk) bool {
		return rc.state != regionQueued || !t.copiesFull() && t.launchScatter(rc)
	})
}

// launchScatter starts one scatter. It reports false when no copy context was free.
func (t *Transport) launchScatter(rc *regionChunk) bool {
	f := rc.flow
	if reason, text := t.registry.enter(rc, t.arena.Place); reason != 0 {
		t.nackChunk(rc, reason, text)
		t.dropScatter(rc)
		return true
	}
	t.scattered = true
	rc.hold.Open(drain.Scatter)
	event, err := t.compute.Scatter(rc.runs, t.arena.Base+rc.hold.Block().Offset)
	switch {
	case errors.Is(err, ports.ErrBusy):
		rc.hold.Close(drain.Scatter, drain.NeverStarted)
		t.registry.leave(rc)
		return false
	case errors.Is(err, ports.ErrNotLaunched):
		rc.hold.Close(drain.Scatter, drain.NeverStarted)
		t.registry.leave(rc)
		t.nackChunk(rc, wire.ReasonScatterFailed, err.Error())
		t.dropScatter(rc)
		return true
	case err != nil:
		t.scatterInDoubt(rc, err)
		return true
	}
	rc.state, rc.scatter = regionScattering, event
	if t.mutated("ACK before the scatter is done") {
		t.sendAck(f, rc.index, rc.region)
	}
	t.scatters = append(t.scatters, rc)
	t.counters.Add(ScattersRun, 1)
	t.dirty = true
	return true
}

// dropScatter takes a queued scatter back. The chunk stays granted, in the hands of a sender that now fails the request.
func (t *Transport) dropScatter(rc *regionChunk) {
	t.giveRuns(rc)
	rc.state = regionGranted
	rc.flow.copies--
	rc.hold.Open(drain.PeerWrite)
	t.regions++
	t.renewLease(rc.flow)
}

func (t *Transport) pollScatters() {
	t.scatters = slices.DeleteFunc(t.scatters, func(rc *regionChunk) bool {
		e, pending := drain.OfCopy(rc.scatter.Status())
		switch {
		case pending:
			return false
		case e.Closes(drain.Scatter):
			t.onScattered(rc, e)
		default:
			t.scatterInDoubt(rc, rc.scatter.Err())
		}
		t.dirty = true
		return true
	})
}

func (t *Transport) onScattered(rc *regionChunk, e drain.Evidence) {
	f := rc.flow
	rc.hold.Close(drain.Scatter, e)
	t.registry.leave(rc)
	rc.state, rc.scatter = regionDone, nil
	t.giveRuns(rc)
	t.freeRegion(rc)
	f.copies--
	f.done++
	t.sendAck(f, rc.index, rc.region)
	switch {
	case f.state == flowFenced:
	case f.done == len(f.chunks) && f.state != flowClosed:
		t.finish(f)
	case f.state == flowClosed:
		t.advanceClosed(f)
	case f.state == flowOpen:
		t.renewLease(f)
	}
}

// freeRegion says that a chunk needs its region no more.
func (t *Transport) freeRegion(rc *regionChunk) {
	rc.hold.Drop()
	rc.hold = nil
	t.grants.Returned(rc.flow.credits)
}

// scatterInDoubt keeps the region and the destination of a scatter that failed: the device may still be copying.
func (t *Transport) scatterInDoubt(rc *regionChunk, cause error) {
	if t.mutated("free the region of a failed scatter") {
		t.onScattered(rc, drain.CopyCompleted)
		return
	}
	f := rc.flow
	rc.state = regionInDoubt
	f.copies--
	rc.hold.Doubt(drain.Scatter)
	t.stuckScatters = append(t.stuckScatters, rc)
	t.log.Error("a scatter failed and nothing proves that it ended; its region and its destination are in doubt", "peer", f.peer.id, "request", f.id, "chunk", rc.index, "cause", cause)
	t.nackChunk(rc, wire.ReasonScatterFailed, cause.Error())
	if f.state == flowClosed {
		t.advanceClosed(f)
	} else {
		t.renewLease(f)
	}
}

// finish ends a flow whose every chunk is scattered.
func (t *Transport) finish(f *flow) {
	p := f.peer
	f.state = flowFinished
	t.timers.stop(&f.lease)
	t.grants.Close(f.credits)
	// What repeated messages need is all that stays.
	f.acked = make([]uint64, len(f.chunks))
	for i, rc := range f.chunks {
		f.acked[i] = rc.region
		t.giveChunk(rc)
	}
	f.chunks, f.sizes, f.credits, f.pending = nil, nil, nil, nil
	t.counters.Add(FlowsFinished, 1)
	p.finished++
	if p.finished > maxFinished {
		t.forgetFlow(p.oldestFinished())
	}
	t.endLive(f)
}

// oldestFinished is the finished flow with the lowest number; there is one.
func (p *peer) oldestFinished() *flow {
	n := p.flowList.First
	for n.Of.state != flowFinished {
		n = n.Next
	}
	return n.Of
}

func (t *Transport) endLive(f *flow) {
	f.peer.live--
	t.liveFlows--
	t.release(f.peer)
}

// forgetFlow drops a flow that nothing waits for.
func (t *Transport) forgetFlow(f *flow) {
	t.timers.stop(&f.lease)
	if f.state == flowFinished {
		f.peer.finished--
	}
	f.peer.remove(f)
}

// take is the last of some spare things, the zero value if there is none.
func take[T any](spare *[]T) (x T) {
	if n := len(*spare); n > 0 {
		x, (*spare)[n-1] = (*spare)[n-1], x
		*spare = (*spare)[:n-1]
	}
	return x
}

// takeChunk is a chunk with nothing in it.
func (t *Transport) takeChunk() *regionChunk {
	if rc := take(&t.spareChunks); rc != nil {
		return rc
	}
	return new(regionChunk)
}

// giveChunk keeps a chunk of a finished flow, to which nothing refers any more, for another.
func (t *Transport) giveChunk(rc *regionChunk) {
	*rc = regionChunk{}
	if len(t.spareChunks) < maxSpareChunks {
		t.spareChunks = append(t.spareChunks, rc)
	}
}

func (t *Transport) giveRuns(rc *regionChunk) {
	if len(t.spareRuns) < maxSpareRuns && cap(rc.runs.Runs)+cap(rc.runs.Index) <= maxSpareCap {
		t.spareRuns = append(t.spareRuns, ports.Runs{Runs: rc.runs.Runs[:0], Index: rc.runs.Index[:0]})
	}
	rc.runs = ports.Runs{}
}
