package simulation

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/kvbounce/kvbounce/adapters/sim"
	"github.com/kvbounce/kvbounce/ports"
)

// setup is a run before it begins: all that a seed draws from a scenario, but the moments at which faults happen.
type setup struct {
	scenario    *Scenario
	seed        uint64
	peers       int      // Override.Peers
	wanted      int      // Override.Requests
	small       int      // number of the configuration of --exhaustive; 0: none
	without     []string // agents that a record leaves out
	timing      sim.Timing
	moveBytes   uint64
	pageBytes   uint64
	pages       map[string]int // of each of an agent's two pools
	windowPages int            // of the largest receive window; 0: there is none
	windowsStay int            // of all windows that are never closed
	agents      []agentSetup
	faults      []sim.Fault
	ops         []Op
	faultsEnd   ports.Instant // from here on nothing goes wrong any more
	settle      time.Duration // SETTLE_DELAY of all agents; 0: nobody fences
	retire      time.Duration // RETIREMENT_DEADLINE of all agents, which every request and window is under; 0: nothing is
	orphanMost  time.Duration // how long the transfers of a dead process bring bytes on the way; 0: for ever
	fair        int           // grants to others, per active flow; 0: not checked
	order       bool          // the Chooser picks the order of events of one instant
	grain       time.Duration // turns that nothing woke come at multiples of it; 0: when they are due
}

// agentSetup is one agent.
type agentSetup struct {
	name            string
	sends, receives bool
	hostile         bool
	granule         uint64
	arena, chunk    uint64 // bytes
	window, copies  int
	eager           bool
	timeout, lease  time.Duration
	latency         time.Duration // most time from a wake to the turn
}

// Override changes a scenario from the command line.
type Override struct {
	Peers    int // senders, at most MaxPeers; 0: as the scenario says
	Requests int // at most MaxRequests; 0: as the scenario says; they are submitted at the rate that it says
}

// The most that an Override may ask for: a run keeps them all in memory.
const (
	MaxPeers    = 100_000
	MaxRequests = 10_000_000
)

// newSetup draws a run.
func newSetup(s *Scenario, seed uint64, o Override) *setup {
	d := newDraw(seed, "setup "+filepath.Base(s.Name)) // wherever a file lies, its runs are the same
	u := &setup{scenario: s, seed: seed, peers: o.Peers, wanted: o.Requests, moveBytes: 64 << d.index(5), pageBytes: s.pageBytes.power(d), fair: s.fair.count(d)}
	base := func() time.Duration { return time.Duration(1+d.index(50)) * time.Microsecond }
	u.timing = sim.Timing{
		Frame:    sim.Cost{Base: base(), Late: s.lateFrame.duration(d)},
		Transfer: sim.Cost{Base: base(), PerMiB: base() * 1024, Late: s.lateWrite.duration(d)},
		Copy:     sim.Cost{Base: base(), PerMiB: base() * 256, Late: s.lateCopy.duration(d)},
	}
	if s.fences.high > 0 {
		u.settle = s.settle.duration(d)
		u.orphanMost = u.settle * 9 / 10
	}
	if s.retire.high > 0 {
		u.retire = s.retire.duration(d)
	}
	u.drawAgents(d, o)
	for _, f := range s.faults {
		u.faults = append(u.faults, sim.Fault{Kind: f.kind, Option: f.option, PPM: uint32(f.ppm.draw(d)), Budget: f.budget.count(d)})
	}
	u.drawOps(d, o)
	return u
}

func (u *setup) drawAgents(d draw, o Override) {
	s := u.scenario
	senders := s.senders.count(d)
	if o.Peers > 0 {
		senders = o.Peers
	}
	timeout := s.timeout.duration(d).Truncate(time.Millisecond)
	add := func(prefix string, n int, sends, receives bool) {
		for i := range n {
			a := agentSetup{name: fmt.Sprintf("%s%d", prefix, i+1), sends: sends, receives: receives, granule: s.granule.power(d), window: s.window.count(d), copies: s.copies.count(d)}
			a.chunk = a.granule * s.chunk.power(d)
			a.arena = max(a.granule*uint64(s.arena.draw(d)), 2*a.chunk)
			a.eager = d.percent(s.eager.count(d))
			a.timeout = timeout
			a.lease = timeout * time.Duration(s.lease.draw(d)) / 100
			a.latency = time.Duration(d.below(20_000))
			u.agents = append(u.agents, a)
		}
	}
	add("s", senders, true, false)
	add("r", s.receivers.count(d), false, true)
	add("b", s.both.count(d), true, true)
	for i := range s.hostile.count(d) {
		u.agents = append(u.agents, agentSetup{name: fmt.Sprintf("h%d", i+1), hostile: true, sends: true, receives: true})
	}
}

// drawOps draws what is done and when.
func (u *setup) drawOps(d draw, o Override) {
	s := u.scenario
	var senders, receivers, honest, hostile []string
	for _, a := range u.agents {
		if a.hostile {
			hostile = append(hostile, a.name)
			continue
		}
		honest = append(honest, a.name)
		if a.sends {
			senders = append(senders, a.name)
		}
		if a.receives {
			receivers = append(receivers, a.name)
		}
	}
	during := s.during.duration(d)
	op := func(o Op) { u.ops = append(u.ops, o) }
	for _, from := range senders {
		for _, to := range slices.Concat(receivers, hostile) {
			if from != to {
				op(Op{Verb: OpAdd, Agent: from, Peer: to})
			}
		}
	}
	targets := receivers
	if len(hostile) > 0 {
		targets = slices.Concat(receivers, receivers, hostile)
	}
	during = u.drawRequests(d, o, senders, targets, during)
	u.drawWindows(d, senders, receivers, during)
	u.drawSessions(d, senders, receivers, during)
	u.drawTrouble(d, honest, during)
	for _, h := range hostile {
		for range 20 + d.index(60) {
			op(Op{Verb: OpHostile, At: ports.Instant(d.below(uint64(during))), Agent: h, Layout: d.below(1 << 32)})
		}
	}
	slices.SortStableFunc(u.ops, func(a, b Op) int { return cmp.Compare(a.At, b.At) })
	u.pages = poolPages(u.ops)
	u.faultsEnd = ports.Instant(2 * during)
	if n := len(u.ops); n > 0 {
		u.faultsEnd = max(u.faultsEnd, u.ops[n-1].At)
	}
}

// drawRequests draws requests and their cancels. It returns the time in which they are submitted: during, unless the command line says how many there are.
func (u *setup) drawRequests(d draw, o Override, senders, targets []string, during time.Duration) time.Duration {
	s := u.scenario
	requests := s.requests.count(d)
	if o.Peers > 0 {
		requests = requestsEach * o.Peers
	}
	soon := during // after a submit, what becomes of it
	if o.Requests > 0 {
		during = during * time.Duration(o.Requests) / time.Duration(max(requests, 1))
		requests = o.Requests
	}
	direct, read, auto, big := s.direct.count(d), s.read.count(d), s.auto.count(d), s.big.count(d)
	overlap := 0
	if s.overlap.high > 0 { // scenarios without draw what they drew before there was any
		overlap = s.overlap.count(d)
	}
	cancel, ready, notify := s.cancel.count(d), s.ready.count(d), s.notify.count(d)
	for n := range requests {
		r := Op{Verb: OpSubmit, At: ports.Instant(introduction).Add(time.Duration(d.below(uint64(during)))), Request: n + 1, Layout: d.below(1 << 32), Path: "bounce"}
		r.Agent = senders[d.index(len(senders))]
		if o.Peers > 0 {
			r.Agent = senders[n%len(senders)]
		}
		for r.Peer = r.Agent; r.Peer == r.Agent; {
			r.Peer = targets[d.index(len(targets))]
		}
		r.Pages = s.pages.count(d)
		if d.percent(big) {
			r.Pages = s.bigPages.count(d)
		}
		switch kind := d.index(100); {
		case kind < direct:
			r.Path = "direct"
		case kind < direct+read:
			r.Path = "read"
		case kind < direct+read+auto:
			r.Path = "auto"
		case kind < direct+read+auto+overlap:
			r.Path = "overlap"
		}
		if d.percent(ready) {
			r.Delay = time.Duration(d.below(uint64(soon)))
		}
		r.Notify = d.percent(notify)
		u.ops = append(u.ops, r)
		if d.percent(cancel) {
			u.ops = append(u.ops, Op{Verb: OpCancel, At: r.At.Add(time.Duration(d.below(uint64(soon)) >> d.index(12))), Request: r.Request})
		}
	}
	return during
}

const (
	introduction = 50 * time.Microsecond // before the first submit, so that agents know each other
	requestsEach = 4                     // of each sender when their number is given
)

// poolPages is how many pages each of an agent's two pools needs for all its requests at once, and some to spare.
func poolPages(ops []Op) map[string]int {
	pages := map[string]int{}
	for _, o := range ops {
		if o.Verb == OpSubmit {
			pages[o.Agent] += o.Pages
			pages[o.Peer] += o.Pages
		}
	}
	return pages
}

// drawTrouble draws what happens to agents.
func (u *setup) drawTrouble(d draw, honest []string, during time.Duration) {
	s := u.scenario
	op := func(o Op) { u.ops = append(u.ops, o) }
	moment := func() ports.Instant { return ports.Instant(d.below(uint64(during))) }
	some := func() string { return honest[d.index(len(honest))] }
	restart := s.restart.count(d)
	fences := 0
	if s.fences.high > 0 {
		fences = s.fences.count(d)
	}
	end := func(verb string, n int) {
		for range n {
			dead, at := some(), moment()
			op(Op{Verb: verb, At: at, Agent: dead})
			if s.fences.high > 0 {
				for _, a := range honest {
					if a != dead && d.percent(fences) {
						op(Op{Verb: OpFence, At: at.Add(time.Duration(d.below(uint64(during)) >> d.index(8))), Agent: a, Peer: dead})
					}
				}
			}
			if !d.percent(restart) {
				continue
			}
			at = at.Add(time.Duration(d.below(uint64(during))))
			op(Op{Verb: OpStart, At: at, Agent: dead})
			// Word of the new incarnation spreads; to some it comes late, or never.
			for _, from := range u.agents {
				for _, to := range u.agents {
					related := from.sends && to.receives && !from.hostile && from.name != to.name && (from.name == dead || to.name == dead)
					if related && d.percent(90) {
						op(Op{Verb: OpAdd, At: at.Add(time.Duration(d.below(uint64(during)) >> d.index(8))), Agent: from.name, Peer: to.name})
					}
				}
			}
		}
	}
	end(OpCrash, s.crashes.count(d))
	end(OpClose, s.closes.count(d))
	if s.deregisters.high > 0 {
		for range s.deregisters.count(d) {
			op(Op{Verb: OpLeave, At: moment(), Agent: some(), Path: []string{"src", "dst", "windows"}[d.index(3)]})
		}
	}
	pair := func() (string, string) {
		a := some()
		for range 8 {
			if b := some(); b != a {
				return a, b
			}
		}
		return a, a
	}
	for range s.removals.count(d) {
		at := moment()
		a, b := pair()
		op(Op{Verb: OpRemove, At: at, Agent: a, Peer: b})
		if d.percent(70) {
			op(Op{Verb: OpAdd, At: at.Add(time.Duration(d.below(uint64(during)))), Agent: a, Peer: b})
		}
	}
	for range s.pauses.count(d) {
		op(Op{Verb: OpPause, At: moment(), Agent: some(), Delay: time.Duration(d.below(uint64(4 * time.Second)))})
	}
	for range s.jumps.count(d) {
		op(Op{Verb: OpJump, At: moment(), Agent: some(), Delay: time.Duration(d.below(uint64(10 * time.Second)))})
	}
	for range s.cuts.count(d) {
		at, length := moment(), time.Duration(d.below(uint64(during)))
		a, b := pair()
		for _, way := range [][2]string{{a, b}, {b, a}}[:1+d.index(2)] {
			op(Op{Verb: OpCut, At: at, Agent: way[0], Peer: way[1]})
			op(Op{Verb: OpHeal, At: at.Add(length), Agent: way[0], Peer: way[1]})
		}
	}
}
