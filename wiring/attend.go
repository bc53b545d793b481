package wiring

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/kvbounce/kvbounce/ports"
)

const (
	// attendFor bounds how long a waiter stays awake for what is microseconds away. To wake a sleeping goroutine takes 50 to 100 µs on a virtual machine.
	attendFor = 500 * time.Microsecond
	// attendFrom is how many processors Go must have for that: two reactors and the waiter, and one for the application.
	attendFrom = 4
)

// attends reports whether waiters of an agent of that place may keep a processor busy for a moment: over a GPU's memory all that a request waits for is microseconds away.
func attends(place ports.Place) bool {
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
