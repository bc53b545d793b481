// Package host is the GpuCompute of host memory: an arena of huge pages outside the Go heap, and a few goroutines that copy.
//
// It is the compute of an agent whose KV cache lies in DRAM. Addresses are those of this process. Memory that takes part must not be the Go heap's, since
// nothing here keeps it alive, and must stay mapped until the copy's event is final. A piece that is not mapped fails its copy, and no other.
package host

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/kvbounce/kvbounce/ports"
)

// maxDefaultWorkers bounds the default: a few cores saturate the memory of one socket.
const maxDefaultWorkers = 8

// Config is how a Compute is made.
type Config struct {
	// Contexts is how many copies can be under way at once, at least 1 (the setting COPY_STREAMS).
	Contexts int
	// Workers is how many goroutines copy. 0 means one for each processor that Go uses, at most 8.
	Workers int
	// Wake, unless nil, is called after each copy that ended, by a worker. It must not block.
	Wake func()
}

// Compute is a ports.GpuCompute over host memory.
type Compute struct {
	contexts int
	pool     *pool

	free   []*job  // reactor's
	events []event // reactor's: unused events, see newEvent

	mu     sync.Mutex
	arenas map[uint64]mapping // by base
}

var _ ports.GpuCompute = (*Compute)(nil)

// New starts the workers. Close ends them.
func New(cfg Config) (*Compute, error) {
	if cfg.Contexts < 1 {
		return nil, fmt.Errorf("host compute: Contexts is %d, want at least 1", cfg.Contexts)
	}
	if cfg.Workers < 0 {
		return nil, fmt.Errorf("host compute: Workers is %d, want 1 or more, or 0 for the default", cfg.Workers)
	}
	workers := cfg.Workers
	if workers == 0 {
		workers = min(runtime.GOMAXPROCS(0), maxDefaultWorkers)
	}
	c := &Compute{contexts: cfg.Contexts, arenas: make(map[uint64]mapping)}
	for range cfg.Contexts {
		c.free = append(c.free, new(job))
	}
	c.pool = startPool(workers, cfg.Contexts, cfg.Wake)
	return c, nil
}

// Contexts is Config.Contexts.
func (c *Compute) Contexts() int { return c.contexts }

// AllocArena maps whole 2 MiB pages. They take memory when they are first touched, and are zero until then.
func (c *Compute) AllocArena(bytes uint64) (ports.Arena, error) {
	if c.pool.isClosed() {
		return ports.Arena{}, ports.ErrClosed
	}
	m, err := mapPages(bytes)
	if err != nil {
		return ports.Arena{}, fmt.Errorf("host arena: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arenas[m.base()] = m
	return ports.Arena{Base: m.base(), Bytes: m.bytes}, nil
}

// FreeArena unmaps an arena of this Compute, after Close too.
func (c *Compute) FreeArena(a ports.Arena) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.arenas[a.Base]
	if !ok {
		return fmt.Errorf("host arena: no arena begins at %#x", a.Base)
	}
	if err := m.unmap(); err != nil {
		return fmt.Errorf("host arena: %w", err)
	}
	delete(c.arenas, a.Base)
	return nil
}

// Gather copies the application's pieces into the block.
func (c *Compute) Gather(runs ports.Runs, block uint64) (ports.Event, error) {
	return c.launch(runs, block, false)
}

// Scatter copies the block's pieces to the application.
func (c *Compute) Scatter(runs ports.Runs, block uint64) (ports.Event, error) {
	return c.launch(runs, block, true)
}

func (c *Compute) launch(runs ports.Runs, block uint64, scatter bool) (ports.Event, error) {
	if len(c.free) == 0 {
		return nil, ports.ErrBusy
	}
	j := c.free[len(c.free)-1]
	j.prepare(runs, block, scatter)
	if !c.pool.push(j) {
		return nil, fmt.Errorf("%w: %w", ports.ErrNotLaunched, ports.ErrClosed)
	}
	c.free = c.free[:len(c.free)-1]
	return c.newEvent(j), nil
}

// Close lets the copies under way end, then ends the workers. Arenas stay mapped until FreeArena.
func (c *Compute) Close() error {
	c.pool.close()
	return nil
}

// eventsAtOnce is how many events are allocated together, so that a launch hardly ever allocates. They can't be recycled, since a caller may ask an old event for
// ever; they are small, and keep at most this many alive.
const eventsAtOnce = 64

// event is what a caller holds of one copy. job is nil once its end was seen: then the job belongs to another copy.
type event struct {
	compute *Compute
	job     *job
	err     error
}

func (c *Compute) newEvent(j *job) *event {
	if len(c.events) == 0 {
		c.events = make([]event, eventsAtOnce)
	}
	e := &c.events[0]
	c.events = c.events[1:]
	*e = event{compute: c, job: j}
	return e
}

// Status reads one word while the copy runs. The call that first sees the end gives the context back.
func (e *event) Status() ports.CopyStatus {
	if e.job != nil {
		if !e.job.ended.Load() {
			return ports.CopyPending
		}
		e.err = e.job.release()
		e.compute.free = append(e.compute.free, e.job)
		e.job = nil
	}
	if e.err != nil {
		return ports.CopyFailed
	}
	return ports.CopyDone
}

// Err is the fault that ended the copy, once Status answered CopyFailed.
func (e *event) Err() error { return e.err }
