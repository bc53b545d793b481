package simulation

import (
	"crypto/sha256"
	"encoding/hex"
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
	r.Requests = Requests{Submitted: t.submitted, Succeeded: t.succeeded, Failed: t.failed, Cancelled: t.cancelled, Quiesced: t.quiesced, InDoubt: t.inDoubt}
	late := []int{int(sim.TransferFailsMovesLate), int(sim.TransferFailsMovesPart), int(sim.TransferFailsSucceeds), int(sim.TransferHangsMovesLate), int(sim.TransferPostFailsMovesLate)}
	failed := append([]int{int(sim.TransferNothingPosted), int(sim.TransferEndsPartly), int(sim.TransferFails), int(sim.TransferHangs)}, late...)
	r.Faults = Faults{
		Lost:       c.lost + c.count(sim.SendFrame, int(sim.FrameLost)) + c.count(sim.SendNotify, int(sim.FrameLost)),
		Duplicated: c.count(sim.SendFrame, int(sim.FrameTwice)), Reordered: c.count(sim.SendFrame, int(sim.FrameLate)),
		Refused:    c.count(sim.SendFrame, int(sim.FrameRefused)) + c.count(sim.SendNotify, int(sim.FrameRefused)),
		LateWrites: c.count(sim.PostOne, late...), BadWrites: c.count(sim.PostOne, failed...),
		BadCopies: c.count(sim.LaunchOne, 1, 2, 3, 4, 5, 6), Crashes: t.crashes,
	}
	r.Ownership = Ownership{Windows: t.windows, Deregisters: t.leaves, Fences: t.fences, LateFrames: int(t.lateFrames), FailStops: t.failStops, Sessions: t.sessions, Released: t.released, Retained: t.retained, Rerouted: t.rerouted, Regained: t.regained}
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
	n := int(last - first + 1)
	results := make([]*Result, n)
	began := time.Now()
	var mu sync.Mutex
	next := 0
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		workers.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= n {
					return
				}
				results[i] = Run(s, first+uint64(i), o)
				if done != nil {
					mu.Lock()
					done()
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	sum := Result{Seed: first, Runs: n, Scenario: s.Name, Violations: []Violation{}}
	digest := sha256.New()
	for _, r := range results {
		sum.add(r)
		raw, _ := hex.DecodeString(r.Digest)
		digest.Write(raw)
	}
	sum.Digest = hex.EncodeToString(digest.Sum(nil))
	sum.WallMS = float64(time.Since(began).Microseconds()) / 1000
	return &sum
}

func (s *Result) add(r *Result) {
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
