package simulation

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"runtime"
	"sync"
	"time"

	"github.com/kvbounce/kvbounce/adapters/sim"
	"github.com/kvbounce/kvbounce/core/agent"
)

// Result is what a run, or several, came to.
type Result struct {
	Seed       uint64      `json:"seed"` // the first, of several
	Runs       int         `json:"runs,omitempty"`
	Scenario   string      `json:"scenario"`
	Steps      uint64      `json:"steps"` // events of the simulator, agents' turns included
	Requests   Requests    `json:"requests"`
	Faults     Faults      `json:"faults"`
	Ownership  Ownership   `json:"ownership"`
	Coverage   Coverage    `json:"coverage,omitempty"`
	Violations []Violation `json:"violations"`
	VirtualUS  int64       `json:"virtual_us"`
	WallMS     float64     `json:"wall_ms"`
	Events     uint64      `json:"events"` // that the trace was told of
	Digest     string      `json:"digest"`
	Fairness   *Fairness   `json:"fairness,omitempty"`
	Executions int         `json:"executions,omitempty"` // of an exploration
	States     int         `json:"states,omitempty"`     // different moments at which something could be chosen
	Complete   *bool       `json:"complete,omitempty"`   // whether none is left
	Record     *Record     `json:"-"`                    // of the first run that broke a rule
	digests    hash.Hash   // of a sum
}

// Requests counts requests. succeeded + failed + cancelled = submitted; a request whose process died counts as failed.
type Requests struct {
	Submitted int `json:"submitted"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Cancelled int `json:"cancelled"`
	Quiesced  int `json:"quiesced"`
	InDoubt   int `json:"in_doubt"` // not quiesced at the end
}

// Faults counts what went wrong.
type Faults struct {
	Lost       int `json:"lost"`
	Duplicated int `json:"duplicated"`
	Reordered  int `json:"reordered"` // delayed, so that later frames overtake them
	Refused    int `json:"refused"`   // the queue was full
	LateWrites int `json:"late_writes"`
	BadWrites  int `json:"bad_writes"` // writes and reads that failed or hung, those that land late included
	BadCopies  int `json:"bad_copies"` // gathers and scatters that were slow, refused, failed or hung
	Crashes    int `json:"crashes"`
}

// Ownership counts what applications did to have memory back, and what came of it.
type Ownership struct {
	Windows     int `json:"windows"`     // receive windows that were opened
	Deregisters int `json:"deregisters"` // pools of memory, with requests under way
	Fences      int `json:"fences"`      // of processes that ended
	LateFrames  int `json:"late_frames"` // of fenced incarnations, dropped
	FailStops   int `json:"fail_stops"`  // processes that ended themselves
	Sessions    int `json:"sessions"`    // engine requests that send and receive
	Released    int `json:"released"`    // of them, whose memory was given back whole
	Retained    int `json:"retained"`    // requests that were refused because too much of the arena was in doubt
	Rerouted    int `json:"rerouted"`    // that went directly because of it
	Regained    int `json:"regained"`    // that bounced again after it
}

// Options are how runs are made.
type Options struct {
	Override
	Mutate func(*agent.Agent) // called for each agent that starts; nil: nothing is changed
	// Log, unless nil, is told of each step.
	Log func(format string, args ...any)
}

// Run makes one run.
func Run(s *Scenario, seed uint64, o Options) *Result {
	u := newSetup(s, seed, o.Override)
	c := newChooser(nil)
	c.random = sim.NewFaults(seed, u.faults...)
	return runSetup(u, c, o)
}

func runSetup(u *setup, c *chooser, o Options) *Result {
	began := time.Now()
	w := newWorld(u, c)
	w.mutate, w.log = o.Mutate, o.Log
	w.startAll()
	w.run()
	return w.result(time.Since(began))
}

func (w *World) result(took time.Duration) *Result {
	c, t := w.chooser, w.tally
	r := &Result{Seed: w.setup.seed, Scenario: w.setup.scenario.Name, Steps: w.steps, Events: w.events, VirtualUS: int64(w.at) / 1000,
		WallMS: float64(took.Microseconds()) / 1000, Violations: []Violation{}, Digest: w.digestHex()}
	r.Coverage = w.coverage()
	r.Requests, r.Ownership = t.Requests, t.Ownership
	late := []int{int(sim.TransferFailsMovesLate), int(sim.TransferFailsMovesPart), int(sim.TransferFailsSucceeds), int(sim.TransferHangsMovesLate), int(sim.TransferPostFailsMovesLate)}
	failed := append([]int{int(sim.TransferNothingPosted), int(sim.TransferEndsPartly), int(sim.TransferFails), int(sim.TransferHangs)}, late...)
	r.Faults = Faults{
		Lost:       c.lost + c.count(sim.SendFrame, int(sim.FrameLost)) + c.count(sim.SendNotify, int(sim.FrameLost)),
		Duplicated: c.count(sim.SendFrame, int(sim.FrameTwice)), Reordered: c.count(sim.SendFrame, int(sim.FrameLate)),
		Refused:    c.count(sim.SendFrame, int(sim.FrameRefused)) + c.count(sim.SendNotify, int(sim.FrameRefused)),
		LateWrites: c.count(sim.PostOne, late...), BadWrites: c.count(sim.PostOne, failed...),
		BadCopies: c.count(sim.LaunchOne, 1, 2, 3, 4, 5, 6), Crashes: t.crashes,
	}
	if v := w.oracle.violation; v != nil {
		r.Violations = append(r.Violations, *v)
		r.Record = newRecord(w)
	}
	r.Fairness = w.fairness()
	return r
}

// RunMany makes the runs of seeds first to last, as many at once as there are processors, and sums them up in the order of seeds. done, unless nil, is called after each,
// by one goroutine at a time.
func RunMany(s *Scenario, first, last uint64, o Options, done func()) *Result {
	began := time.Now()
	results := make([]*Result, last-first+1)
	done = oneAtATime(done)
	inParallel(len(results), func(i int) {
		results[i] = Run(s, first+uint64(i), o)
		done()
	})
	sum := Result{Seed: first, Runs: len(results), Scenario: s.Name, Violations: []Violation{}}
	for _, r := range results {
		sum.add(r)
	}
	sum.WallMS = float64(time.Since(began).Microseconds()) / 1000
	return &sum
}

// inParallel calls f with 0 to n-1, as many at once as there are processors, and returns when all have.
func inParallel(n int, f func(i int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		workers.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

// oneAtATime is f for several goroutines; where f is nil, a function that does nothing.
func oneAtATime(f func()) func() {
	if f == nil {
		return func() {}
	}
	var mu sync.Mutex
	return func() {
		mu.Lock()
		defer mu.Unlock()
		f()
	}
}

// add sums r up with what s has. The digest becomes SHA-256 over the digests of all, in the order of the calls.
func (s *Result) add(r *Result) {
	if s.digests == nil {
		s.digests = sha256.New()
	}
	raw, _ := hex.DecodeString(r.Digest)
	s.digests.Write(raw)
	s.Digest = hex.EncodeToString(s.digests.Sum(nil))
	s.Steps += r.Steps
	s.Events += r.Events
	s.VirtualUS += r.VirtualUS
	s.Violations = append(s.Violations, r.Violations...)
	a, b := &s.Requests, r.Requests
	a.Submitted += b.Submitted
	a.Succeeded += b.Succeeded
	a.Failed += b.Failed
	a.Cancelled += b.Cancelled
	a.Quiesced += b.Quiesced
	a.InDoubt += b.InDoubt
	f, g := &s.Faults, r.Faults
	f.Lost += g.Lost
	f.Duplicated += g.Duplicated
	f.Reordered += g.Reordered
	f.Refused += g.Refused
	f.LateWrites += g.LateWrites
	f.BadWrites += g.BadWrites
	f.BadCopies += g.BadCopies
	f.Crashes += g.Crashes
	o, p := &s.Ownership, r.Ownership
	o.Windows += p.Windows
	o.Deregisters += p.Deregisters
	o.Fences += p.Fences
	o.LateFrames += p.LateFrames
	o.FailStops += p.FailStops
	o.Sessions += p.Sessions
	o.Released += p.Released
	o.Retained += p.Retained
	o.Rerouted += p.Rerouted
	o.Regained += p.Regained
	if s.Coverage == nil {
		s.Coverage = Coverage{}
	}
	for name, n := range r.Coverage {
		s.Coverage[name] += n
	}
	if s.Record == nil {
		s.Record = r.Record
	}
}
