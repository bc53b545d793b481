package transport

import (
	"time"

	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/core/list"
	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// requestState is a tracked request's state.
//
//	waiting -> active -> (success: forgotten)
//	    |         '----> draining -> forgotten
//	    '--> (failure before WANT: forgotten)
type requestState uint8

const (
	requestWaiting   requestState = iota // for the caller's ready event; no WANT was sent
	requestActive                        // in progress
	requestDraining                      // failed; its gathers and writes must be proven and DRAIN answered
	requestForgotten                     // no longer tracked
)

// Submission is what a submitter hands over to start a bounce request.
type Submission struct {
	Peer   ports.Identity
	Chunks []uint32 // bytes of each chunk; the transport keeps the slice
	// Plan is the whole plan, if it is made: the transport reads it and never changes or recycles it, so that requests may share it. nil: the chunks follow by Handle.Planned.
	Plan []*plan.Chunk
	// Unchecked holds all DATA back until Handle.PlanChecked: nothing was scattered yet if the plan turns out to be wrong. Until then the transport does not read chunks' scatter runs.
	Unchecked bool
	Bytes     uint64 // bytes moved, without padding
	Token     uint64 // receive token, 0 none
	Ready     ports.Event
	Notify    []byte        // sent to the peer's application after success
	PlanTime  time.Duration // what the size pass took
	Recycle   func(*plan.Chunk)
}

// request is a bounce request at the sender, owned by the reactor.
type request struct {
	h       *Handle
	peer    *peer
	id      uint64
	state   requestState
	sub     Submission
	chunks  []chunk
	planned int
	checked bool // DATA may leave
	credits int
	acked   int
	written int // DATA messages sent, repeats too
	account drain.Account

	repeat   timer
	progress timer
	backoff  time.Duration
	last     ports.Instant // of the last progress
	resend   int           // which chunk repair towards a silent peer looks at next

	mayDrain  bool // DRAIN was sent at least once
	drainSlow bool // the receiver has a copy in doubt: NACK 7
	drainEnd  ports.Instant

	began                                        ports.Instant
	firstGather, firstWrite, firstData           ports.Instant
	lastCredit, lastGather, lastWrite, lastAcked ports.Instant

	node list.Node[request] // among those to its peer
}

// Start hands a request to the reactor. Unless Submission.Plan has them, its chunks follow by Handle.Planned, in order. Any goroutine.
func (t *Transport) Start(s Submission) (*Handle, error) {
	h := &Handle{path: PathBounce, peer: s.Peer, bytes: s.Bytes, planTime: s.PlanTime, transport: t}
	h.request = &request{h: h, sub: s, checked: !s.Unchecked}
	if err := t.do(func(t *Transport) { t.startRequest(h.request) }); err != nil {
		return nil, err
	}
	t.counters.Add(BounceSubmits, 1)
	return h, nil
}

// track puts the request at the end of its peer's.
func (p *peer) track(r *request) {
	p.lastID++
	r.id = p.lastID
	r.h.id.Store(r.id)
	p.requests[r.id] = r
	r.node.Of = r
	p.reqs.Push(&r.node)
	p.tracked++
}

func (p *peer) untrack(r *request) {
	delete(p.requests, r.id)
	r.node.Unlink()
	p.tracked--
}

// stages are the request's times at its logical end.
func (r *request) stages(now ports.Instant) Stages {
	s := Stages{Plan: r.h.planTime}
	if r.began != 0 {
		s.Total = now.Sub(r.began)
	}
	span := func(from, to ports.Instant) time.Duration {
		if from == 0 || to < from {
			return 0
		}
		return to.Sub(from)
	}
	s.WantGrant = span(r.began, r.lastCredit)
	s.Gather = span(r.firstGather, r.lastGather)
	s.Write = span(r.firstWrite, r.lastWrite)
	s.DataAck = span(r.firstData, r.lastAcked)
	return s
}

// sendWant sends WANT, for the first time or again.
func (t *Transport) sendWant(r *request) {
	w := &t.out.want
	*w = wire.Want{Request: r.id, Oldest: r.peer.reqs.First.Of.id, Token: r.sub.Token, Endpoint: t.control.Endpoint(), ChunkBytes: r.sub.Chunks}
	if t.mutated("state an oldest above requests in progress") {
		w.Oldest = r.id
	}
	t.send(r.peer, w)
}

// sendData sends the DATA of a written chunk, for the first time or again, unless it is held back.
func (t *Transport) sendData(c *chunk) {
	if !c.req.checked {
		return
	}
	t.out.data = wire.Data{Request: c.req.id, Region: c.credit.Region, Chunk: c.index, Chunks: uint32(len(c.req.chunks)), Runs: c.plan.Scatter}
	t.send(c.req.peer, &t.out.data)
	if c.req.written++; c.req.written == len(c.req.chunks) {
		c.req.h.near.set()
	}
}

func (t *Transport) sendDrain(p *peer, id uint64) {
	t.out.drain = wire.Drain{Request: id, Endpoint: t.control.Endpoint()}
	t.send(p, &t.out.drain)
}
