package transport

import (
	"time"

	"github.com/kvbounce/kvbounce/core/credit"
	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/core/list"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// flowState is a flow's state at the receiver.
//
//	open -> finished -> forgotten
//	  '---> closed (waits for its copies, then DRAIN_ACK) ---> forgotten
//	  '---> expired (its regions are kept until DRAIN) ------> forgotten
//	  '---> fenced (its regions are kept until settled) -----> closed
type flowState uint8

const (
	flowOpen     flowState = iota
	flowExpired            // closed by its lease: regions stay until DRAIN or a higher `oldest`
	flowClosed             // closed by DRAIN or a higher `oldest`: waits for copies alone
	flowFenced             // closed by a fence of its peer: regions stay until the settle delay is over
	flowFinished           // every chunk scattered: kept for ACKs of repeated messages
)

// regionState is how far one chunk of a flow has come.
type regionState uint8

const (
	regionNone       regionState = iota // not granted
	regionGranted                       // the peer may write into it
	regionQueued                        // DATA was accepted; its scatter waits for a copy context
	regionScattering                    // its scatter may be running
	regionDone                          // scattered; the region is free
	regionInDoubt                       // its scatter failed
	regionOver                          // the flow was closed before a scatter
)

// flow is one request of a peer, at the receiver.
type flow struct {
	peer    *peer
	id      uint64
	state   flowState
	token   uint64
	sizes   []uint32
	chunks  []*regionChunk // nil: not granted, so that a peer's WANT costs no more than its own size
	nextAck int            // the chunk that the next answer to a WANT begins with
	acked   []uint64       // of a finished flow: each chunk's region; nothing else of its chunks stays
	done    int
	copies  int // scatters queued or running: they hold the lease
	account drain.Account
	credits *credit.Flow
	lease   timer
	backoff time.Duration // of NACK 10
	answer  bool          // DRAIN asked for an answer
	pending []wire.Credit // credits granted in this turn

	node list.Node[flow] // among its peer's
}

// regionChunk is one chunk of a flow and the region it was granted.
type regionChunk struct {
	flow    *flow
	index   uint32
	state   regionState
	region  uint64
	hold    *drain.Hold // nil: the region was given back
	held    drain.Hold  // hold's memory
	runs    ports.Runs
	scatter ports.Event
	checked uint64  // version of the registry that the runs were held against
	window  *Window // that the scatter runs in; nil: none
}

// count is the request's number of chunks.
func (f *flow) count() int {
	if f.state == flowFinished {
		return len(f.acked)
	}
	return len(f.chunks)
}

// stateNow is regionNone for a chunk that was not granted.
func (rc *regionChunk) stateNow() regionState {
	if rc == nil {
		return regionNone
	}
	return rc.state
}

// insert puts a flow into its peer's list, in order of number. Numbers mostly grow, so the search from the end is short.
func (p *peer) insert(f *flow) {
	p.flows[f.id] = f
	behind := p.flowList.Last
	for behind != nil && behind.Of.id > f.id {
		behind = behind.Prev
	}
	f.node.Of = f
	p.flowList.Insert(&f.node, behind)
}

func (p *peer) remove(f *flow) {
	delete(p.flows, f.id)
	f.node.Unlink()
}

// creditOf is the credit of a granted chunk.
func (t *Transport) creditOf(rc *regionChunk) wire.Credit {
	return wire.Credit{
		Addr: t.arena.Base + rc.hold.Block().Offset, Length: rc.flow.sizes[rc.index], Device: t.arena.Place.Device, Region: rc.region, Chunk: rc.index,
	}
}

func (t *Transport) sendGrant(f *flow, credits []wire.Credit) {
	t.out.grant = wire.Grant{Request: f.id, Chunks: uint32(len(f.sizes)), Credits: credits}
	t.send(f.peer, &t.out.grant)
}

func (t *Transport) sendAck(f *flow, chunk uint32, region uint64) {
	t.out.ack = wire.Ack{Request: f.id, Region: region, Chunk: chunk, Chunks: uint32(f.count())}
	t.send(f.peer, &t.out.ack)
}

func (t *Transport) sendQueued(f *flow) {
	t.out.ack = wire.Ack{Request: f.id, Chunk: wire.WholeRequest, Chunks: uint32(len(f.sizes))}
	t.send(f.peer, &t.out.ack)
}

func (t *Transport) sendDrainAck(p *peer, id uint64) {
	t.out.done = wire.DrainAck{Request: id}
	t.send(p, &t.out.done)
}

// nackHeader refuses the message with this header: a chunk's DATA by its region and chunk, all else as the whole request.
func (t *Transport) nackHeader(p *peer, h wire.Header, reason wire.Reason, text string) {
	if h.Type == wire.TypeData && h.Region != 0 && h.Chunk < h.Chunks {
		t.nack(p, wire.Nack{Request: h.Request, Region: h.Region, Chunk: h.Chunk, Chunks: h.Chunks, Reason: reason, Text: text})
		return
	}
	t.nackWhole(p, h.Request, h.Chunks, reason, text)
}

func (t *Transport) nackWhole(p *peer, id uint64, chunks uint32, reason wire.Reason, text string) {
	t.nack(p, wire.Nack{Request: id, Chunk: wire.WholeRequest, Chunks: chunks, Reason: reason, Text: text})
}

// nackFlow refuses a flow as a whole, nackChunk one of its chunks.
func (t *Transport) nackFlow(f *flow, reason wire.Reason, text string) {
	t.nackWhole(f.peer, f.id, uint32(f.count()), reason, text)
}

func (t *Transport) nackChunk(rc *regionChunk, reason wire.Reason, text string) {
	f := rc.flow
	t.nack(f.peer, wire.Nack{Request: f.id, Region: rc.region, Chunk: rc.index, Chunks: uint32(f.count()), Reason: reason, Text: text})
}

func (t *Transport) nack(p *peer, n wire.Nack) {
	n.Text = wire.CutText(n.Text)
	t.counters.Add(NacksSent, 1)
	t.out.nack = n
	t.send(p, &t.out.nack)
}
