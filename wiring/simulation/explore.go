package simulation

import (
	"hash/fnv"
	"time"

	"github.com/kvbounce/kvbounce/adapters/sim"
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

// Explore explores every configuration, as many at once as there are processors. limit is how many executions each may take; one that needs more is incomplete. done, unless nil, is called after each
// execution, by one goroutine at a time.
func Explore(limit int, o Options, done func()) []*Exploration {
	worlds := smallWorlds()
	all := make([]*Exploration, len(worlds))
	done = oneAtATime(done)
	inParallel(len(worlds), func(i int) { all[i] = worlds[i].explore(limit, o, done) })
	return all
}

func (s smallWorld) setup() *setup {
	scenario, err := ParseScenario("exhaustive", s.text)
	must(err)
	u := newSetup(scenario, 1, Override{})
	u.small, u.ops, u.faultsEnd, u.order, u.grain = s.number, s.ops, s.til, true, exploreStep
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
	at    int                // how far this run has come on the path
	left  int                // faults
	kinds [sim.NextEvent]int // faults of each kind so far
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
	began := time.Now()
	for x.Executions < limit && len(x.Violations) == 0 && !*x.Complete {
		x.Executions++
		r := e.execute(o).result(0)
		if e.stop {
			r.Requests, r.Faults = Requests{}, Faults{}
		}
		x.add(r)
		done()
		*x.Complete = !e.advance()
	}
	*x.Complete = *x.Complete && len(x.Violations) == 0
	x.States = len(e.seen)
	x.WallMS = float64(time.Since(began).Microseconds()) / 1000
	return x
}

// Sum puts explorations together.
func Sum(all []*Exploration) *Result {
	sum := Result{Seed: 1, Scenario: "exhaustive", Violations: []Violation{}, Complete: new(bool)}
	*sum.Complete = true
	for _, x := range all {
		sum.add(&x.Result)
		sum.Executions += x.Executions
		sum.States += x.States
		sum.WallMS += x.WallMS
		*sum.Complete = *sum.Complete && *x.Complete
	}
	return &sum
}

func (e *explorer) execute(o Options) *World {
	e.at, e.left, e.stop = 0, e.small.budget, false
	clear(e.kinds[:])
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
		e.kinds[p.Kind]++
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
	if e.left == 0 || e.small.each > 0 && e.kinds[p.Kind] == e.small.each || e.w.at >= e.small.til || e.w.at < submitAt {
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
	for _, n := range e.kinds {
		b = append(b, byte(n))
	}
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
