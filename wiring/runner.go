package wiring

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/ports"
)

// spinTurns is how many turns without work the reactor takes before it sleeps: an answer often comes within microseconds.
const spinTurns = 64

// runner is the reactor's goroutine.
type runner struct {
	agent    *agent.Agent
	clock    ports.Clock
	waker    *waker
	deadline time.Duration // of closing

	closing sync.Once
	stop    chan struct{}
	done    chan struct{}
	err     error // valid after done
}

func startRunner(a *agent.Agent, clock ports.Clock, w *waker, closeDeadline time.Duration) *runner {
	r := &runner{agent: a, clock: clock, waker: w, deadline: closeDeadline, stop: make(chan struct{}), done: make(chan struct{})}
	go r.run()
	return r
}

func (r *runner) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(r.done)
	// Adapters that are left open in doubt may still call wake, which touches the descriptor only while the reactor sleeps.
	defer r.waker.close()
	preciseTimers()
	closeBy := ports.Never
	idle := 0
	for {
		now := r.clock.Now()
		work, next := r.agent.Poll(now)
		if closeBy == ports.Never {
			select {
			case <-r.stop:
				r.agent.BeginClose()
				closeBy = now.Add(r.deadline)
				continue
			default:
			}
		} else if r.agent.Quiet() || !now.Before(closeBy) {
			r.err = r.agent.Finish()
			return
		}
		if work {
			idle = 0
			continue
		}
		if idle++; idle <= spinTurns {
			continue
		}
		r.sleep(min(next, closeBy))
	}
}

// sleep waits until the instant, or until something happens.
func (r *runner) sleep(until ports.Instant) {
	timeout := time.Duration(-1)
	if until != ports.Never {
		timeout = max(until.Sub(r.clock.Now()), 0)
	}
	if timeout != 0 {
		r.waker.sleep(timeout)
	}
}

// close ends the reactor: requests in progress fail, and it waits for their evidence until the deadline. A second call waits for the first.
func (r *runner) close() error {
	r.closing.Do(func() {
		close(r.stop)
		r.waker.wake()
	})
	<-r.done
	if r.err != nil {
		return fmt.Errorf("close: %w", r.err)
	}
	return nil
}
