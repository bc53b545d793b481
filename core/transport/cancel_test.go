package transport

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

func (h *harness) cancel(hd *Handle) {
	hd.Cancel()
	h.turn()
}

// TestCancel cancels in each phase of a request of two chunks. What is expected of the receiver's side comes from whether a write was posted, and is proven.
func TestCancel(t *testing.T) {
	for name, c := range map[string]struct {
		reach    func(h *harness) *Handle
		released bool // the source is free at once
		quiesced bool // so is all else
		drains   bool // DRAIN leaves at once
	}{
		"in the turn of its submission": {
			func(h *harness) *Handle { return h.start(Submission{Peer: peerA, Chunks: twoChunks}) }, true, true, true,
		},
		"before it is planned": {func(h *harness) *Handle {
			hd := h.start(Submission{Peer: peerA, Chunks: twoChunks})
			h.turn()
			return hd
		}, true, true, true},
		"while gathering ahead": {func(h *harness) *Handle { return h.submit(twoChunks...) }, false, false, true},
		"before a grant": {func(h *harness) *Handle {
			hd := h.submit(twoChunks...)
			h.copied()
			return hd
		}, true, true, true},
		"while gathering with a credit": {func(h *harness) *Handle {
			hd := h.submit(twoChunks...)
			h.deliver(grant(1, twoChunks, 0))
			return hd
		}, false, false, true},
		"while writing": {func(h *harness) *Handle {
			hd := h.submit(twoChunks...)
			h.copied()
			h.deliver(grant(1, twoChunks, 0))
			return hd
		}, true, false, false},
		"while writing and gathering": {func(h *harness) *Handle {
			hd := h.submit(twoChunks...)
			h.gpu.copies[0].status = ports.CopyDone
			h.deliver(grant(1, twoChunks, 0, 1))
			return hd
		}, false, false, false},
		"after the write": {func(h *harness) *Handle {
			hd := h.submit(twoChunks...)
			h.copied()
			h.deliver(grant(1, twoChunks, 0))
			h.written(ports.Success)
			return hd
		}, true, false, true},
		"after the ACK of one chunk": {activeRequest, true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := withPeer(t)
			hd := c.reach(h)
			h.sent()
			h.cancel(hd)
			h.failedBecause(hd, ErrCancelled)
			require.Equal(t, c.released, hd.IsSourceReleased(), "source released")
			require.Equal(t, c.quiesced, hd.IsQuiesced(), "quiesced")
			if c.drains {
				out := h.sent()
				require.EqualValues(t, 1, out[len(out)-1].msg.(*wire.Drain).Request)
			} else {
				h.silent()
			}

			// Again, it changes nothing.
			h.cancel(hd)
			h.silent()
			h.failedBecause(hd, ErrCancelled)

			// Whatever runs ends; nothing new is started.
			copies, transfers := len(h.gpu.copies), len(h.engine.transfers)
			wrote := transfers > 0
			h.copied()
			require.True(t, hd.IsSourceReleased())
			h.written(ports.Success)
			if !c.drains {
				h.expect(wire.TypeDrain)
			}
			require.Len(t, h.gpu.copies, copies)
			require.Len(t, h.engine.transfers, transfers)
			h.zero()
			require.Equal(t, !wrote, hd.IsQuiesced(), "a request that wrote waits for DRAIN_ACK")
			h.deliver(drained(1))
			require.True(t, hd.IsQuiesced())
			require.Nil(t, h.request(1))
			h.tick(time.Minute)
			h.silent()
			require.EqualValues(t, 1, h.count(BounceFailed))
		})
	}
	t.Run("after success it changes nothing", func(t *testing.T) {
		h := withPeer(t)
		hd := h.submit(twoChunks...)
		h.succeedAll(1, twoChunks)
		h.sent()
		h.cancel(hd)
		h.silent()
		require.Equal(t, Succeeded, hd.Status())
		require.NoError(t, hd.Err())
		require.Zero(t, h.count(BounceFailed))
	})
	t.Run("after failure it keeps the first reason", func(t *testing.T) {
		h := withPeer(t)
		hd := h.submit(twoChunks...)
		h.deliver(nackWhole(1, wire.ReasonTooLarge))
		h.cancel(hd)
		require.Equal(t, wire.ReasonTooLarge, h.failedBecause(hd, ErrRefused).Reason)
	})
	t.Run("chunks planned afterwards go back", func(t *testing.T) {
		h := withPeer(t)
		hd := h.start(Submission{Peer: peerA, Chunks: twoChunks})
		h.cancel(hd)
		hd.Planned(planned(0, 8*kilo), 0)
		h.turn()
		require.Equal(t, 1, h.recycled)
		require.Empty(t, h.gpu.copies)
	})
}

// A request that posted no write only frees regions by its DRAIN.
func TestDrainWithoutAWrite(t *testing.T) {
	t.Run("a peer that never sent a frame gets it once", func(t *testing.T) {
		h := withPeer(t)
		hd := h.submit(twoChunks...)
		h.copied()
		h.expect(wire.TypeWant)
		h.cancel(hd)
		h.expect(wire.TypeDrain)
		h.tick(time.Minute)
		h.silent()
		require.Nil(t, h.request(1), "forgotten")
		h.deliver(grant(1, twoChunks, 0))
		h.expect(wire.TypeDrain)
	})
	t.Run("another for at most the request timeout", func(t *testing.T) {
		h := withPeer(t)
		hd := h.submit(twoChunks...)
		h.copied()
		h.deliver(queued(1, 2))
		h.expect(wire.TypeWant)
		h.cancel(hd)
		h.expect(wire.TypeDrain)
		h.tick(29 * time.Second)
		require.Greater(t, len(h.sent()), 10)
		require.NotNil(t, h.request(1))
		h.tick(4 * time.Second)
		require.LessOrEqual(t, len(h.sent()), 1)
		require.Nil(t, h.request(1))
		h.deliver(nackWhole(1, wire.ReasonExpired))
		h.expect(wire.TypeDrain)
	})
	t.Run("a gather that outlives the tracking still ends it", func(t *testing.T) {
		h := withPeer(t)
		hd := h.submit(twoChunks...)
		h.cancel(hd)
		h.deliver(drained(1))
		require.Nil(t, h.request(1))
		require.False(t, hd.IsQuiesced())
		require.Equal(t, 2, h.arena.LiveBlocks())
		h.copied()
		require.True(t, hd.IsQuiesced())
		h.zero()
		require.Equal(t, 2, h.recycled)
	})
	t.Run("one that wrote is drained until DRAIN_ACK", func(t *testing.T) {
		h := withPeer(t)
		hd := drainingRequest(h)
		h.tick(10 * time.Minute)
		require.Greater(t, len(h.sent()), 100)
		require.False(t, hd.IsQuiesced())
		h.deliver(drained(1))
		require.True(t, hd.IsQuiesced())
	})
}

// DRAIN states that no write can land any more: it waits for every write, and a WANT is never sent again.
func TestDrainWaitsForAllWrites(t *testing.T) {
	h := withPeer(t)
	sizes := []uint32{4 * kilo, 4 * kilo, 4 * kilo}
	hd := h.submit(sizes...)
	h.copied()
	h.deliver(grant(1, sizes, 0, 1, 2))
	h.expect(wire.TypeWant)
	h.cancel(hd)
	for i := range sizes {
		h.tick(5 * time.Second)
		h.silent()
		require.Equal(t, 3-i, h.arena.LiveBlocks(), "each write's staging is free when it is proven")
		h.engine.transfers[i].end(ports.Success)
		h.turn()
	}
	h.expect(wire.TypeDrain)
	require.False(t, hd.IsQuiesced())
}

// TestDrainedIsTold: once a failed request's DRAIN is answered, an agent that has nothing else to do takes one more turn to say so.
func TestDrainedIsTold(t *testing.T) {
	h := withPeer(t)
	h.deliver(queued(99, 1)) // alpha was heard of
	hd := h.submit(twoChunks...)
	h.copied()
	h.cancel(hd)
	h.tick(2 * time.Second)
	require.Equal(t, []Unproved{{Peer: peerA, Draining: 1}}, h.tr.Unproved())
	h.deliver(drained(hd.ID()))
	h.tick(2 * time.Second)
	require.Empty(t, h.tr.Unproved())
	require.Equal(t, ports.Never, h.next)
	h.sent()
}
