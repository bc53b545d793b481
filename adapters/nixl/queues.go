package nixl

import (
	"sync"
	"sync/atomic"

	"github.com/kvbounce/kvbounce/ports"
)

// workQueue is what the port's methods hand to whoever runs the driver, in order.
type workQueue struct {
	mu       sync.Mutex
	tasks    []func() (moved bool)
	reserved int // bytes of notifications among the tasks
	limit    int // of reserved

	// These two are written under mu, and read without it in every turn.
	waiting atomic.Bool // tasks is not empty
	closed  atomic.Bool
}

// add reports whether the task was taken: not after close.
func (q *workQueue) add(task func() (moved bool)) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed.Load() {
		return false
	}
	q.tasks = append(q.tasks, task)
	q.waiting.Store(true)
	return true
}

// take empties the queue into spare, whose memory is used again.
func (q *workQueue) take(spare []func() bool) []func() bool {
	if !q.waiting.Load() {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	tasks := q.tasks
	q.tasks = spare[:0]
	q.waiting.Store(false)
	return tasks
}

func (q *workQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed.Store(true)
}

// reserve makes room for a notification, if there is some.
func (q *workQueue) reserve(bytes int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.reserved > 0 && q.reserved+bytes > q.limit {
		return false
	}
	q.reserved += bytes
	return true
}

func (q *workQueue) unreserve(bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reserved -= bytes
}

// message is one that arrived.
type message struct {
	from  ports.Identity
	bytes []byte
}

// inbox holds messages until the reactor takes them.
type inbox struct {
	mu       sync.Mutex
	messages []message
	first    int // messages before it were taken
	bytes    int
	limit    int // of bytes

	waiting atomic.Bool // there is one, so that looking need not lock
}

// put reports whether the message was taken: not when too much waits.
func (b *inbox) put(m message) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	size := len(m.bytes) + messageOverhead
	if b.bytes > 0 && b.bytes+size > b.limit {
		return false
	}
	b.bytes += size
	b.messages = append(b.messages, m)
	b.waiting.Store(true)
	return true
}

func (b *inbox) take() (from ports.Identity, bytes []byte, ok bool) {
	if !b.waiting.Load() {
		return "", nil, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.messages[b.first]
	b.messages[b.first] = message{}
	b.first++
	b.bytes -= len(m.bytes) + messageOverhead
	if b.first == len(b.messages) {
		b.messages, b.first = b.messages[:0], 0
		b.waiting.Store(false)
	}
	return m.from, m.bytes, true
}
