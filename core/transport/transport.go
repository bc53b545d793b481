package transport

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kvbounce/kvbounce/core/credit"
	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/core/list"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// ErrStale: an incarnation was superseded here, or a description is older than the one that is known.
var ErrStale = errors.New("stale peer")

// pauseLimit is how late a Poll may come before the process counts as paused: every deadline then moves by the excess, so that a process that was stopped does not
// fail its requests with the evidence in its socket (protocol.md, 7, Repair).
const pauseLimit = time.Second

// framesPerPoll bounds the frames of one turn, so that a peer that floods can't keep completions from being seen. Timers wait for a turn that
// took in everything.
const framesPerPoll = 1024

// framesSlice is how long a turn takes frames in: some cost more than others, and what a peer sends must not keep completions waiting.
const framesSlice = 5 * time.Millisecond

// maxUndrained is how many turns in a row may stop before they took in everything; then timers fire all the same.
const maxUndrained = 16

// Settings are the numbers a transport goes by; core/config holds their defaults and rules.
type Settings struct {
	ReceiverLease    time.Duration
	SettleDelay      time.Duration
	RetainLimit      uint64 // bytes of the arena that may be in doubt before new bounce requests are refused
	Window           int    // chunks of one flow that may hold a region at once
	MaxChunk         uint64 // bytes; larger chunks in a WANT are refused
	MaxFlowsPerPeer  int
	MaxPeers         int // entries made by frames
	EagerGather      bool
	RequireToken     bool
	DirectRegistered func() bool // whether memory is registered for direct use, or the application takes notifications: peers then need this side to drive the engine
}

// Options are what a transport is made of. Without bounce Control, Compute and Credits are nil.
type Options struct {
	Self     ports.Identity
	Settings Settings
	Engine   ports.TransferEngine
	Control  ports.ControlChannel
	Compute  ports.GpuCompute
	Arena    ports.Arena
	Credits  *credit.Arena
	Registry *Registry
	Rand     ports.Randomness
	Clock    ports.Clock             // may be nil: then the time that a turn takes counts as a pause
	Wake     func()                  // called by submitters when the reactor may be asleep
	Attend   func(until func() bool) // how Handle.Wait waits at first, and when only the last ACKs are awaited: awake, until the condition is true or a moment is over. nil: it sleeps
	Log      *slog.Logger
}

// Transport is one agent's protocol state. Poll and the functions that its comments call the reactor's belong to one goroutine.
type Transport struct {
	self     ports.Identity
	settings Settings
	engine   ports.TransferEngine
	control  ports.ControlChannel
	compute  ports.GpuCompute
	arena    ports.Arena
	credits  *credit.Arena
	grants   *credit.Scheduler
	ledger   *drain.Ledger
	registry *Registry
	rand     ports.Randomness
	clock    ports.Clock
	wake     func()
	attend   func(until func() bool)
	log      *slog.Logger
	counters Counters

	inbox    inbox
	commands []command

	real        ports.Instant // of this turn
	now         ports.Instant // the same, less the pauses
	skew        time.Duration // sum of pauses
	asked       ports.Instant // when the last Poll wanted to be called again, unskewed
	stopped     ports.Instant // the last turn in whose middle the process was paused, 0 none
	timers      timers
	peers       map[ports.Identity]*peer
	order       []*peer // the same, in order of appearance
	strangers   int     // entries that no AddPeer holds and nobody superseded
	retired     retired
	fences      []*fence
	revocations []*revocation
	retention   retention
	closing     bool

	// Sender.
	waiting   []*request       // for their ready event
	needy     list.List[chunk] // planned chunks with a credit
	eager     list.List[chunk] // planned chunks without one
	cached    list.List[chunk] // gathered chunks without a credit: their staging may be taken
	draining  int              // requests whose DRAIN has no answer
	scattered bool             // since a gather was last let go first
	eagerUse  uint64           // bytes of staging gathered ahead of credits
	gathers   []*chunk
	writes    []*chunk
	directs   []*direct
	lingering []*direct // over, their peer being fenced, but pending in the engine
	notices   []*notice

	stuckGathers  []*chunk       // in doubt: they may still run
	stuckScatters []*regionChunk // likewise

	// Receiver.
	nextRegion uint64
	scatterQ   []*regionChunk
	scatters   []*regionChunk
	granted    []*flow // flows with new credits in this turn
	unready    []*flow // whose receive window's ready event has not fired
	liveFlows  int
	regions    int // granted regions whose write has no evidence yet

	leaving []*leaving // deregistrations that wait for accesses

	driver      driver
	revoker     ports.Revoker     // the engine, if it is one
	turnCounter ports.TurnCounter // the engine, if its turns are not the reactor's
	turns       uint64            // what it last counted
	mutation    mutation
	undrained   int  // turns since the timers last looked
	dirty       bool // something moved in this turn

	rbuf, sbuf  []byte
	in, out     messages
	pairLocal   [1]ports.Descriptor
	pairRemote  [1]ports.Descriptor
	spareRuns   []ports.Runs
	spareChunks []*regionChunk
}

// messages are one of each type, decoded into or encoded from again and again.
type messages struct {
	want  wire.Want
	grant wire.Grant
	data  wire.Data
	ack   wire.Ack
	nack  wire.Nack
	drain wire.Drain
	done  wire.DrainAck
}

// New makes a transport. It starts nothing.
func New(o Options) *Transport {
	t := &Transport{
		self: o.Self, settings: o.Settings, engine: o.Engine, control: o.Control, compute: o.Compute, arena: o.Arena, credits: o.Credits,
		ledger: drain.New(o.Credits), registry: o.Registry, rand: o.Rand, clock: o.Clock, wake: o.Wake, attend: o.Attend, log: o.Log,
		peers: map[ports.Identity]*peer{}, asked: ports.Never,
	}
	t.driver.rester, _ = o.Engine.(ports.Rester)
	t.turnCounter, _ = o.Engine.(ports.TurnCounter)
	t.revoker, _ = o.Engine.(ports.Revoker)
	if o.Credits != nil {
		t.grants = credit.NewScheduler(o.Credits, o.Settings.Window)
	}
	return t
}

// Counters may be read by any goroutine.
func (t *Transport) Counters() *Counters { return &t.counters }

// do hands a command to the reactor. Any goroutine.
func (t *Transport) do(c command) error { return t.put(c, false) }

func (t *Transport) put(c command, force bool) error {
	first, err := t.inbox.put(c, force)
	if err != nil {
		return err
	}
	if first && t.wake != nil {
		t.wake()
	}
	return nil
}

// Poll takes one turn. It reports whether anything moved, and when it wants to be called again at the latest; before that it may be called at any time, and must be when the
// control channel's descriptor is readable or Wake was called. Reactor.
func (t *Transport) Poll(now ports.Instant) (work bool, next ports.Instant) {
	t.startTurn(now)
	t.runCommands()
	drained := t.receive()
	if t.driver.due(t.now) {
		if t.engine.Progress() {
			t.driver.engineMoved(t.now)
			t.dirty = true
		}
		t.driver.drove(t.now)
		t.countDriven()
	}
	t.pollReady()
	t.pollWindows()
	t.pollGathers()
	t.pollRevocations()
	t.pollWrites()
	t.pollScatters()
	t.pollDirects()
	t.settleFences()
	t.sendNotices()
	if drained || t.undrained >= maxUndrained {
		t.undrained = 0
		for tm := t.timers.pop(t.now); tm != nil; tm = t.timers.pop(t.now) {
			tm.owner.fire(t, tm.kind)
		}
	}
	// After all that may have freed arena blocks or copy contexts, the timers included. Scatters go first, since they free regions, but never all the time: a gather that has a credit gets the first
	// free context when none runs.
	if t.scattered && len(t.gathers) == 0 && t.needy.First != nil {
		t.launchNeedy(1)
		t.scattered = len(t.gathers) == 0
	}
	t.launchScatters()
	t.launchGathers()
	t.grant()
	t.settleLeaving()
	t.watchRetained()
	if t.dirty {
		t.driver.moved(t.now)
	}
	ended := t.endTurn()
	next = t.wakeUp(drained)
	t.asked = max(next, ended)
	t.checkInvariants()
	return t.dirty, next
}

// Now is the time of the last turn, less the time for which the process was paused. Reactor.
func (t *Transport) Now() ports.Instant { return t.now }

func (t *Transport) startTurn(now ports.Instant) {
	if t.asked != ports.Never && t.asked.Add(pauseLimit).Before(now) {
		t.counters.Add(PausesSeen, 1)
		t.skew += now.Sub(t.asked)
	}
	t.real, t.now = now, now.Add(-t.skew)
	t.ledger.Tick(now)
	t.dirty = false
}

// endTurn is when the turn ended, as far as the clock tells. A process may be stopped in the middle of a turn as well: one that took longer than any of our own counts as a pause. But not if the last such was less
// than a second of counted time ago: a peer that could make turns so long would stop every timer.
func (t *Transport) endTurn() ports.Instant {
	if t.clock == nil {
		return t.real
	}
	ended := t.clock.Now()
	if took := ended.Sub(t.real); took > pauseLimit && (t.stopped == 0 || !t.now.Before(t.stopped.Add(pauseLimit))) {
		t.counters.Add(PausesSeen, 1)
		t.skew += took
		t.stopped = t.now
	}
	return ended
}

func (t *Transport) runCommands() {
	t.commands = t.inbox.swap(t.commands)
	for i, c := range t.commands {
		c(t)
		t.commands[i] = nil
		t.dirty = true
	}
}

// wakeUp is when the next turn is due, in the caller's time.
func (t *Transport) wakeUp(drained bool) ports.Instant {
	at := min(t.timers.next(), t.driver.plan(t.now, t.demand()))
	if !drained {
		return t.now.Add(t.skew)
	}
	if len(t.waiting)+len(t.unready)+len(t.notices) > 0 {
		at = min(at, t.now.Add(pollEvery))
	}
	if t.retention.drained != t.draining {
		at = min(at, t.retention.next)
	}
	if at == ports.Never {
		return at
	}
	return at.Add(t.skew)
}

// demand says what needs the engine to be driven.
func (t *Transport) demand() demand {
	switch {
	case t.liveFlows > 0 || t.regions > 0 || len(t.gathers)+len(t.writes)+len(t.scatters)+len(t.scatterQ)+len(t.directs) > 0:
		return demandBusy
	case len(t.fences)+len(t.revocations)+len(t.lingering) > 0 || t.ledger.Totals().Doubts > 0 || t.ledger.Totals().DoubtfulBytes > 0:
		return demandRetained
	case t.settings.DirectRegistered != nil && t.settings.DirectRegistered():
		return demandTarget
	}
	return demandNone
}

// receive takes frames in until none waits. It reports false when it stopped before that.
func (t *Transport) receive() (drained bool) {
	if t.control == nil {
		return true
	}
	for range framesPerPoll {
		frame, key, ok := t.control.Recv(t.rbuf)
		if !ok {
			return true
		}
		t.rbuf = frame[:0]
		t.counters.Add(FramesReceived, 1)
		t.dirty = true
		t.frame(frame, key)
		if len(t.scatterQ) > 0 && !t.copiesFull() {
			t.launchScatters() // the next DATA takes longer to check than this to launch
		}
		if t.clock != nil && t.clock.Now().Sub(t.real) > framesSlice {
			break
		}
	}
	t.undrained++
	return false
}

// frame takes one frame in. Whatever it holds, it costs at most a reply.
func (t *Transport) frame(b []byte, key string) {
	env, err := wire.DecodeEnvelope(b)
	if err != nil {
		t.counters.Add(FramesNotDecoded, 1)
		return
	}
	if string(env.To) != string(t.self) && !t.mutated("take frames of a predecessor") {
		t.counters.Add(FramesForOthers, 1)
		return
	}
	if key != "" && key != string(env.From[:bytes.LastIndexByte(env.From, '#')]) {
		t.counters.Add(FramesForged, 1)
		return
	}
	h, err := wire.DecodeHeader(env.Message)
	if err != nil {
		t.counters.Add(FramesNotDecoded, 1)
		return
	}
	p := t.peerOf(env.From)
	switch {
	case p == nil && t.retired.set[ports.Identity(env.From)].fenced, p != nil && p.fenced && !t.mutated("take frames of a fenced peer, and answer them"):
		t.counters.Add(FramesOfFenced, 1)
		return
	case p == nil:
		t.counters.Add(FramesOfStrangers, 1)
		return
	}
	t.heardFrom(p)
	if err := t.dispatch(p, h, env.Message); err != nil {
		t.counters.Add(FramesNotDecoded, 1)
		t.log.Debug("a message does not decode", "peer", p.id, "type", h.Type, "err", err)
		if h.Type == wire.TypeWant || h.Type == wire.TypeData || h.Type == wire.TypeDrain {
			t.nackHeader(p, h, wire.ReasonMalformed, err.Error())
		}
	}
	t.release(p)
}

// dispatch decodes and handles one message. The error is of decoding alone.
func (t *Transport) dispatch(p *peer, h wire.Header, b []byte) error {
	switch h.Type {
	case wire.TypeWant:
		return handle(t, p, b, &t.in.want, (*Transport).onWant)
	case wire.TypeGrant:
		return handle(t, p, b, &t.in.grant, (*Transport).onGrant)
	case wire.TypeData:
		return handle(t, p, b, &t.in.data, (*Transport).onData)
	case wire.TypeAck:
		return handle(t, p, b, &t.in.ack, (*Transport).onAck)
	case wire.TypeNack:
		return handle(t, p, b, &t.in.nack, (*Transport).onNack)
	case wire.TypeDrain:
		return handle(t, p, b, &t.in.drain, (*Transport).onDrain)
	case wire.TypeDrainAck:
		return handle(t, p, b, &t.in.done, (*Transport).onDrainAck)
	}
	return fmt.Errorf("type %d is unknown", h.Type)
}

func handle[M wire.Message](t *Transport, p *peer, b []byte, m M, on func(*Transport, *peer, M)) error {
	err := m.Decode(b)
	if err == nil {
		on(t, p, m)
	}
	return err
}

// peerOf finds the sender's entry, or makes one of a stranger's while there is room.
func (t *Transport) peerOf(from []byte) *peer {
	if p := t.peers[ports.Identity(from)]; p != nil {
		return p
	}
	id := ports.Identity(from)
	if t.strangers >= t.settings.MaxPeers || t.retired.superseded(id) {
		return nil
	}
	t.strangers++
	p := t.newPeer(id)
	t.wayBack(p, []byte(t.retired.set[id].endpoint))
	return p
}

// send hands one frame to the channel. What is not taken is lost: repair, on this side or the peer's, makes it good.
func (t *Transport) send(p *peer, m wire.Message) {
	if p.fenced && !t.mutated("take frames of a fenced peer, and answer them") {
		return
	}
	if p.unanswered >= maxUnanswered {
		// A peer that does not answer gets one frame now and then, so that queues on the way, which may not bound themselves, stay short.
		if t.now.Before(p.nextTrickle) {
			t.counters.Add(SendsFull, 1)
			return
		}
		p.nextTrickle = t.now.Add(trickleEvery)
	}
	t.sbuf = m.Append(wire.AppendEnvelope(t.sbuf[:0], t.self, p.id))
	switch t.control.Send(p.id, t.sbuf) {
	case ports.Accepted:
		p.unanswered++
		t.counters.Add(FramesSent, 1)
	case ports.Full:
		t.counters.Add(SendsFull, 1)
	case ports.NoPeer:
		t.counters.Add(SendsNoPeer, 1)
	}
}
