package wiring

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/ports"
)

// How many turns without work the reactor takes before it sleeps: an answer often comes within microseconds. On a GPU everything that it waits for does, the next turn costs one
// or two of them, and no other thread of the agent's needs the processor.
const (
	spinTurns       = 64
	deviceSpinTurns = 1000
)

// runner is the reactor's goroutine.
type runner struct {
	agent    *agent.Agent
	clock    ports.Clock
	waker    *waker
	deadline time.Duration // of closing
	spin     int           // turns

	closing sync.Once
	stop    chan struct{}
	done    chan struct{}
	err     error // valid after done
}

func startRunner(a *assembly) *runner {
	r := &runner{agent: a.agent, clock: a.clock, waker: a.waker, deadline: a.cfg.CloseDeadline, spin: a.spin, stop: make(chan struct{}), done: make(chan struct{})}
	go r.run()
	return r
}

func (r *runner) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(r.done)
	defer r.waker.close()
	preciseTimers()
	closeBy := ports.Never // in the agent's time, for which a pause of the process is none
	idle := 0
	for {
		now := r.clock.Now()
		work, next := r.agent.Poll(now)
		if closeBy == ports.Never {
			select {
			case <-r.stop:
				r.agent.BeginClose()
				closeBy = r.agent.Now().Add(r.deadline)
				continue
			default:
			}
		} else if r.agent.Quiet() || !r.agent.Now().Before(closeBy) {
			r.err = r.agent.Finish()
			return
		}
		if work {
			idle = 0
			continue
		}
		if idle++; idle <= r.spin {
			continue
		}
		if closeBy != ports.Never {
			next = min(next, now.Add(closeBy.Sub(r.agent.Now())))
		}
		r.sleep(next)
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
