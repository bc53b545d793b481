package host

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/kvbounce/kvbounce/ports"
)

// job is a copy context and the copy that occupies it. The reactor owns it, except between push and ended.
type job struct {
	runs    ports.Runs
	block   uint64
	scatter bool

	// The pool's, under its mutex.
	rest    position // where the part that nobody took begins
	running int      // parts that workers have taken
	err     error    // of the first part that failed

	// ended is set as the last act of the last worker: after it no worker touches the job, its runs, or memory for it.
	ended atomic.Bool
}

func (j *job) prepare(runs ports.Runs, block uint64, scatter bool) {
	j.runs, j.block, j.scatter = runs, block, scatter
	j.rest, j.running, j.err = position{}, 0, nil
	j.ended.Store(false)
}

// release takes the result of a job that ended, and lets go of the caller's slices.
func (j *job) release() error {
	j.runs = ports.Runs{}
	return j.err
}

// exhausted reports whether no part is left to take.
func (j *job) exhausted() bool { return j.rest.run >= len(j.runs.Runs) }

// pool is the workers and the copies that they take parts of, in the order of their launch: so the first of several gathers ends first.
type pool struct {
	wake    func()
	workers sync.WaitGroup

	mu     sync.Mutex
	work   sync.Cond // something to do, or closed
	queue  []*job    // not exhausted, or just pushed; each job once
	closed bool
}

func startPool(workers, jobs int, wake func()) *pool {
	p := &pool{wake: wake, queue: make([]*job, 0, jobs)}
	p.work.L = &p.mu
	for range workers {
		p.workers.Go(p.run)
	}
	return p
}

// push hands a job over, unless the pool was closed.
func (p *pool) push(j *job) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.queue = append(p.queue, j)
	p.work.Signal()
	return true
}

func (p *pool) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// close waits until what was pushed has ended and the workers have too.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.work.Broadcast()
	p.mu.Unlock()
	p.workers.Wait()
}

// run is a worker.
func (p *pool) run() {
	// A piece that is not mapped then panics here instead of ending the process, see try.
	debug.SetPanicOnFault(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for len(p.queue) == 0 {
			if p.closed {
				return
			}
			p.work.Wait()
		}
		j := p.queue[0]
		var mine part
		mine, j.rest = cut(j.runs.Runs, j.rest)
		j.running++
		if j.exhausted() {
			p.drop(j)
		}
		if len(p.queue) > 0 {
			p.work.Signal() // each worker that finds more than it takes wakes the next
		}
		p.mu.Unlock()
		err := j.try(mine)
		p.mu.Lock()
		p.finish(j, err)
	}
}

// finish accounts for one part. After a fault no other part is started; those that run are waited for, so the end is the end also of a copy that failed.
func (p *pool) finish(j *job, err error) {
	j.running--
	if err != nil && j.err == nil {
		j.err = err
		p.drop(j)
		j.rest.run = len(j.runs.Runs)
	}
	if j.running > 0 || !j.exhausted() {
		return
	}
	p.mu.Unlock()
	j.ended.Store(true)
	if p.wake != nil {
		p.wake()
	}
	p.mu.Lock()
}

// drop removes a job from the queue, if it is still there. It is at the front, or nearly: workers take from the front.
func (p *pool) drop(j *job) {
	for i, queued := range p.queue {
		if queued == j {
			p.queue = append(p.queue[:i], p.queue[i+1:]...)
			return
		}
	}
}

// try copies one part. The error is the access to memory that failed.
func (j *job) try(mine part) (err error) {
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr
		}:
			err = fmt.Errorf("host copy: memory at %#x is not mapped, or may not be accessed so", fault.Addr())
		default:
			panic(fault)
		}
	}()
	copyPart(j.runs, j.block, j.scatter, mine)
	return nil
}
