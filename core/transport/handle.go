package transport

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/ports"
)

// Status is a request's logical outcome.
type Status uint32

// The statuses. Succeeded and Failed are final.
const (
	InProgress Status = iota
	Succeeded
	Failed
)

// String is the status as logs print it.
func (s Status) String() string {
	if names := [...]string{"in progress", "succeeded", "failed"}; int64(s) < int64(len(names)) {
		return names[s]
	}
	return "unknown status"
}

// Path is the way a request's bytes take.
type Path uint8

// The paths.
const (
	PathDirect Path = iota
	PathBounce
)

// String is "direct" or "bounce".
func (p Path) String() string {
	if p == PathBounce {
		return "bounce"
	}
	return "direct"
}

// Stages are the times that the parts of a request took, each from the first begin to the last end; they overlap. A stage that did not happen is 0.
type Stages struct {
	Plan      time.Duration // planning, on the caller's goroutine
	WantGrant time.Duration // WANT sent to last credit
	Gather    time.Duration // first gather launched to last seen done
	Write     time.Duration // first write posted to last latched
	DataAck   time.Duration // first DATA sent to last ACK
	Total     time.Duration // tracked to logical end
}

// Handle is one submitted request. Its methods may be called from any goroutine.
//
// A request ends twice: logically, when it succeeded or failed (Done, Wait, Err), and physically, when nothing that it started can touch memory any more (Quiesced).
// Between the two the caller must not reuse the memory: the source until SourceReleased, everything until Quiesced. Success implies both.
type Handle struct {
	path     Path
	peer     ports.Identity
	bytes    uint64
	status   atomic.Uint32
	id       atomic.Uint64
	err      error  // written before ended is set
	stages   Stages // written before ended is set
	near     latch  // nothing but the last ACKs is awaited
	ended    latch
	released latch
	quiesced latch
	settling atomic.Bool
	planTime time.Duration

	// What the reactor keeps of it: a bounce request, a direct transfer, or, of a request without bytes, nothing.
	transport *Transport
	request   *request
	direct    *direct
}

// Path is how the request travels.
func (h *Handle) Path() Path { return h.path }

// Peer is the peer that the request reads from or writes to.
func (h *Handle) Peer() ports.Identity { return h.peer }

// Bytes are the request's bytes.
func (h *Handle) Bytes() uint64 { return h.bytes }

// ID is the request's number towards its peer, 0 until the reactor tracks it and for direct requests.
func (h *Handle) ID() uint64 { return h.id.Load() }

// Status is the logical outcome so far.
func (h *Handle) Status() Status { return Status(h.status.Load()) }

// Err is nil while the request is in progress and after success, else a *Failure.
func (h *Handle) Err() error {
	if h.ended.isSet() {
		return h.err
	}
	return nil
}

// Stages are the times of a request that ended; before that they are zero.
func (h *Handle) Stages() Stages {
	if h.ended.isSet() {
		return h.stages
	}
	return Stages{}
}

// Done is closed at the logical end.
func (h *Handle) Done() <-chan struct{} { return h.ended.done() }

// Wait returns Err at the logical end, or the context's error if that comes first; the request then goes on.
func (h *Handle) Wait(ctx context.Context) error {
	if h.request != nil && h.transport.attend != nil {
		h.transport.attend(h.ended.isSet)
		select {
		case <-h.near.done():
			h.transport.attend(h.ended.isSet)
		case <-h.ended.done():
		case <-ctx.Done():
		}
	}
	if err := wait(ctx, &h.ended); err != nil {
		return err
	}
	return h.err
}

// SourceReleased is closed when nothing that this request started can read the caller's source memory any more. With the bounce path that comes early.
func (h *Handle) SourceReleased() <-chan struct{} { return h.released.done() }

// WaitSourceReleased waits for SourceReleased. nil says that the source may be reused, whatever the request's outcome.
func (h *Handle) WaitSourceReleased(ctx context.Context) error { return wait(ctx, &h.released) }

// Quiesced is closed when nothing that this request started can touch any memory any more: source, staging, the peer's region or the peer's destination.
func (h *Handle) Quiesced() <-chan struct{} { return h.quiesced.done() }

// WaitQuiesced waits for Quiesced. nil says that all memory may be reused, whatever the request's outcome.
func (h *Handle) WaitQuiesced(ctx context.Context) error { return wait(ctx, &h.quiesced) }

// IsQuiesced reports whether Quiesced is closed, without waiting.
func (h *Handle) IsQuiesced() bool { return h.quiesced.isSet() }

// IsSourceReleased reports whether SourceReleased is closed, without waiting.
func (h *Handle) IsSourceReleased() bool { return h.released.isSet() }

// IsSettling reports whether the request's peer was fenced and its settle delay runs, which will quiesce the request.
func (h *Handle) IsSettling() bool { return h.settling.Load() }

// Cancel fails the request, unless it has ended, and returns at once. Memory is not free before Quiesced. It may be called any number of times.
func (h *Handle) Cancel() {
	switch {
	case h.request != nil:
		h.do(func(t *Transport) { t.fail(h.request, &Failure{Kind: ErrCancelled}) })
	case h.direct != nil:
		h.do(func(t *Transport) { t.failDirect(h.direct, &Failure{Kind: ErrCancelled}) })
	}
}

// Planned hands the request's next chunk to the reactor, which owns it until it calls Recycle.
func (h *Handle) Planned(c *plan.Chunk, took time.Duration) {
	h.do(func(t *Transport) { t.onPlanned(h.request, c, took) })
}

// PlanChecked says that the plan of an Unchecked request, all of whose chunks were handed over, is complete and nothing is wrong with it: its DATA may leave. took is what that took since the last chunk.
func (h *Handle) PlanChecked(took time.Duration) {
	h.do(func(t *Transport) { t.onPlanChecked(h.request, took) })
}

// PlanFailed fails the request: its descriptors turned out to be wrong after WANT left.
func (h *Handle) PlanFailed(err error) {
	h.do(func(t *Transport) { t.fail(h.request, &Failure{Kind: ErrPlan, Cause: err}) })
}

// do hands a command of the submitter to the reactor. It is bound by its own requests and their chunks, so this may exceed the queue's bound by them. Once the transport stopped there is nothing to do.
func (h *Handle) do(c command) { _ = h.transport.put(c, true) }

func wait(ctx context.Context, l *latch) error {
	select {
	case <-l.done():
		return nil
	default:
	}
	select {
	case <-l.done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end records the logical end. err is nil for success.
func (h *Handle) end(err error, stages Stages) {
	h.err, h.stages = err, stages
	if err == nil {
		// Success implies quiesced, so whoever sees the one sees the other.
		h.quiesce()
		h.status.Store(uint32(Succeeded))
	} else {
		h.status.Store(uint32(Failed))
	}
	h.ended.set()
}

// quiesce says that the request is physically over, which implies that its source is released.
func (h *Handle) quiesce() {
	h.released.set()
	h.quiesced.set()
}

// latch is a condition that becomes true once. Its channel is made only for those who wait.
type latch struct {
	on atomic.Bool // written under mu
	mu sync.Mutex
	ch chan struct{}
}

func (l *latch) set() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.on.Swap(true) {
		return
	}
	if l.ch != nil {
		close(l.ch)
	}
}

func (l *latch) isSet() bool { return l.on.Load() }

func (l *latch) done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ch == nil {
		l.ch = make(chan struct{})
		if l.on.Load() {
			close(l.ch)
		}
	}
	return l.ch
}

// Empty is the handle of a request without bytes: it succeeded, and nothing was or will be touched.
func Empty(peer ports.Identity) *Handle {
	h := &Handle{path: PathDirect, peer: peer}
	h.end(nil, Stages{})
	return h
}
