package agent

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
)

// Op is what a request does.
type Op uint8

// The operations.
const (
	Write Op = iota // local memory to the peer's
	Read            // the peer's memory to local memory; always direct
)

// Route overrides the choice of path.
type Route uint8

// The routes.
const (
	Auto        Route = iota // by the rules of protocol.md, 9
	ForceBounce              // bounce, or an error that says why not
	ForceDirect              // the direct path
)

// Request is one transfer. Local and Remote hold the same bytes in the same order but may be cut differently; the slices are not kept after Submit.
type Request struct {
	Op     Op
	Peer   ports.Identity
	Local  []ports.Descriptor
	Remote []ports.Descriptor
	Plan   *Prepared   // by Prepare, for the same peer, instead of Local and Remote
	Token  uint64      // of the peer's receive window, 0 none; a request with a token never goes directly
	Ready  ports.Event // nothing starts before it; nil: the memory is ready now
	Notify []byte      // handed to the peer's application after success; nil none
	Route  Route
}

func newPlanner() any { return new(planning) }
func newChunk() any   { return new(plan.Chunk) }

// planning is what making a plan takes.
type planning struct {
	plan.Planner
	chunks []*plan.Chunk // of the present request
}

// Submit starts a request and returns while it runs. Planning happens here, on the caller's goroutine, while the first chunks are under way. The source must not be changed before the handle's
// SourceReleased, and no memory of the request be reused before Quiesced. An error means that nothing was started. Destinations that overlap are found after that: they fail the request
// (transport.ErrPlan, plan.ErrOverlap) before the first byte is scattered.
func (a *Agent) Submit(r Request) (*Handle, error) {
	view, err := a.view(r.Peer)
	if err != nil {
		return nil, err
	}
	if f := view.gate.Refusal(); f != nil {
		return nil, f
	}
	if ports.IsFrame(r.Notify) {
		return nil, fmt.Errorf("notify: begins with %q, which is reserved", ports.FrameMagic)
	}
	r.Notify = slices.Clone(r.Notify)
	began := a.opt.Clock.Now()
	if r.Plan != nil {
		return a.submitPrepared(view, r, began)
	}
	planner := a.planners.Get().(*planning)
	defer a.planners.Put(planner)
	summary, unplanned := planner.Begin(r.Local, r.Remote, view.limits)
	if unplanned != nil && !directOnly(unplanned) {
		return nil, unplanned
	}
	if unplanned == nil && summary.Bytes == 0 {
		return a.empty(r)
	}
	reason, err := a.router.choose(a, view, r, summary, unplanned)
	if err != nil {
		return nil, err
	}
	if reason != Bounced {
		return a.submitDirect(r, reason)
	}
	return a.submitBounce(r, planner, summary, began)
}

// directOnly reports whether an error of the planner's rules out bounce alone.
func directOnly(err error) bool {
	return errors.Is(err, plan.ErrPlaces) || errors.Is(err, plan.ErrTooManyChunks)
}

// submitBounce hands the chunks over one by one, each as soon as its gather is planned. What DATA says of them follows: it is read after PlanChecked only.
func (a *Agent) submitBounce(r Request, planner *planning, summary plan.Summary, began ports.Instant) (*Handle, error) {
	// A request may fail and give chunks back while they are still being planned here. Those go to nobody else.
	planned := new(atomic.Bool)
	h, err := a.transport.Start(transport.Submission{
		Peer: r.Peer, Chunks: slices.Clone(planner.ChunkBytes()), Unchecked: true, Bytes: summary.Bytes, Token: r.Token, Ready: r.Ready, Notify: r.Notify,
		PlanTime: a.since(began), Recycle: func(c *plan.Chunk) {
			if planned.Load() {
				a.chunks.Put(c)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	for range planner.ChunkBytes() {
		began := a.opt.Clock.Now()
		c := a.chunks.Get().(*plan.Chunk)
		planner.NextGather(c)
		planner.chunks = append(planner.chunks, c)
		h.Planned(c, a.since(began))
	}
	began = a.opt.Clock.Now()
	for _, c := range planner.chunks {
		planner.NextScatter(c)
	}
	clear(planner.chunks)
	planner.chunks = planner.chunks[:0]
	planned.Store(true)
	if err := planner.Overlap(); err != nil {
		h.PlanFailed(err)
	} else {
		h.PlanChecked(a.since(began))
	}
	return h, nil
}

// empty is a request without bytes: it succeeds at once and sends nothing but its notification.
func (a *Agent) empty(r Request) (*Handle, error) {
	if len(r.Notify) > 0 {
		if err := a.transport.Notify(r.Peer, r.Notify); err != nil {
			return nil, err
		}
	}
	return transport.Empty(r.Peer), nil
}

func (a *Agent) since(t ports.Instant) time.Duration { return a.opt.Clock.Now().Sub(t) }

func (a *Agent) submitDirect(r Request, reason Reason) (*Handle, error) {
	local, remote, bytes, err := pair(r.Local, r.Remote)
	if err != nil {
		return nil, err
	}
	return a.transport.StartDirect(transport.DirectSubmission{
		Peer: r.Peer, Read: r.Op == Read, Local: local, Remote: remote, Bytes: bytes, Ready: r.Ready, Notify: r.Notify, Why: reasonTexts[reason],
	})
}

// Notify sends bytes to a peer's application. It is tried until the engine accepts it; delivery is not promised.
func (a *Agent) Notify(peer ports.Identity, message []byte) error {
	if _, err := a.view(peer); err != nil {
		return err
	}
	if ports.IsFrame(message) {
		return fmt.Errorf("notify: begins with %q, which is reserved", ports.FrameMagic)
	}
	return a.transport.Notify(peer, slices.Clone(message))
}
