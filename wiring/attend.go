package wiring

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/kvbounce/kvbounce/ports"
)

const (
	// attendFor bounds how long somebody stays awake for what is microseconds away. To wake a sleeping goroutine takes 50 to 100 µs on a virtual machine, and it may go on on another processor, whose
	// caches do not know the lists of the next request.
	attendFor = 500 * time.Microsecond
	// attendFrom is how many processors Go must have for that: two reactors and the waiter, and one for the application.
	attendFrom = 4
)

// companions reports whether an agent of that place may keep another processor busy for a moment: over a GPU's memory all that a request waits for is microseconds away.
func companions(place ports.Place) bool {
	return place.Kind == ports.Device && runtime.GOMAXPROCS(0) >= attendFrom
}

// attend returns when the condition is true, or a moment later.
func attend(until func() bool) {
	for end := time.Now().Add(attendFor); !until() && time.Now().Before(end); {
	}
}

// attendant is attend for the waiters of one agent, of which one at a time stays awake. It is agent.Options.Attend.
func attendant() func(until func() bool) {
	var awake atomic.Bool
	return func(until func() bool) {
		if awake.CompareAndSwap(false, true) {
			attend(until)
			awake.Store(false)
		}
	}
}

// summon starts a goroutine that stays awake for a moment, so that work given to it begins at once. It is agent.Options.Companion.
func summon() (beside func(work func()) (wait func())) {
	var given atomic.Pointer[func()]
	nobody := func() {}
	go func() {
		attend(func() bool { return given.Load() != nil })
		if !given.CompareAndSwap(nil, &nobody) {
			(*given.Load())()
		}
	}()
	return func(work func()) (wait func()) {
		var over atomic.Bool
		done := make(chan struct{})
		run := func() {
			work()
			over.Store(true)
			close(done)
		}
		if !given.CompareAndSwap(nil, &run) {
			go run() // nobody waits any more
		}
		return func() {
			attend(over.Load)
			<-done
		}
	}
}
