package wiring_test

import (
	"bytes"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

// paged is memory on both sides of a pair and a request that moves all its pages to pages in another order.
type paged struct {
	a, b     *wiring.Node
	src, dst block
	request  agent.Request
}

func newPaged(t *testing.T, pages, size int) *paged {
	return newPagedBy(t, wiring.Params{Config: testConfig(), World: wiring.NewWorld()}, pages, size)
}

func newPagedBy(t *testing.T, params wiring.Params, pages, size int) *paged {
	p := &paged{src: newBlock(t, pages*size), dst: newBlock(t, pages*size)}
	p.a, p.b = pair(t, params)
	connect(t, p.a, p.b)
	_, err := p.b.Register([]ports.Descriptor{{Addr: p.dst.base(), Bytes: uint64(len(p.dst.bytes))}}, agent.BounceOnly)
	require.NoError(t, err)
	for i := range p.src.bytes {
		p.src.bytes[i] = byte(i) ^ byte(i>>8)*31 ^ byte(i>>16)*7
	}
	p.request = agent.Request{Peer: p.b.Identity(), Local: p.src.pages(pages, size, 1), Remote: p.dst.pages(pages, size, 2), Route: agent.ForceBounce}
	return p
}

// arrived checks every page and clears the destination.
func (p *paged) arrived(t *testing.T) {
	t.Helper()
	for i, s := range p.request.Local {
		d := p.request.Remote[i]
		from, to := s.Addr-p.src.base(), d.Addr-p.dst.base()
		require.True(t, bytes.Equal(p.src.bytes[from:from+s.Bytes], p.dst.bytes[to:to+d.Bytes]), "page %d", i)
	}
	clear(p.dst.bytes)
}

func TestPreparedPlanIsSubmittedAgainAndAgain(t *testing.T) {
	p := newPaged(t, 3000, 4096)
	prepared, err := p.a.Prepare(p.b.Identity(), p.request.Local, p.request.Remote)
	require.NoError(t, err)
	r := agent.Request{Peer: p.b.Identity(), Plan: prepared, Route: agent.ForceBounce}
	for range 3 {
		h, err := p.a.Submit(r)
		require.NoError(t, err)
		require.NoError(t, h.Wait(t.Context()))
		require.EqualValues(t, 3000*4096, h.Bytes())
		p.arrived(t)
	}

	var submitters sync.WaitGroup
	for range 4 {
		submitters.Go(func() {
			for range 3 {
				h, err := p.a.Submit(r)
				if err == nil {
					err = h.Wait(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	submitters.Wait()
	p.arrived(t)
}

// A peer that is added again with a smaller limit gets chunks that keep to it: a larger one would be refused.
func TestPreparedPlanIsCutAgain(t *testing.T) {
	p := newPaged(t, 2000, 4096)
	prepared, err := p.a.Prepare(p.b.Identity(), p.request.Local, p.request.Remote)
	require.NoError(t, err)
	d, err := p.b.Describe()
	require.NoError(t, err)
	report, err := p.a.AddPeer(edit(t, d, func(h *wire.Handshake) { h.MaxChunk = 100_000 }), false)
	require.NoError(t, err)
	require.EqualValues(t, 100_000, report.ChunkLimit)
	var submitters sync.WaitGroup
	for range 4 {
		submitters.Go(func() {
			h, err := p.a.Submit(agent.Request{Peer: p.b.Identity(), Plan: prepared, Route: agent.ForceBounce})
			if err == nil {
				err = h.Wait(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	submitters.Wait()
	p.arrived(t)
	require.GreaterOrEqual(t, p.b.Counter(transport.ScattersRun), uint64(4*2000*4096/100_000))
}

func TestWrongPrepared(t *testing.T) {
	p := newPaged(t, 4, 4096)
	_, err := p.a.Prepare("nobody#0000000000000001", p.request.Local, p.request.Remote)
	require.ErrorIs(t, err, transport.ErrUnknownPeer)
	_, err = p.a.Prepare(p.b.Identity(), p.request.Local, p.request.Remote[1:])
	require.ErrorIs(t, err, plan.ErrTotals)
	twice := append([]ports.Descriptor{p.request.Remote[1]}, p.request.Remote[1:]...)
	_, err = p.a.Prepare(p.b.Identity(), p.request.Local, twice)
	require.ErrorIs(t, err, plan.ErrOverlap)

	prepared, err := p.a.Prepare(p.b.Identity(), p.request.Local, p.request.Remote)
	require.NoError(t, err)
	both := p.request
	both.Plan = prepared
	_, err = p.a.Submit(both)
	require.ErrorContains(t, err, "either a plan or descriptors")
	connect(t, p.b, p.a)
	_, err = p.b.Submit(agent.Request{Peer: p.a.Identity(), Plan: prepared})
	require.ErrorContains(t, err, "another agent")
}

// Destinations that overlap fail the request before anything is scattered, and the error names both descriptors.
func TestOverlappingDestinationsScatterNothing(t *testing.T) {
	p := newPaged(t, 3000, 4096)
	p.request.Remote[2990] = p.request.Remote[7]
	h, err := p.a.Submit(p.request)
	require.NoError(t, err)
	err = h.Wait(t.Context())
	require.ErrorIs(t, err, transport.ErrPlan)
	require.ErrorIs(t, err, plan.ErrOverlap)
	require.ErrorContains(t, err, "descriptor 7, 4096 bytes at")
	require.ErrorContains(t, err, "(offset 28672 of the request), and descriptor 2990, 4096 bytes at")
	require.NoError(t, h.WaitQuiesced(t.Context()))
	require.Zero(t, p.b.Counter(transport.ScattersRun))
	require.Equal(t, make([]byte, len(p.dst.bytes)), p.dst.bytes)
}

// Waiters that stay awake see every end, whatever it is.
func TestWaitersThatStayAwake(t *testing.T) {
	p := newPagedBy(t, wiring.Awake(wiring.Params{Config: testConfig(), World: wiring.NewWorld()}), 6000, 512)
	for range 20 {
		h, err := p.a.Submit(p.request)
		require.NoError(t, err)
		require.NoError(t, h.Wait(t.Context()))
		p.arrived(t)
	}
	for range 20 {
		h, err := p.a.Submit(p.request)
		require.NoError(t, err)
		var ends sync.WaitGroup
		for range 3 {
			ends.Go(func() {
				if err := h.Wait(t.Context()); err != nil {
					assert.ErrorIs(t, err, transport.ErrCancelled)
				}
			})
		}
		h.Cancel()
		ends.Wait()
		require.NoError(t, h.WaitQuiesced(t.Context()))
	}
}
