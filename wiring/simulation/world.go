package simulation

import (
	"encoding/hex"
	"fmt"
	"log/slog"
	"time"

	"github.com/kvbounce/kvbounce/adapters/sim"
	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
)

// World is one run: agents, what they are asked to do, and the oracle that watches.
type World struct {
	setup   *setup
	sim     *sim.World
	chooser *chooser
	oracle  *oracle
	digest  *sim.Digest
	random  draw // latencies of turns
	logger  *slog.Logger
	log     func(format string, args ...any) // steps of a replay; nil: none
	mutate  func(*agent.Agent)               // switches a deliberate bug on; nil: none

	nodes    []*node
	byName   map[string]*node
	byID     map[ports.Identity]*life
	requests []*request
	byNumber map[int]*request
	windows  map[int]*window
	refusal  error // of the last submit

	stopped *bool // ends the run without a verdict when it becomes true; nil: never

	at     ports.Instant // of the last event
	steps  uint64        // turns of agents and events of the simulator
	events uint64        // traced
	tally  tally
}

// tally counts what happened to requests and agents.
type tally struct {
	Requests
	Ownership
	crashes int
}

// newWorld makes the world of a setup, without agents.
func newWorld(u *setup, c *chooser) *World {
	w := &World{
		setup: u, chooser: c, digest: sim.NewDigest(), random: newDraw(u.seed, "turns"), logger: slog.New(slog.DiscardHandler),
		byName: map[string]*node{}, byID: map[ports.Identity]*life{}, byNumber: map[int]*request{}, windows: map[int]*window{},
	}
	c.label = w.label
	w.oracle = newOracle(w)
	w.sim = sim.NewVirtual(sim.Config{Seed: u.seed, Timing: u.timing, MoveBytes: u.moveBytes, Chooser: c, ChooseOrder: u.order, AlwaysLatest: u.order, OrphanMost: u.orphanMost, Trace: w.trace, Observe: u.order})
	return w
}

// startAll starts every agent and plans what is done.
func (w *World) startAll() {
	for _, a := range w.setup.agents {
		n := &node{w: w, setup: a, index: len(w.nodes), known: map[string]*life{}}
		w.nodes = append(w.nodes, n)
		w.byName[a.name] = n
		n.start()
	}
	for _, o := range w.setup.ops {
		w.sim.Schedule(o.At, o.String(), func() { w.perform(o) })
	}
}

// trace takes every event in, before memory is touched.
func (w *World) trace(e sim.Event) {
	w.at = e.At
	w.events++
	w.digest.Add(e)
	if w.log != nil && e.Kind != sim.Called {
		w.log("%s%s", e, w.describe(e))
	}
	w.oracle.event(e)
}

// label names an incarnation as name.life.
func (w *World) label(id ports.Identity) string {
	if l := w.byID[id]; l != nil {
		return l.label()
	}
	return string(id)
}

// runUntil makes everything happen up to t, unless the oracle objects first.
func (w *World) runUntil(t ports.Instant) {
	for !w.ended() && w.sim.NextAt() <= t {
		w.steps++
		w.step()
	}
}

// ended reports whether the run is over before its time.
func (w *World) ended() bool { return w.oracle.broken() || w.stopped != nil && *w.stopped }

// step takes one event. A panic of the core is a violation, not the simulator's end. The simulated world can't be used after one.
func (w *World) step() {
	defer func() {
		if r := recover(); r != nil {
			w.oracle.violate("panic", "the core panicked: %v", r)
		}
	}()
	w.sim.Step()
}

// settleStep is how often the liveness phase looks whether all is settled.
const settleStep = 50 * time.Millisecond

// run runs the whole of it: the phase with faults, then the one without, which must settle.
func (w *World) run() {
	w.runUntil(w.setup.faultsEnd)
	w.chooser.over = true
	w.chooser.cut = map[[2]string]bool{}
	bound := w.setup.faultsEnd.Add(w.setup.settleBound())
	for at := w.sim.Now(); !w.ended(); {
		at = max(at, w.sim.Now()).Add(settleStep)
		w.runUntil(at)
		if w.ended() || w.oracle.settled() {
			break
		}
		w.oracle.checkStorm()
		if at > bound {
			w.oracle.unsettled()
			break
		}
	}
	w.count()
}

// settleBound is how long after the last fault everything must have ended that can end: requests by their timeout (some progress may begin it anew),
// flows by their lease, then the slowest repeat of the protocol (DRAIN once a minute after NACK 7; all others come within 2 s, NACK 10 at first), and whatever is late.
func (u *setup) settleBound() time.Duration {
	var timeout, lease time.Duration
	for _, a := range u.agents {
		timeout, lease = max(timeout, a.timeout), max(lease, a.lease)
	}
	late := max(u.timing.Frame.Late, u.timing.Transfer.Late, u.timing.Copy.Late)
	return 4*timeout + 2*lease + 2*late + u.retire + 75*time.Second
}

// count closes the books of requests.
func (w *World) count() {
	t := &w.tally
	for _, l := range w.byID {
		if l.agent != nil {
			t.LateFrames += int(l.agent.Counter(transport.FramesOfFenced))
		}
	}
	for _, r := range w.requests {
		t.Submitted++
		switch {
		case r.h.Status() == transport.Succeeded:
			t.Succeeded++
		case r.cancelled && isCancelled(r.h.Err()):
			t.Cancelled++
		default:
			t.Failed++ // those whose process died before they ended are among them
		}
		switch {
		case r.h.IsQuiesced():
			t.Quiesced++
		default:
			t.InDoubt++
		}
	}
}

func (w *World) digestHex() string {
	sum := w.digest.Sum()
	return hex.EncodeToString(sum[:])
}

// describe says what an event is about, for a log.
func (w *World) describe(e sim.Event) string {
	switch e.Kind {
	case sim.FrameSent:
		return fmt.Sprintf(" %s %s", sim.FrameFate(e.Detail), frameText(e.Data))
	case sim.TransferPosted:
		return fmt.Sprintf(" %s", sim.TransferFate(e.Detail))
	case sim.TransferTold, sim.TransferRejected:
		return fmt.Sprintf(" %s", ports.TransferStatus(e.Detail))
	case sim.GatherLaunched, sim.ScatterLaunched:
		return fmt.Sprintf(" %s", sim.CopyFate(e.Detail))
	}
	return ""
}
