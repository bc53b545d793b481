package nixl

import (
	"runtime"
	"time"

	"github.com/kvbounce/kvbounce/ports"
)

// How the thread waits while pieces run: not at all for spinFor after the last event, then in steps that grow to maxPause, and after calmAfter only when Progress asks for a turn,
// which the reactor then does every millisecond (architecture.md, "The reactor"). A piece that never ends costs nothing but that.
const (
	spinFor   = 20 * time.Microsecond
	minPause  = 10 * time.Microsecond
	maxPause  = 50 * time.Microsecond
	calmAfter = 100 * time.Millisecond
)

const (
	untilRung = time.Duration(-1)
	atRest    = time.Duration(-2) // see rest
)

// restEvery is how often an engine at rest turns: peers' transfers into this agent's memory may need it. After restTurns of them something else is looked after, such as requests that failed.
const (
	restEvery = 5 * time.Millisecond
	restTurns = 200
)

// run is the engine's thread. In host mode it runs the driver; in device mode it only connects to peers and forgets them, which takes too long for the reactor.
func (e *Engine) run(opened chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	preciseSleep()

	agent, err := openAgent(string(e.identity))
	e.driver.agent = agent
	opened <- err
	if err != nil {
		return
	}
	defer close(e.ended)

	lastEvent := time.Now()
	for {
		closed := e.work.closed.Load() // before the last turn, so that nothing that was taken before is left
		moved, pause := e.threadTurn(&lastEvent)
		if moved {
			e.moved.Store(true)
			e.wake()
		}
		if closed {
			e.endErr = e.shutDown()
			return
		}
		switch {
		case pause == untilRung:
			e.bell.wait()
		case pause == atRest:
			e.rest()
		case pause != 0:
			e.bell.waitFor(pause)
		}
	}
}

// threadTurn does what is the thread's to do, and says how long to wait before the next time.
func (e *Engine) threadTurn(lastEvent *time.Time) (moved bool, pause time.Duration) {
	e.owner.Lock()
	defer e.owner.Unlock()
	if e.inline {
		moved = e.absorb()
		moved = e.driver.settle() || moved
		return moved, untilRung
	}
	resting := e.resting.Load()
	moved, posted := e.turn(e.driven.Swap(false) || resting)
	moved = e.driver.settle() || moved

	switch {
	case moved || posted:
		*lastEvent = time.Now()
		return moved, 0
	case resting && e.driver.idle():
		return moved, atRest
	case resting:
		return moved, restEvery
	case len(e.driver.running) == 0:
		return moved, untilRung
	}
	return moved, pauseAfter(time.Since(*lastEvent))
}

// rest turns by itself, in C: a goroutine that woke up each time would take ten times as much of a core (docs/operate.md has figures).
func (e *Engine) rest() {
	e.owner.Lock()
	defer e.owner.Unlock()
	if e.driver.rest(&e.bell, restEvery, restTurns) {
		e.moved.Store(true)
		e.wake()
	}
}

// pauseAfter is how long to wait when nothing happened for so long while pieces run.
func pauseAfter(calm time.Duration) time.Duration {
	switch {
	case calm < spinFor:
		return 0
	case calm < calmAfter:
		return min(max(calm/8, minPause), maxPause)
	}
	return untilRung
}

// turn drives the engine once: what was submitted, one more piece, what arrived if it was asked to or a piece was posted, and the pieces that run. The caller holds
// owner. It reports whether something ended or arrived, and whether a piece was posted, so that another turn is worth while.
func (e *Engine) turn(driven bool) (moved, posted bool) {
	moved = e.absorb()
	posted, ended := e.driver.post()
	moved = moved || ended
	if driven || posted && !e.inline {
		moved = e.driver.receive() || moved
	}
	moved = e.driver.poll() || moved
	if driven {
		moved = e.driver.reconsider() || moved
		e.turns.Add(1)
	}
	if e.inline && e.driver.canSettle() {
		e.bell.ring()
	}
	return moved, posted
}

// absorb does what was submitted. The caller holds owner.
func (e *Engine) absorb() (moved bool) {
	tasks := e.work.take(e.spareTasks)
	for i, task := range tasks {
		moved = task() || moved
		tasks[i] = nil
	}
	if tasks != nil {
		e.spareTasks = tasks
	}
	return moved
}

// submit hands a task to whoever runs the driver. It reports false after Close.
func (e *Engine) submit(task func() (moved bool)) bool { return e.work.add(task) }

// call runs f while nobody else calls NIXL: in host mode on the thread. It blocks until that is done.
func (e *Engine) call(f func() error) error {
	if e.inline {
		e.owner.Lock()
		defer e.owner.Unlock()
		if e.work.closed.Load() {
			return ports.ErrClosed
		}
		return f()
	}
	done := make(chan error, 1)
	if !e.submit(func() bool { done <- f(); return false }) {
		return ports.ErrClosed
	}
	e.bell.ring()
	return <-done
}

// deliver takes a message that arrived; from is what its sender claims to be.
func (e *Engine) deliver(from string, bytes []byte) {
	id, err := ports.ParseIdentity(from)
	if err != nil {
		e.logger.Debug("a notification was dropped: its sender is no kvbounce agent", "error", err)
		return
	}
	if !e.inbox.put(message{id, bytes}) {
		e.logger.Warn("a notification was dropped: too many wait to be read", "from", id)
	}
}

// shutDown ends the agent, on the thread.
func (e *Engine) shutDown() error {
	e.owner.Lock()
	defer e.owner.Unlock()
	e.absorb()
	return e.driver.close()
}
