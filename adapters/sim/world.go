// Package sim has all ports in one process, over one queue of events.
//
// A World is the hardware and the network between agents. In virtual time (NewVirtual) it is a deterministic simulator: memory is simulated, nothing happens
// but in Step and AdvanceTo, no goroutine runs, and the same seed, choices and calls give the same events. A Chooser makes things go wrong. In real time
// (NewRealTime) it moves real memory between agents of one process, for machines that have no NIXL; there nothing goes wrong, and
// what is due happens in whichever agent's call comes next.
package sim

import (
	"math/bits"
	"sync"
	"time"

	"github.com/kvbounce/kvbounce/ports"
)

// Cost is how long a kind of work takes.
type Cost struct {
	Base   time.Duration // from the call until the work starts
	PerMiB time.Duration // and for the bytes that it moves
	Late   time.Duration // the most that late work (see Chooser) waits beyond Base; how long is drawn from the seed
}

// Timing is how long things take in virtual time.
type Timing struct {
	Frame    Cost // frames of the control channel and notifications
	Transfer Cost
	Copy     Cost // gathers and scatters
}

// Config is how a virtual World is made. The zero value is a world in which all work takes no time and nothing goes wrong.
type Config struct {
	Seed   uint64
	Timing Timing
	// MoveBytes is how many bytes one event of a transfer or copy moves at most: the smaller, the more can happen in between. 0 means 1 MiB.
	MoveBytes uint64
	// Chooser decides what goes wrong; nil means nothing.
	Chooser Chooser
	// ChooseOrder lets the Chooser pick which of several events of one instant happens first, too (NextEvent). Otherwise it is the one that was caused first.
	ChooseOrder bool
	// Trace, unless nil, is told of every event, before the memory that it is about is touched. It must not call the World, except for View, nor keep the
	// event's slices.
	Trace func(Event)
	// OrphanMost is how long after its engine was closed a dead process's transfer can bring bytes on the way; 0: for ever. What came until then lands when the other side drives its engine.
	OrphanMost time.Duration
	// AlwaysLatest makes late work wait the whole of Cost.Late, so that a driver can have things happen at the instant at which it ends.
	AlwaysLatest bool
	// Observe keeps what AppendState needs. It costs time.
	Observe bool
}

// World is what all agents of a simulation share. Its methods may be called from any goroutine, except where they say otherwise.
type World struct {
	cfg    Config
	clock  ports.Clock // nil in virtual time
	memory memory

	mu        sync.Mutex
	now       ports.Instant
	queue     queue
	random    stream
	lastID    uint64                     // of frames, notifications, transfers and copies
	engines   map[ports.Identity]*Engine // closed ones too: a post to a peer that died is not known to be without effect
	boxes     map[string]*mailbox        // by endpoint
	endpoints uint64                     // endpoints that were made up
	rung      []*bell
	histories map[ports.Identity]*history // what each agent was told; only with Config.Observe
	answering []describer                 // transfers and copies that will be asked; likewise
	moved     uint64                      // bytes that were moved, ever
	order     func(n int) int             // asks the Chooser which of n events of one instant happens first; nil: the first
}

// NewVirtual makes a world with virtual time, which begins at 0, and simulated memory. All calls to a virtual world and its ports must come from one goroutine at a time.
func NewVirtual(cfg Config) *World {
	return newWorld(cfg, nil, &spaces{})
}

// NewRealTime makes a world that keeps this clock's time and moves the memory of this process, without delay or fault.
func NewRealTime(clock ports.Clock) *World {
	w := newWorld(Config{}, clock, &process{held: make(map[uint64][]byte)})
	w.now = clock.Now()
	return w
}

func newWorld(cfg Config, clock ports.Clock, memory memory) *World {
	if cfg.MoveBytes == 0 {
		cfg.MoveBytes = turnBytes
	}
	w := &World{cfg: cfg, clock: clock, memory: memory, random: newStream(cfg.Seed, "world")}
	w.engines = make(map[ports.Identity]*Engine)
	w.boxes = make(map[string]*mailbox)
	w.histories = make(map[ports.Identity]*history)
	if cfg.ChooseOrder && cfg.Chooser != nil {
		w.order = func(n int) int { return w.choose(Point{Kind: NextEvent}, n) }
	}
	return w
}

// Now makes the World a ports.Clock.
func (w *World) Now() ports.Instant {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look()
	return w.now
}

// look takes the time from the real clock. w.mu is held.
func (w *World) look() {
	if w.clock != nil {
		w.now = max(w.now, w.clock.Now())
	}
}

// NextAt is when the next event is due: Never if none waits. Virtual time only.
func (w *World) NextAt() ports.Instant {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.nextAt()
}

// Step makes the next event happen, at its time, and reports whether there was one. Virtual time only.
func (w *World) Step() bool {
	w.mustBeVirtual()
	w.mu.Lock()
	do, at, ok := w.queue.pop(w.order)
	if ok {
		w.now = max(w.now, at)
		do.happen(w)
	}
	w.leave()
	return ok
}

// AdvanceTo makes everything happen that is due up to and at t, what follows from it included, and sets the clock to t. Virtual time only.
func (w *World) AdvanceTo(t ports.Instant) {
	w.mustBeVirtual()
	for w.NextAt() <= t && w.Step() {
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = max(w.now, t)
}

// Schedule puts a call of the driver's own, such as an agent's turn, in order with all other events. It comes from Step, and it may call the World and its ports. The
// name is for the trace. Virtual time only.
func (w *World) Schedule(at ports.Instant, name string, call func()) {
	w.mustBeVirtual()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue.push(max(at, w.now), &scheduled{name: name, call: bell{wake: call}})
}

// scheduled is an event of the driver's own.
type scheduled struct {
	name string
	call bell
}

func (s *scheduled) happen(w *World) {
	w.trace(Event{Kind: Called, Data: []byte(s.name)})
	w.ring(&s.call)
}

// Alarm is a call of the driver's own that comes again and again, such as an agent's turns. Virtual time only.
type Alarm struct {
	w    *World
	name []byte
	call bell
	seq  uint64 // of its entry in the queue; 0: it is not set
	at   ports.Instant
}

// NewAlarm makes an alarm that is not set. The name is for the trace.
func (w *World) NewAlarm(name string, call func()) *Alarm {
	w.mustBeVirtual()
	return &Alarm{w: w, name: []byte(name), call: bell{wake: call}}
}

// Set has the alarm ring at an instant, in order with all other events, and at no other that was set before. ports.Never stops it.
func (a *Alarm) Set(at ports.Instant) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	at = max(at, a.w.now)
	switch {
	case a.seq != 0 && a.at == at:
	case at == ports.Never:
		a.seq = 0
	default:
		a.seq, a.at = a.w.queue.push(at, a), at
	}
}

// At is when it will ring: ports.Never if it is not set.
func (a *Alarm) At() ports.Instant {
	if a.seq == 0 {
		return ports.Never
	}
	return a.at
}

func (a *Alarm) happen(w *World) {
	a.seq = 0
	w.trace(Event{Kind: Called, Data: a.name})
	w.ring(&a.call)
}

func (w *World) mustBeVirtual() {
	if w.clock != nil {
		panic("sim: a world in real time is not stepped")
	}
}

// bell calls outside the lock: a port's Wake, or the driver.
type bell struct {
	wake func()
	rung bool
}

// ring has the bell's Wake called when the lock is released, once.
func (w *World) ring(b *bell) {
	if b.wake != nil && !b.rung {
		b.rung = true
		w.rung = append(w.rung, b)
	}
}

// leave releases the lock, then wakes those for whom something arrived.
func (w *World) leave() {
	rung := w.rung
	w.rung = nil
	for _, b := range rung {
		b.rung = false
	}
	w.mu.Unlock()
	for _, b := range rung {
		b.wake()
	}
}

// turnBytes is about how much memory one call moves in real time, so that no call of a port takes long: 1 MiB takes about 0.1 ms.
const turnBytes = 1 << 20

// drive makes what is due happen, in real time. In virtual time only Step does. w.mu is held.
func (w *World) drive() {
	if w.clock == nil {
		return
	}
	w.look()
	for stop := w.moved + turnBytes; w.moved < stop && w.queue.nextAt() <= w.now; {
		do, _, _ := w.queue.pop(nil)
		do.happen(w)
	}
}

// after puts an event a while after now. w.mu is held.
func (w *World) after(d time.Duration, do action) {
	w.queue.push(w.now.Add(d), do)
}

// lateness draws how much later late work is. w.mu is held.
func (w *World) lateness(c Cost) time.Duration {
	if w.cfg.AlwaysLatest {
		return c.Late
	}
	return time.Duration(w.random.below(uint64(c.Late) + 1))
}

// newID numbers what the trace follows. w.mu is held.
func (w *World) newID() uint64 {
	w.lastID++
	return w.lastID
}

// bytes is how long moving n bytes takes.
func (c Cost) bytes(n uint64) time.Duration {
	high, low := bits.Mul64(uint64(c.PerMiB), n)
	return time.Duration(high<<44 | low>>20)
}
