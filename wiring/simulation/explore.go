package simulation

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/fnv"
	"slices"
	"time"

	"github.com/kvbounce/kvbounce/adapters/sim"
	"github.com/kvbounce/kvbounce/ports"
)

// Exploration is every run of a small configuration: all work takes no time, so everything that can happen, happens at one instant, in every order; and every fault is
// tried at every place, up to a budget of faults a run. Time passes only when nothing else is left.
//
// It is a search by replay: a run follows the choices of the one before up to the last that has another option, takes that, and goes on with the first option of each
// further choice. A run that comes to a moment that an earlier run came to, with as many faults left, is not followed further. When two moments are the same is package sim's to say
// (World.AppendState): pending events, memory, and for each agent all that it was ever told, so that equal moments have equal futures.
//
// In the Result requests and faults are those of the executions that were followed to their end; the digest is SHA-256 over all executions' digests.
type Exploration struct {
	Name string
	Result
}

// smallWorld is a configuration that is explored whole.
type smallWorld struct {
	number int
	name   string
	text   string // of a scenario
	ops    []Op
	faults []sim.Fault // kinds and options that are tried; rates mean nothing
	budget int
}

// tiny is what the configurations have in common.
const tiny = "granule 128\narena 4\nchunk 1\npage_bytes 32\nwindow 2\ncopies 2\neager 100\ntimeout 100ms\nlease 200\nrequests 0\nlate_write 150ms\n"

// smallWorlds are the configurations of --exhaustive.
func smallWorlds() []smallWorld {
	add := func(from string) Op { return Op{Verb: OpAdd, Agent: from, Peer: "r1"} }
	submit := func(n int, from string, pages int) Op {
		return Op{At: submitAt, Verb: OpSubmit, Request: n, Agent: from, Peer: "r1", Path: "bounce", Pages: pages, Layout: uint64(n)}
	}
	cancel := Op{At: submitAt, Verb: OpCancel, Request: 1}
	frames := []sim.Fault{{Kind: sim.SendFrame, Option: int(sim.FrameLost)}, {Kind: sim.SendFrame, Option: int(sim.FrameTwice)}}
	device := []sim.Fault{
		{Kind: sim.PostOne, Option: int(sim.TransferNothingPosted)}, {Kind: sim.PostOne, Option: int(sim.TransferFailsMovesLate)}, {Kind: sim.PostOne, Option: int(sim.TransferFailsSucceeds)},
		{Kind: sim.LaunchOne, Option: int(sim.CopyRefused)}, {Kind: sim.LaunchOne, Option: int(sim.CopyNotLaunched)}, {Kind: sim.LaunchOne, Option: int(sim.CopyFails)},
	}
	one, two := "senders 1\nreceivers 1\n"+tiny, "senders 2\nreceivers 1\n"+tiny+"eager 0\n"
	worlds := []smallWorld{
		{0, "one sender, one chunk, every order and one fault", one, []Op{add("s1"), submit(1, "s1", 2)}, append(slices.Clone(frames), device...), 1},
		{0, "one sender, one chunk, two lost or doubled frames", one, []Op{add("s1"), submit(1, "s1", 2)}, frames, 2},
		{0, "one sender, one chunk, cancelled at every moment, one lost or doubled frame", one, []Op{add("s1"), submit(1, "s1", 2), cancel}, frames, 1},
		{0, "one sender, two chunks, every order", one, []Op{add("s1"), submit(1, "s1", 8)}, nil, 0},
		{0, "two senders, one chunk each, no eager gather, every order", two, []Op{add("s1"), add("s2"), submit(1, "s1", 2), submit(2, "s2", 2)}, nil, 0},
	}
	worlds = append(worlds, sharedWorlds()...)
	for i := range worlds {
		worlds[i].number = i + 1
	}
	return worlds
}

const (
	submitAt    = ports.Instant(time.Millisecond)
	exploreTil  = ports.Instant(50 * time.Millisecond) // faults happen until then: the first repeats are among what can be lost
	exploreStep = time.Millisecond                     // turns that nothing woke come at multiples of it
)

// Explore explores every configuration. limit is how many executions each may take; one that needs more is incomplete. done, unless nil, is called after each execution.
func Explore(limit int, o Options, done func()) []*Exploration {
	var all []*Exploration
	for _, small := range smallWorlds() {
		all = append(all, small.explore(limit, o, done))
	}
	return all
}

func (s smallWorld) setup() *setup {
	scenario, err := ParseScenario("exhaustive", s.text)
	must(err)
	u := newSetup(scenario, 1, Override{})
	u.small, u.ops, u.faultsEnd, u.order, u.grain = s.number, s.ops, exploreTil, true, exploreStep
	u.timing = sim.Timing{Transfer: sim.Cost{Late: u.timing.Transfer.Late}}
	u.moveBytes = 1 << 20
	for i := range u.agents {
		u.agents[i].latency, u.pages[u.agents[i].name] = 0, 16
	}
	return u
}

// explorer is the chooser of an exploration.
type explorer struct {
	small smallWorld
	w     *World
	path  []turning
	at    int // how far this run has come on the path
	left  int // faults
	seen  map[[16]byte]struct{}
	stop  bool // this run came to a moment that is known
	state []byte
}

// turning is a point of a run at which there was something to choose.
type turning struct {
	options []int
	chosen  int // index in options
}

func (s smallWorld) explore(limit int, o Options, done func()) *Exploration {
	x := &Exploration{Name: s.name, Result: Result{Seed: 1, Scenario: "exhaustive", Violations: []Violation{}, Complete: new(bool)}}
	e := &explorer{small: s, seen: map[[16]byte]struct{}{}}
	digest := sha256.New()
	began := time.Now()
	for x.Executions < limit && len(x.Violations) == 0 && !*x.Complete {
		x.Executions++
		r := e.execute(o).result(0)
		raw, _ := hex.DecodeString(r.Digest)
		digest.Write(raw)
		if e.stop {
			r.Requests, r.Faults = Requests{}, Faults{}
		}
		x.add(r)
		if done != nil {
			done()
		}
		*x.Complete = !e.advance()
	}
	*x.Complete = *x.Complete && len(x.Violations) == 0
	x.States = len(e.seen)
	x.Digest = hex.EncodeToString(digest.Sum(nil))
	x.WallMS = float64(time.Since(began).Microseconds()) / 1000
	return x
}

// Sum puts explorations together.
func Sum(all []*Exploration) *Result {
	sum := Result{Seed: 1, Scenario: "exhaustive", Violations: []Violation{}, Complete: new(bool)}
	*sum.Complete = true
	digest := sha256.New()
	for _, x := range all {
		sum.add(&x.Result)
		sum.Executions += x.Executions
		sum.States += x.States
		sum.WallMS += x.WallMS
		*sum.Complete = *sum.Complete && *x.Complete
		raw, _ := hex.DecodeString(x.Digest)
		digest.Write(raw)
	}
	sum.Digest = hex.EncodeToString(digest.Sum(nil))
	return &sum
}

func (e *explorer) execute(o Options) *World {
	e.at, e.left, e.stop = 0, e.small.budget, false
	c := newChooser(nil)
	w := newWorld(e.small.setup(), c)
	w.mutate, w.log = o.Mutate, o.Log
	c.pick = e.choose
	w.stopped = &e.stop
	e.w = w
	w.startAll()
	w.run()
	return w
}

// advance goes to the last turning that has an option left. It reports false when there is none.
func (e *explorer) advance() bool {
	for n := len(e.path); n > 0; n = len(e.path) {
		last := &e.path[n-1]
		if last.chosen++; last.chosen < len(last.options) {
			return true
		}
		e.path = e.path[:n-1]
	}
	return false
}

// choose takes the path's option, or at a new point the first.
func (e *explorer) choose(p sim.Point, n int) int {
	if e.stop {
		return 0
	}
	options := e.options(p, n)
	if len(options) == 1 {
		return 0
	}
	if e.at == len(e.path) {
		if e.known(p, n) {
			e.stop = true
			return 0
		}
		e.path = append(e.path, turning{options: options})
	}
	t := e.path[e.at]
	e.at++
	option := t.options[t.chosen]
	if p.Kind != sim.NextEvent && option != 0 {
		e.left--
	}
	return option
}

// options are what may be chosen; the first is the one in which nothing goes wrong.
func (e *explorer) options(p sim.Point, n int) []int {
	options := []int{0}
	if p.Kind == sim.NextEvent {
		for option := 1; option < n; option++ {
			options = append(options, option)
		}
		return options
	}
	if e.left == 0 || e.w.at >= exploreTil || e.w.at < submitAt {
		return options
	}
	for _, f := range e.small.faults {
		if f.Kind == p.Kind {
			options = append(options, f.Option)
		}
	}
	return options
}

// known reports whether an earlier run came to this moment, and notes it.
func (e *explorer) known(p sim.Point, n int) bool {
	b := append(e.state[:0], byte(p.Kind), byte(n), byte(e.left))
	b = append(append(append(b, p.Agent...), p.Peer...), p.Frame...)
	b = e.w.sim.AppendState(b)
	e.state = b
	h := fnv.New128a()
	h.Write(b)
	key := [16]byte(h.Sum(nil))
	if _, ok := e.seen[key]; ok {
		return true
	}
	e.seen[key] = struct{}{}
	return false
}
