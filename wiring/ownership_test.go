package wiring_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/session"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

// runsOf is a window over pages of a block: every second one, by a table.
func runsOf(b block, pages, size int) ports.Runs {
	var runs ports.Runs
	for i := 0; i < pages; i += 2 {
		runs.Index = append(runs.Index, uint32(i))
	}
	runs.Runs = []ports.Run{{Addr: b.base(), Stride: int64(size), Piece: uint32(size), Pieces: uint32(len(runs.Index))}}
	return runs
}

// evenPages are the same pages as descriptors.
func evenPages(b block, pages, size int) (out []ports.Descriptor) {
	for i := 0; i < pages; i += 2 {
		out = append(out, ports.Descriptor{Addr: b.base() + uint64(i*size), Bytes: uint64(size)})
	}
	return out
}

func released(t *testing.T, q *session.Request) {
	t.Helper()
	require.Eventually(t, func() bool { return q.RequireQuiescence() == session.Released }, 20*time.Second, time.Millisecond)
}

// A prefill and a decode engine use windows and sessions as docs/ownership.md says.
func TestOwnership(t *testing.T) {
	const pages, size = 512, 4096
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c := testConfig()
	c.RequireReceiveToken = true
	a, b := pair(t, wiring.Params{Config: c, World: wiring.NewWorld(), BounceRequired: true})
	src, dst := newBlock(t, pages*size), newBlock(t, pages*size)
	for i := range src.bytes {
		src.bytes[i] = byte(i / size)
	}
	md, err := b.Register([]ports.Descriptor{{Addr: dst.base(), Bytes: pages * size}}, agent.BounceOnly)
	require.NoError(t, err)
	connect(t, a, b)
	send := func(token uint64) (*agent.Handle, error) {
		return a.Submit(agent.Request{Peer: b.Identity(), Local: evenPages(src, pages, size), Remote: evenPages(dst, pages, size), Token: token})
	}

	t.Run("a request succeeds and both sides are released", func(t *testing.T) {
		w, err := b.OpenReceive(runsOf(dst, pages, size), nil)
		require.NoError(t, err)
		_, err = b.OpenReceive(runsOf(dst, pages, size), nil)
		require.ErrorIs(t, err, transport.ErrOverlap)
		_, err = b.Register([]ports.Descriptor{{Addr: dst.base(), Bytes: 1}}, agent.Direct)
		require.ErrorIs(t, err, transport.ErrOverlap)
		receive, err := b.Session("1")
		require.NoError(t, err)
		receive.Receive(w)
		h, err := send(w.Token())
		require.NoError(t, err)
		q, err := a.Session("1")
		require.NoError(t, err)
		q.Send(h)
		require.NoError(t, h.Wait(ctx))
		require.Equal(t, transport.PathBounce, h.Path())
		require.Equal(t, session.Released, q.RequireQuiescence())
		released(t, receive)
		require.NoError(t, w.WaitQuiesced(ctx))
		for i := 0; i < pages; i++ {
			want := byte(i)
			if i%2 == 1 {
				want = 0
			}
			require.Equal(t, want, dst.bytes[i*size])
		}
	})
	t.Run("a window that is closed refuses what comes later", func(t *testing.T) {
		w, err := b.OpenReceive(runsOf(dst, pages, size), nil)
		require.NoError(t, err)
		w.Close()
		require.True(t, w.IsQuiesced())
		h, err := send(w.Token())
		require.NoError(t, err)
		var f *transport.Failure
		require.ErrorAs(t, h.Wait(ctx), &f)
		require.Equal(t, wire.ReasonReceiveWindow, f.Reason)
		require.NoError(t, h.WaitQuiesced(ctx))
	})
	t.Run("a request without a token is refused here", func(t *testing.T) {
		_, err := a.Submit(agent.Request{Peer: b.Identity(), Local: evenPages(src, pages, size), Remote: evenPages(dst, pages, size), Route: agent.ForceDirect})
		require.ErrorIs(t, err, agent.ErrNoBounce)
	})
	t.Run("an abort is acknowledged on both sides", func(t *testing.T) {
		w, err := b.OpenReceive(runsOf(dst, pages, size), nil)
		require.NoError(t, err)
		receive, err := b.Session("2")
		require.NoError(t, err)
		receive.Receive(w)
		h, err := send(w.Token())
		require.NoError(t, err)
		q, err := a.Session("2")
		require.NoError(t, err)
		q.Send(h)
		receive.CancelLocal()
		q.CancelLocal()
		released(t, q)
		released(t, receive)
		require.NoError(t, h.WaitQuiesced(ctx))
	})
	t.Run("deregistration closes windows", func(t *testing.T) {
		w, err := b.OpenReceive(runsOf(dst, pages, size), nil)
		require.NoError(t, err)
		require.NoError(t, md.Deregister(ctx))
		require.True(t, w.IsQuiesced())
		_, err = b.OpenReceive(runsOf(dst, pages, size), nil)
		require.ErrorContains(t, err, "not in memory registered here")
	})
}

func TestFencePeer(t *testing.T) {
	a, b := pair(t, wiring.Params{Config: testConfig(), World: wiring.NewWorld(), BounceRequired: true})
	connect(t, a, b)
	d, err := b.Describe()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	id := b.Identity()
	report, err := a.FencePeer(ctx, id.Name(), id.Incarnation())
	require.NoError(t, err)
	require.Equal(t, agent.FenceReport{Peer: id, Settled: true}, report, "it held nothing")
	_, err = a.AddPeer(d, true)
	require.ErrorIs(t, err, agent.ErrStale)
	_, err = a.Submit(agent.Request{Peer: id})
	require.ErrorIs(t, err, transport.ErrUnknownPeer)
	_, err = a.FencePeer(ctx, a.Identity().Name(), a.Identity().Incarnation())
	require.ErrorContains(t, err, "this agent itself")
	_, err = a.FencePeer(ctx, "", 1)
	require.ErrorIs(t, err, ports.ErrBadIdentity)
}

// With the ownership profile nothing goes directly.
func TestOwnershipProfile(t *testing.T) {
	profile := session.Profile{OwnershipPeer: true, TransferTimeout: time.Minute, GenerationFirst: true, Asynchronous: true, PipelineParallel: 1, ContextParallel: 1}
	t.Run("of an engine within one process is refused", func(t *testing.T) {
		a, _ := pair(t, wiring.Params{Config: testConfig(), World: wiring.NewWorld()})
		err := a.AdoptProfile(profile)
		require.ErrorIs(t, err, session.ErrProfile)
		require.ErrorContains(t, err, "the engine is real: use the NIXL engine")
	})
	t.Run("adopted", func(t *testing.T) {
		a, b := pair(t, wiring.Params{Config: testConfig(), BounceRequired: true})
		connect(t, a, b)
		require.NoError(t, a.AdoptProfile(profile))
		one := []ports.Descriptor{{Addr: 8, Bytes: 8}}
		_, err := a.Submit(agent.Request{Peer: b.Identity(), Route: agent.ForceDirect, Local: one, Remote: one})
		require.ErrorIs(t, err, agent.ErrNoBounce)
		_, err = a.Submit(agent.Request{Op: agent.Read, Peer: b.Identity(), Local: one, Remote: one})
		require.ErrorIs(t, err, agent.ErrNoBounce)
		m, err := wiring.AllocateHost(8)
		require.NoError(t, err)
		some := []ports.Descriptor{m.Descriptor()}
		h, err := a.Submit(agent.Request{Peer: b.Identity(), Local: some, Remote: some})
		require.NoError(t, err)
		require.ErrorIs(t, a.AdoptProfile(profile), agent.ErrInUse)
		require.ErrorIs(t, h.Wait(t.Context()), transport.ErrRefused, "it is not registered there")
		require.NoError(t, m.Free())
	})
}
