package transport

import (
	"errors"
	"sync"
)

// maxQueuedCommands bounds what submitters may have queued for the reactor. A reactor that runs empties the queue every turn; one that is stuck must
// not collect commands without end.
const maxQueuedCommands = 1 << 16

// ErrQueueFull: the reactor has not taken commands for long. Trying again later is right.
var ErrQueueFull = errors.New("the agent's command queue is full")

// command is a step that runs in the reactor.
type command func(t *Transport)

// inbox is the bounded queue into the reactor.
type inbox struct {
	mu     sync.Mutex
	queue  []command
	closed bool
}

// put queues a command. first reports that the queue was empty, so that the reactor may be asleep.
func (b *inbox) put(c command, force bool) (first bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false, ErrClosing
	}
	if len(b.queue) >= maxQueuedCommands && !force {
		return false, ErrQueueFull
	}
	b.queue = append(b.queue, c)
	return len(b.queue) == 1, nil
}

// swap takes all commands and leaves spare, emptied, as the queue.
func (b *inbox) swap(spare []command) []command {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		return spare[:0]
	}
	q := b.queue
	b.queue = spare[:0]
	return q
}

// close refuses further commands and returns those not yet taken.
func (b *inbox) close() []command {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	q := b.queue
	b.queue = nil
	return q
}
