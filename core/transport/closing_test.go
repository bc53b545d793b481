package transport

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

func TestBeginClose(t *testing.T) {
	h := withPeer(t)
	credits := openFlow(h)
	hd, x := writing(h)
	dh, dx := h.direct(DirectSubmission{})
	waiting := h.submission(Submission{Peer: peerA, Chunks: twoChunks, Ready: &fakeEvent{}})
	gate := h.peer(peerA).info.Gate
	h.tr.BeginClose()
	h.tr.BeginClose()
	h.turn()
	for _, hd := range []*Handle{hd, dh, waiting} {
		h.failedBecause(hd, ErrClosing)
	}
	require.ErrorIs(t, gate.Refusal(), ErrClosing)
	require.True(t, waiting.IsQuiesced())
	require.False(t, h.tr.Quiet())
	late := h.submit(8)
	h.failedBecause(late, ErrClosing)
	h.silent()

	// What runs goes on to its evidence: writes, admitted flows, direct transfers.
	x.end(ports.Success)
	h.turn()
	h.expect(wire.TypeDrain)
	h.deliver(drained(1))
	require.True(t, hd.IsQuiesced())
	h.deliver(dataFor(5, credits[0], 2), dataFor(5, credits[1], 2))
	h.copied()
	h.expect(wire.TypeAck, wire.TypeAck)
	require.False(t, h.tr.Quiet())
	dx.end(ports.FailedEnded)
	h.turn()
	require.True(t, h.tr.Quiet())
	h.deliverFrom(peerB, want(1, 8))
	h.expectNack(wire.ReasonRefused) // a stranger need not wait for a timeout either
	h.deliverFrom(peerB, &wire.Drain{Request: 1, Endpoint: []byte("mem:b")})
	h.expect(wire.TypeDrainAck)
	require.True(t, h.tr.Quiet())
}

func TestStop(t *testing.T) {
	h := withPeer(t)
	hd, _ := writing(h)
	dh, _ := h.direct(DirectSubmission{Ready: &fakeEvent{}})
	queued := h.start(Submission{Peer: peerA, Chunks: twoChunks})
	removed, left := false, false
	require.NoError(t, h.tr.RemovePeer(peerB, func() { removed = true }))
	require.NoError(t, h.tr.Leave([]ports.Descriptor{{Addr: 8, Bytes: 8}}, func(error) { left = true }))
	h.tr.Stop()
	for _, hd := range []*Handle{hd, dh, queued} {
		h.failedBecause(hd, ErrClosing)
	}
	require.True(t, dh.IsQuiesced())
	require.True(t, queued.IsQuiesced())
	require.False(t, hd.IsQuiesced(), "a write may be running")
	require.True(t, removed, "nobody waits for a command for ever")
	require.True(t, left)
	require.Empty(t, h.tr.CallerDoubts())
	require.Equal(t, 1, h.tr.Totals().Blocks)
	_, err := h.tr.Start(Submission{Peer: peerA, Chunks: twoChunks})
	require.ErrorIs(t, err, ErrClosing)
	require.ErrorIs(t, h.tr.Notify(peerA, nil), ErrClosing)
	hd.Cancel()
}

func TestInboxIsBounded(t *testing.T) {
	wakes := 0
	h := newHarness(t)
	o := h.opt
	o.Wake = func() { wakes++ }
	h.tr = New(o)
	var err error
	for range maxQueuedCommands {
		require.NoError(t, h.tr.Notify(peerA, nil))
	}
	require.ErrorIs(t, h.tr.Notify(peerA, nil), ErrQueueFull)
	require.Equal(t, 1, wakes, "the first wakes, the others find it awake")
	h.tr.BeginClose()
	h.turn()
	require.True(t, h.tr.closing, "what must not be lost is taken all the same")
	_, err = h.tr.Start(Submission{Peer: peerA, Chunks: twoChunks})
	require.NoError(t, err)
	require.Equal(t, 2, wakes)
}

func TestHandleWaits(t *testing.T) {
	h := withPeer(t)
	hd := h.submit(8 * kilo)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, hd.Wait(over), context.Canceled)
	require.ErrorIs(t, hd.WaitQuiesced(over), context.Canceled)
	require.ErrorIs(t, hd.WaitSourceReleased(over), context.Canceled)
	require.NoError(t, hd.Err())
	require.Equal(t, Stages{}, hd.Stages())
	done := hd.Done()
	h.now = h.now.Add(3 * ms)
	h.succeedAll(1, twoChunks[:1])
	<-done
	<-hd.SourceReleased()
	<-hd.Quiesced()
	require.NoError(t, hd.Wait(over), "an end that has come wins")
	require.NoError(t, hd.WaitQuiesced(over))
	require.NoError(t, hd.WaitSourceReleased(over))
	require.Equal(t, 3*ms, hd.Stages().Total)
	require.Equal(t, 3*ms, hd.Stages().WantGrant)

	failed := h.submit(8 * kilo)
	h.cancel(failed)
	require.ErrorIs(t, failed.Wait(context.Background()), ErrCancelled)
	require.ErrorContains(t, failed.Err(), "request 2 to "+string(peerA)+" failed: cancelled")

	none := Empty(peerA)
	require.Equal(t, Succeeded, none.Status())
	require.True(t, none.IsQuiesced())
	require.Zero(t, none.Bytes())
	none.Cancel()
	require.Equal(t, []string{"in progress", "succeeded", "failed", "bounce", "direct"},
		[]string{InProgress.String(), Succeeded.String(), Failed.String(), PathBounce.String(), PathDirect.String()})
}

func TestCounters(t *testing.T) {
	h := withPeer(t)
	openFlow(h)
	got := map[string]uint64{}
	h.tr.Counters().Each(func(name string, n uint64) {
		require.NotEmpty(t, name)
		require.NotContains(t, got, name)
		got[name] = n
	})
	require.Len(t, got, int(counters))
	require.EqualValues(t, 1, got["flows_admitted"])
	require.EqualValues(t, 1, got["frames_received"])
	require.EqualValues(t, 1, got["frames_sent"])
	h.tick(61 * time.Second)
	require.EqualValues(t, 1, h.count(FlowsExpired))
}
