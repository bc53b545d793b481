package agent

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
)

// Prepared is a request's plan, made once and submitted any number of times, also by several goroutines at once: Submit then plans nothing. It never changes; only when the chunk limit towards
// the peer has changed since is it cut again, by the first Submit after that.
type Prepared struct {
	agent         *Agent
	peer          ports.Identity
	local, remote []ports.Descriptor

	mu  sync.Mutex // held while cutting
	cut atomic.Pointer[preparedCut]
}

// preparedCut is the plan for one chunk limit. The transport reads it and nobody changes it.
type preparedCut struct {
	limits    plan.Limits
	summary   plan.Summary
	unplanned error // why there are no chunks: only the direct path takes it
	sizes     []uint32
	chunks    []*plan.Chunk
}

// Prepare plans a write from local to remote memory for Request.Plan. The slices are copied. Errors are those that Submit would return for the lists, and plan.ErrOverlap for destinations that
// overlap.
func (a *Agent) Prepare(peer ports.Identity, local, remote []ports.Descriptor) (*Prepared, error) {
	view, err := a.view(peer)
	if err != nil {
		return nil, err
	}
	p := &Prepared{agent: a, peer: peer, local: slices.Clone(local), remote: slices.Clone(remote)}
	if _, err := p.forLimits(view.limits); err != nil {
		return nil, err
	}
	return p, nil
}

// forLimits is the plan that keeps to the limits.
func (p *Prepared) forLimits(lim plan.Limits) (*preparedCut, error) {
	if c := p.cut.Load(); c != nil && c.limits == lim {
		return c, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.cut.Load(); c != nil && c.limits == lim {
		return c, nil
	}
	planner := p.agent.planners.Get().(*planning)
	defer p.agent.planners.Put(planner)
	summary, err := planner.Begin(p.local, p.remote, lim)
	if err != nil && !directOnly(err) {
		return nil, err
	}
	c := &preparedCut{limits: lim, summary: summary, unplanned: err, sizes: slices.Clone(planner.ChunkBytes())}
	for range c.sizes {
		chunk := new(plan.Chunk)
		planner.Next(chunk)
		c.chunks = append(c.chunks, chunk)
	}
	if err := planner.Overlap(); err != nil {
		return nil, err
	}
	p.cut.Store(c)
	return c, nil
}

// submitPrepared is Submit for a plan that is made.
func (a *Agent) submitPrepared(view *peerView, r Request, began ports.Instant) (*Handle, error) {
	switch p := r.Plan; {
	case p.agent != a:
		return nil, errors.New("the plan was prepared by another agent")
	case p.peer != r.Peer:
		return nil, fmt.Errorf("the plan was prepared for %s", p.peer)
	case len(r.Local)+len(r.Remote) > 0:
		return nil, errors.New("a request has either a plan or descriptors")
	}
	r.Local, r.Remote = r.Plan.local, r.Plan.remote
	cut, err := r.Plan.forLimits(view.limits)
	if err != nil {
		return nil, err
	}
	if cut.unplanned == nil && cut.summary.Bytes == 0 {
		return a.empty(r)
	}
	reason, err := a.router.choose(a, view, r, cut.summary, cut.unplanned)
	if err != nil {
		return nil, err
	}
	if reason != Bounced {
		return a.submitDirect(r, reason)
	}
	return a.transport.Start(transport.Submission{
		Peer: r.Peer, Chunks: cut.sizes, Plan: cut.chunks, Bytes: cut.summary.Bytes, Token: r.Token, Ready: r.Ready, Notify: r.Notify,
		PlanTime: a.since(began), Recycle: func(*plan.Chunk) {},
	})
}
