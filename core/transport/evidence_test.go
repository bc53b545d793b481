package transport

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// writing leaves a request of one 8 KiB chunk to alpha with its write pending.
func writing(h *harness) (*Handle, *fakeTransfer) {
	h.Helper()
	id := h.peer(peerA).lastID + 1
	hd := h.submit(8 * kilo)
	h.copied()
	h.deliver(grant(id, twoChunks[:1], 0))
	h.expect(wire.TypeWant)
	return hd, h.engine.transfers[len(h.engine.transfers)-1]
}

func TestWriteThatPostedNothing(t *testing.T) {
	h := withPeer(t)
	hd, x := writing(h)
	x.end(ports.FailedNothingPosted)
	h.turn()
	f := h.failedBecause(hd, ErrWriteFailed)
	require.ErrorIs(t, f, ports.ErrNothingPosted)
	h.zero()
	require.True(t, hd.IsQuiesced(), "nothing was written")
	h.expect(wire.TypeDrain)
	require.Nil(t, h.peer(peerA).info.Gate.Refusal())
	require.Equal(t, InProgress, h.submit(8*kilo).Status())
}

func TestWriteThatEndedShort(t *testing.T) {
	h := withPeer(t)
	hd, x := writing(h)
	x.end(ports.FailedEnded)
	h.turn()
	h.failedBecause(hd, ErrWriteFailed)
	h.zero()
	h.expect(wire.TypeDrain)
	require.False(t, hd.IsQuiesced(), "something was written: the receiver must answer")
	h.deliver(drained(1))
	require.True(t, hd.IsQuiesced())
	require.Nil(t, h.peer(peerA).info.Gate.Refusal())
}

func TestWriteWithoutEvidence(t *testing.T) {
	t.Run("retains staging and is not drained", func(t *testing.T) {
		h := withPeer(t)
		hd, x := writing(h)
		x.end(ports.FailedUnknown)
		h.turn()
		f := h.failedBecause(hd, ErrWriteFailed)
		require.ErrorIs(t, f, errTest)
		require.False(t, x.released, "the handle may still report success")
		require.True(t, hd.IsSourceReleased())
		require.False(t, hd.IsQuiesced())
		require.Equal(t, drain.Totals{Blocks: 1, Bytes: 8 * kilo, DoubtfulBytes: 8 * kilo, Doubts: 1}, h.tr.Totals())
		h.deliver(nackWhole(1, wire.ReasonExpired), drained(1))
		h.tick(10 * time.Minute)
		h.silent()
		require.NotNil(t, h.request(1))
		require.EqualValues(t, 1, h.count(UnprovedWrites), "counted once, however often it is looked at")
		require.Empty(t, h.tr.CallerDoubts())
	})
	t.Run("late success frees it, and failure stays failure", func(t *testing.T) {
		h := withPeer(t)
		hd, x := writing(h)
		x.end(ports.FailedUnknown)
		h.turn()
		h.tick(time.Minute)
		x.end(ports.Success)
		h.tick(2 * ms)
		h.zero()
		require.True(t, x.released)
		h.expect(wire.TypeDrain)
		require.False(t, hd.IsQuiesced())
		h.deliver(drained(1))
		require.True(t, hd.IsQuiesced())
		h.failedBecause(hd, ErrWriteFailed)
	})
	t.Run("nothing more is posted to the peer", func(t *testing.T) {
		h := withPeer(t)
		h.add(peerB)
		one := []uint32{4 * kilo}
		gathered := h.submit(one...)
		h.copied()
		h.sent()
		hd, x := writing(h) // request 2
		other := h.submission(Submission{Peer: peerB, Chunks: one})
		h.copied()
		waiting := h.submission(Submission{Peer: peerA, Chunks: one, Ready: &fakeEvent{}})
		h.sent()
		x.end(ports.FailedUnknown)
		h.turn()
		h.failedBecause(hd, ErrWriteFailed)
		h.failedBecause(gathered, ErrPeerInDoubt)
		require.True(t, gathered.IsQuiesced(), "its chunks were not posted")
		h.failedBecause(waiting, ErrPeerInDoubt)
		require.True(t, waiting.IsQuiesced())
		require.EqualValues(t, 1, only[*wire.Drain](h).Request)

		refusal := h.peer(peerA).info.Gate.Refusal()
		require.ErrorIs(t, refusal, ErrPeerInDoubt)
		require.Equal(t, peerA, refusal.Peer, "it names the peer")
		late := h.submit(one...)
		h.failedBecause(late, ErrPeerInDoubt)
		h.silent()

		h.deliverFrom(peerB, grant(1, one, 0))
		require.Equal(t, InProgress, other.Status(), "other peers go on")
		require.Len(t, h.pendingWrites(), 1)
	})
	t.Run("several in one turn", func(t *testing.T) {
		h := withPeer(t)
		hd := h.submit(twoChunks...)
		h.copied()
		h.deliver(grant(1, twoChunks, 0, 1))
		h.sent()
		_, third := writing(h)
		h.engine.transfers[0].end(ports.FailedUnknown)
		h.engine.transfers[1].end(ports.FailedUnknown)
		third.end(ports.Success)
		h.turn()
		h.failedBecause(hd, ErrWriteFailed)
		require.Equal(t, 2, h.tr.Totals().Doubts)
		require.Zero(t, h.peer(peerA).pending)
		h.engine.transfers[0].end(ports.Success)
		h.turn()
		require.Equal(t, 1, h.tr.Totals().Doubts)
		h.engine.transfers[1].end(ports.FailedEnded)
		h.turn()
		h.zero()
	})
	t.Run("a write that ends after the doubt about another", func(t *testing.T) {
		h := withPeer(t)
		one, x := writing(h)
		two, y := writing(h)
		x.end(ports.FailedUnknown)
		h.turn()
		h.failedBecause(two, ErrPeerInDoubt)
		require.False(t, two.IsQuiesced())
		h.silent()
		y.end(ports.Success)
		h.turn()
		require.EqualValues(t, 2, only[*wire.Drain](h).Request)
		h.deliver(drained(2))
		require.True(t, two.IsQuiesced())
		require.False(t, one.IsQuiesced())
	})
}

// Adding a peer again, with nothing pending, is a new attempt; what is in doubt stays so.
func TestAddAgainAfterDoubt(t *testing.T) {
	t.Run("with nothing pending", func(t *testing.T) {
		h := withPeer(t)
		hd, x := writing(h)
		x.end(ports.FailedUnknown)
		h.turn()
		gate := h.add(peerA)
		require.Nil(t, gate.Refusal())
		require.Equal(t, 1, h.engine.disconnects, "the broken connection is dropped first")
		require.Contains(t, h.engine.connected, peerA)
		require.Equal(t, 1, h.tr.Totals().Doubts)
		require.False(t, hd.IsQuiesced())
		again, y := writing(h)
		y.end(ports.Success)
		h.turn()
		h.deliver(ack(2, 1, 0))
		require.Equal(t, Succeeded, again.Status())
	})
	t.Run("while a transfer is pending it changes nothing", func(t *testing.T) {
		h := withPeer(t)
		_, x := writing(h)
		_, y := writing(h)
		x.end(ports.FailedUnknown)
		h.turn()
		require.ErrorIs(t, h.add(peerA).Refusal(), ErrPeerInDoubt)
		require.Zero(t, h.engine.disconnects, "that would hide the pending transfer's end")
		y.end(ports.Success)
		h.turn()
		require.Nil(t, h.add(peerA).Refusal())
	})
}

func TestScatterFailures(t *testing.T) {
	t.Run("not launched is NACK 7, and the chunk stays granted", func(t *testing.T) {
		h := withPeer(t)
		credits := openFlow(h)
		h.gpu.scatErr = ports.ErrNotLaunched
		h.deliver(dataFor(5, credits[0], 2))
		n := h.expectNack(wire.ReasonScatterFailed)
		require.Equal(t, credits[0].Region, n.Region)
		require.Equal(t, 2, h.tr.regions)
		require.Zero(t, h.tr.Totals().Doubts)
		h.gpu.scatErr = nil
		h.deliver(dataFor(5, credits[0], 2))
		h.copied()
		h.expect(wire.TypeAck)
	})
	t.Run("busy is tried again", func(t *testing.T) {
		h := withPeer(t)
		credits := openFlow(h)
		h.gpu.scatErr = ports.ErrBusy
		h.deliver(dataFor(5, credits[0], 2))
		h.tick(50 * ms)
		h.silent()
		h.gpu.scatErr = nil
		h.tick(ms)
		h.copied()
		h.expect(wire.TypeAck)
	})
	for name, fail := range map[string]func(h *harness, d *wire.Data){
		"a launch error": func(h *harness, d *wire.Data) {
			h.gpu.scatErr = errTest
			h.deliver(d)
			h.gpu.scatErr = nil
		},
		"a failed event": func(h *harness, d *wire.Data) {
			h.deliver(d)
			h.gpu.copies[0].status = ports.CopyFailed
			h.turn()
		},
	} {
		t.Run(name+" leaves region and destination in doubt", func(t *testing.T) {
			h := withPeer(t)
			h.stuck = true
			credits := openFlow(h)
			fail(h, dataFor(5, credits[0], 2))
			require.Contains(t, h.expectNack(wire.ReasonScatterFailed).Text, errTest.Error())
			require.NotEmpty(t, h.tr.CallerDoubts())
			h.deliver(dataFor(5, credits[0], 2))
			h.expectNack(wire.ReasonScatterFailed)

			// The flow is open, and has a lease.
			h.deliver(dataFor(5, credits[1], 2))
			h.copied()
			h.expect(wire.TypeAck)
			h.tick(60*time.Second - ms)
			h.silent()
			h.tick(ms)
			h.expectNack(wire.ReasonExpired)
			require.Equal(t, flowExpired, h.flow(5).state)
			require.Equal(t, 1, h.arena.LiveBlocks())
			h.deliver(drainOf(5))
			h.expectNack(wire.ReasonScatterFailed)

			// A higher oldest asks no answer, and the region stays.
			h.deliver(want(6, 4*kilo))
			h.expect(wire.TypeGrant)
			require.EqualValues(t, 8*kilo, h.arena.RetainedBytes())
		})
	}
	t.Run("a failure after DRAIN is its answer", func(t *testing.T) {
		h := withPeer(t)
		h.stuck = true
		closedFlow(h)
		h.gpu.copies[1].status = ports.CopyFailed
		h.turn()
		out := h.expect(wire.TypeNack, wire.TypeNack)
		require.EqualValues(t, 1, out[0].msg.(*wire.Nack).Chunk)
		require.EqualValues(t, wire.WholeRequest, out[1].msg.(*wire.Nack).Chunk)
		require.Equal(t, wire.ReasonScatterFailed, out[1].msg.(*wire.Nack).Reason)
	})
}
