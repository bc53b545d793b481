package transport

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// fence fences alpha and returns where its report will be.
func (h *harness) fence() *FenceReport {
	h.Helper()
	return h.fenceOf(peerA)
}

func (h *harness) fenceOf(id ports.Identity) *FenceReport {
	h.Helper()
	report := &FenceReport{}
	require.NoError(h, h.tr.FencePeer(id, func(r FenceReport) { *report = r }))
	h.turn()
	return report
}

func TestFenceOfAReceiver(t *testing.T) {
	t.Run("gives staging back and quiesces its requests, after the settle delay", func(t *testing.T) {
		h := withPeer(t)
		pending, _ := writing(h)
		doubted, x := writing(h)
		gate := h.peer(peerA).info.Gate
		x.end(ports.FailedUnknown)
		h.turn()
		h.sent()
		report := h.fence()
		require.NotContains(t, h.channel.endpoints, peerA, "the sending socket is closed at once")
		require.ErrorIs(t, gate.Refusal(), ErrFenced)
		h.failedBecause(pending, ErrPeerInDoubt)
		require.True(t, pending.IsSettling())
		h.pass(settleDelay-ms, ms)
		require.False(t, pending.IsQuiesced())
		require.False(t, report.Settled)
		h.pass(2*ms, ms)
		require.Equal(t, FenceReport{Peer: peerA, Settled: true, Staging: 2, StagingBytes: 16 * kilo, Requests: 2}, *report)
		require.True(t, pending.IsQuiesced())
		require.True(t, doubted.IsQuiesced())
		require.False(t, pending.IsSettling())
		require.Equal(t, Failed, pending.Status())
		require.NotContains(t, h.engine.connected, peerA)
		require.True(t, x.released)
		require.Nil(t, h.peer(peerA))
		h.zero()
		h.silent()
	})
	t.Run("fails a request in progress", func(t *testing.T) {
		h := withPeer(t)
		hd := writtenRequest(h)
		report := h.fence()
		h.failedBecause(hd, ErrFenced)
		h.pass(2*settleDelay, ms)
		require.True(t, hd.IsQuiesced())
		require.Equal(t, 1, report.Requests)
		require.Zero(t, report.Staging)
		h.silent()
	})
	t.Run("waits for a gather of a request", func(t *testing.T) {
		h := withPeer(t)
		hd := h.submit(twoChunks...)
		h.sent()
		h.fence()
		h.pass(2*settleDelay, ms)
		require.False(t, hd.IsSourceReleased())
		require.False(t, hd.IsQuiesced())
		h.copied()
		require.True(t, hd.IsQuiesced())
		h.zero()
	})
	t.Run("evidence that comes meanwhile counts", func(t *testing.T) {
		h := withPeer(t)
		hd, x := writing(h)
		report := h.fence()
		h.pass(settleDelay/5, ms)
		x.end(ports.FailedNothingPosted)
		h.turn()
		require.True(t, hd.IsQuiesced())
		h.pass(settleDelay, ms)
		require.Zero(t, report.Staging)
		require.Equal(t, 1, report.Requests)
		h.silent()
	})
	t.Run("ends direct transfers once the engine dropped the peer", func(t *testing.T) {
		h := withPeer(t)
		hd, x := h.direct(DirectSubmission{})
		read, y := h.direct(DirectSubmission{Read: true})
		unposted, _ := h.direct(DirectSubmission{Ready: &fakeEvent{}})
		y.end(ports.FailedUnknown)
		h.turn()
		left := h.leave(sourceRange(0))
		report := h.fence()
		require.True(t, unposted.IsQuiesced())
		require.True(t, hd.IsSettling())
		require.False(t, left())
		h.pass(settleDelay+ms, ms)
		require.True(t, hd.IsQuiesced())
		require.True(t, read.IsQuiesced())
		require.True(t, y.released)
		require.Equal(t, 2, report.Requests)
		require.NotContains(t, h.engine.connected, peerA)
		require.False(t, left(), "memory may be used again, but must stay mapped until the engine gave the transfer up")
		driven := h.engine.progressed
		h.pass(time.Second, ms)
		require.Greater(t, h.engine.progressed, driven+100, "which it does only while it is driven")
		x.end(ports.FailedUnknown)
		require.True(t, left())
		require.True(t, x.released)
		h.zero()
	})
}

func TestFenceOfASender(t *testing.T) {
	t.Run("gives back the regions that it held, and only those", func(t *testing.T) {
		h := withPeer(t)
		h.add(peerB)
		credits := openHalfDone(h)
		h.deliverFrom(peerB, &wire.Want{Request: 1, Oldest: 1, Endpoint: []byte("mem:" + string(peerB)), ChunkBytes: twoChunks})
		h.sent()
		report := h.fence()
		require.Equal(t, 3, h.arena.LiveBlocks())
		require.EqualValues(t, 8*kilo, h.arena.RetainedBytes())
		h.deliver(dataFor(5, credits[1], 2), want(5, twoChunks...), want(6, 8), drainOf(5))
		h.silent()
		require.EqualValues(t, 4, h.count(FramesOfFenced))
		require.Len(t, h.gpu.copies, 1, "late DATA starts nothing")
		h.pass(settleDelay+ms, ms)
		require.Equal(t, FenceReport{Peer: peerA, Settled: true, Regions: 1, RegionBytes: 8 * kilo}, *report)
		require.Equal(t, 2, h.arena.LiveBlocks())
		require.Zero(t, h.arena.RetainedBytes())
		require.Nil(t, h.peer(peerA))
		h.deliver(want(7, 8))
		require.EqualValues(t, 5, h.count(FramesOfFenced), "the fence is remembered")
		require.ErrorIs(t, h.addInfo(infoOf(peerA)), ErrStale)
		require.Nil(t, h.peer(peerA))
		h.silent()
	})
	t.Run("drops queued scatters and waits for a running one", func(t *testing.T) {
		h := withPeer(t)
		h.gpu.contexts = 1
		credits := openFlow(h)
		h.deliver(dataFor(5, credits[0], 2), dataFor(5, credits[1], 2))
		report := h.fence()
		require.Equal(t, 1, h.arena.LiveBlocks(), "the queued one's write is latched, so its region is free")
		h.pass(settleDelay+ms, ms)
		require.Equal(t, FenceReport{Peer: peerA, Settled: true, Kept: 1}, *report)
		again := h.fence()
		require.Equal(t, 1, again.Kept)
		h.copied()
		require.Len(t, h.gpu.copies, 1)
		h.silent()
		h.zero()
		h.tick(61 * time.Second)
		require.Nil(t, h.peer(peerA))
	})
	t.Run("a scatter that ends within the delay frees its region", func(t *testing.T) {
		h := withPeer(t)
		credits := openFlow(h)
		h.deliver(dataFor(5, credits[0], 2), dataFor(5, credits[1], 2))
		report := h.fence()
		h.copied()
		require.Zero(t, h.arena.LiveBlocks())
		h.pass(settleDelay+ms, ms)
		require.Equal(t, FenceReport{Peer: peerA, Settled: true}, *report)
		h.silent()
	})
	t.Run("after its lease, its DRAIN, or its end", func(t *testing.T) {
		for name, reach := range map[string]func(*harness) []wire.Credit{"lease": expiredFlow, "drain": closedFlow, "end": finishedFlow} {
			t.Run(name, func(t *testing.T) {
				h := withPeer(t)
				reach(h)
				h.fence()
				h.pass(2*settleDelay, ms)
				h.copied()
				h.silent()
				h.zero()
			})
		}
	})
	t.Run("that a window waits for nothing of", func(t *testing.T) {
		h := withPeer(t)
		w := h.open(destOf(2), nil)
		h.grantedIn(w, 5, twoChunks...)
		w.Close()
		require.True(t, w.IsQuiesced())
		h.fence()
		h.pass(2*settleDelay, ms)
		h.zero()
	})
}

// The settle delay counts only time in which this side drove the engine.
func TestSettleDelay(t *testing.T) {
	settledAfter := func(h *harness, report *FenceReport) time.Duration {
		start := h.now
		for !report.Settled {
			require.Less(t, h.now.Sub(start), time.Minute)
			h.pass(ms, ms)
		}
		return h.now.Sub(start)
	}
	start := func(t *testing.T) (*harness, *FenceReport) {
		h := withPeer(t)
		openFlow(h)
		return h, h.fence()
	}
	t.Run("of a process that runs", func(t *testing.T) {
		h, report := start(t)
		driven := h.engine.progressed
		require.InDelta(t, settleDelay, settledAfter(h, report), float64(5*ms))
		require.Greater(t, h.engine.progressed, driven+400)
	})
	t.Run("of an engine that another thread drives, by that thread's turns", func(t *testing.T) {
		h, report := start(t)
		counted := &countedEngine{fakeEngine: h.engine}
		h.tr.turnCounter = counted
		h.pass(2*settleDelay, ms)
		require.False(t, report.Settled, "the thread was at something else")
		counted.turns++
		h.pass(ms, ms)
		require.False(t, report.Settled, "after so long a gap it starts anew")
		left := settleDelay
		for ; !report.Settled; left -= ms {
			counted.turns++
			h.pass(ms, ms)
		}
		require.InDelta(t, 0, left, float64(5*ms))
	})
	t.Run("gaps over 10 ms are not counted", func(t *testing.T) {
		h, report := start(t)
		h.pass(settleDelay*2/5, ms)
		for range 50 {
			h.jump(11 * ms)
		}
		h.jump(time.Second)
		require.InDelta(t, settleDelay*3/5, settledAfter(h, report), float64(5*ms))
	})
	t.Run("a gap over 1 s starts it anew", func(t *testing.T) {
		h, report := start(t)
		h.pass(settleDelay-100*ms, ms)
		h.jump(time.Second + ms)
		require.False(t, report.Settled)
		require.InDelta(t, settleDelay, settledAfter(h, report), float64(5*ms))
	})
	t.Run("a process that is paused for longer than the delay does not settle by it", func(t *testing.T) {
		h, report := start(t)
		h.jump(time.Hour)
		require.False(t, report.Settled)
		h.jump(time.Hour)
		require.False(t, report.Settled)
		require.InDelta(t, settleDelay, settledAfter(h, report), float64(5*ms))
	})
	t.Run("a second fence waits for the first", func(t *testing.T) {
		h, report := start(t)
		h.pass(settleDelay*4/5, ms)
		second := h.fence()
		require.InDelta(t, settleDelay/5, settledAfter(h, report), float64(5*ms))
		require.Equal(t, report, second)
	})
	t.Run("of a peer that holds nothing, or was never known, is over at once", func(t *testing.T) {
		h := withPeer(t)
		require.Equal(t, FenceReport{Peer: peerA, Settled: true}, *h.fence())
		require.Nil(t, h.peer(peerA))
		require.Equal(t, FenceReport{Peer: peerB, Settled: true}, *h.fenceOf(peerB))
		h.deliverFrom(peerB, want(1, 8))
		h.silent()
		require.ErrorIs(t, h.addInfo(infoOf(peerB)), ErrStale)
		h.add(alphaNext)
		require.True(t, h.fence().Settled, "and again")
	})
	t.Run("takes its time once memory was registered for direct use, which leaves no trace here", func(t *testing.T) {
		h := withPeer(t)
		require.NoError(t, h.tr.registry.AddDirect([]ports.Descriptor{{Addr: 1 << 40, Bytes: 8 * kilo}}))
		for _, id := range []ports.Identity{peerA, peerB} {
			report := h.fenceOf(id)
			h.pass(settleDelay-ms, ms)
			require.False(t, report.Settled)
			h.pass(2*ms, ms)
			require.Equal(t, FenceReport{Peer: id, Settled: true}, *report)
			require.Nil(t, h.peer(id))
			require.True(t, h.fenceOf(id).Settled, "and again, at once")
		}
	})
	t.Run("when the agent stops first is reported so", func(t *testing.T) {
		h, _ := start(t)
		var got *FenceReport
		require.NoError(t, h.tr.FencePeer(peerA, func(r FenceReport) { got = &r }))
		h.turn()
		h.tr.Stop()
		require.Equal(t, &FenceReport{Peer: peerA}, got)
		require.ErrorIs(t, h.tr.FencePeer(peerA, nil), ErrClosing)
		h.stuck = true
	})
}
