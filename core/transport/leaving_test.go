package transport

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// leave deregisters ranges and returns whether they are free, to be asked again later.
func (h *harness) leave(ranges ...ports.Descriptor) func() bool {
	h.Helper()
	left := false
	require.NoError(h, h.tr.Leave(ranges, func(error) { left = true }))
	h.turn()
	return func() bool { h.turn(); return left }
}

func sourceRange(i int) ports.Descriptor {
	return ports.Descriptor{Addr: sourceOf(i), Bytes: maxChunk}
}

func TestLeave(t *testing.T) {
	t.Run("memory that nothing touches", func(t *testing.T) {
		h := withPeer(t)
		h.submit(twoChunks...)
		credits := openFlow2(h)
		h.deliver(dataFor(5, credits[0], 2))
		h.direct(DirectSubmission{})
		require.True(t, h.leave(ports.Descriptor{Addr: 0x100, Bytes: 4096})())
		device := ports.Place{Kind: ports.Device}
		require.True(t, h.leave(ports.Descriptor{Addr: sourceOf(0), Bytes: maxChunk, Place: device})(), "another device's memory at the same addresses")
		require.Equal(t, InProgress, h.handles[0].Status())
	})
	t.Run("waits for a gather with a credit, which goes on", func(t *testing.T) {
		h := withPeer(t)
		hd := h.submit(8 * kilo)
		h.deliver(grant(1, twoChunks[:1], 0))
		left := h.leave(sourceRange(0))
		require.False(t, left())
		h.copied()
		require.True(t, left())
		require.Equal(t, InProgress, hd.Status(), "its bytes stand in staging that can't be taken")
		h.written(ports.Success)
		h.deliver(ack(1, 1, 0))
		require.Equal(t, Succeeded, hd.Status())
	})
	t.Run("fails a request that may read it again", func(t *testing.T) {
		for name, reach := range map[string]func(h *harness){
			"gathering ahead": func(*harness) {},
			"gathered ahead":  func(h *harness) { h.copied() },
		} {
			t.Run(name, func(t *testing.T) {
				h := withPeer(t)
				hd := h.submit(twoChunks...)
				reach(h)
				left := h.leave(sourceRange(1))
				h.failedBecause(hd, ErrDeregistered)
				h.copied()
				require.True(t, left())
				require.True(t, hd.IsQuiesced())
			})
		}
	})
	t.Run("fails a request that has not begun to read it", func(t *testing.T) {
		h := withPeer(t, func(s *Settings) { s.EagerGather = false })
		hd := h.submit(twoChunks...)
		require.True(t, h.leave(sourceRange(1))())
		h.failedBecause(hd, ErrDeregistered)
	})
	t.Run("fails a request that waits for its ready event", func(t *testing.T) {
		h := withPeer(t)
		hd := h.submission(Submission{Peer: peerA, Chunks: twoChunks, Ready: &fakeEvent{}})
		require.True(t, h.leave(sourceRange(0))())
		h.failedBecause(hd, ErrDeregistered)
	})
	t.Run("waits for runs that are not planned yet", func(t *testing.T) {
		h := withPeer(t)
		hd := h.start(Submission{Peer: peerA, Chunks: twoChunks})
		hd.Planned(planned(0, 8*kilo), 0)
		h.turn()
		left := h.leave(sourceRange(1))
		require.False(t, left())
		require.Equal(t, InProgress, hd.Status())
		hd.Planned(planned(1, 8*kilo), 0)
		h.turn()
		h.failedBecause(hd, ErrDeregistered)
		require.False(t, left(), "its gather was launched in the same turn")
		h.copied()
		require.True(t, left())
	})
	t.Run("of a request that is cancelled before it is planned", func(t *testing.T) {
		h := withPeer(t)
		hd := h.start(Submission{Peer: peerA, Chunks: twoChunks})
		left := h.leave(sourceRange(1))
		require.False(t, left())
		h.cancel(hd)
		require.True(t, left())
	})
	t.Run("waits for a running scatter", func(t *testing.T) {
		h := withPeer(t)
		credits := openFlow2(h)
		h.deliver(dataFor(5, credits[0], 2))
		left := h.leave(ports.Descriptor{Addr: destBase + 100, Bytes: 1})
		require.False(t, left())
		h.copied()
		require.True(t, left())
	})
	t.Run("waits for ever for a copy in doubt", func(t *testing.T) {
		h := withPeer(t)
		h.stuck = true
		credits := openFlow2(h)
		h.deliver(dataFor(5, credits[0], 2))
		hd := h.submit(8 * kilo)
		for _, c := range h.gpu.running() {
			c.status = ports.CopyFailed
		}
		h.turn()
		h.failedBecause(hd, ErrGatherFailed)
		dest, source := h.leave(ports.Descriptor{Addr: destBase, Bytes: 1}), h.leave(sourceRange(0))
		h.deliver(drained(1), drainOf(5))
		require.False(t, dest())
		require.False(t, source())
	})
	t.Run("waits for a direct transfer", func(t *testing.T) {
		h := withPeer(t)
		hd, x := h.direct(DirectSubmission{})
		left := h.leave(sourceRange(0))
		h.cancel(hd)
		require.False(t, left())
		x.end(ports.FailedUnknown)
		require.False(t, left())
		x.end(ports.Success)
		require.True(t, left())
	})
	t.Run("fails a direct transfer that was not posted", func(t *testing.T) {
		h := withPeer(t)
		hd, _ := h.direct(DirectSubmission{Ready: &fakeEvent{}})
		left := h.leave(sourceRange(0))
		require.True(t, left())
		h.failedBecause(hd, ErrDeregistered)
		require.True(t, hd.IsQuiesced())
	})
}

// openFlow2 is openFlow where other frames may have been sent.
func openFlow2(h *harness) []wire.Credit {
	h.sent()
	return openFlow(h)
}

func TestTouches(t *testing.T) {
	h := ports.Place{}
	meets := func(index []uint32, r ports.Run) bool {
		return touches(ports.Runs{Runs: []ports.Run{r}, Index: index}, h, []ports.Descriptor{{}, {Addr: 5000, Bytes: 100}})
	}
	no := uint32(ports.NoTable)
	require.True(t, meets(nil, ports.Run{Addr: 4990, Piece: 11, Pieces: 1, Table: no}))
	require.False(t, meets(nil, ports.Run{Addr: 4990, Piece: 10, Pieces: 1, Table: no}))
	require.True(t, meets(nil, ports.Run{Addr: 5099, Piece: 1, Pieces: 1, Table: no}))
	require.False(t, meets(nil, ports.Run{Addr: 5100, Piece: 1, Pieces: 1, Table: no}))
	require.False(t, meets(nil, ports.Run{Addr: 4000, Stride: 2000, Piece: 8, Pieces: 2, Table: no}), "between two pieces")
	require.True(t, meets(nil, ports.Run{Addr: 4000, Stride: 1000, Piece: 8, Pieces: 3, Table: no}))
	require.True(t, meets(nil, ports.Run{Addr: 7000, Stride: -1000, Piece: 8, Pieces: 3, Table: no}))
	require.True(t, meets([]uint32{9, 0, 5}, ports.Run{Addr: 0, Stride: 1000, Piece: 8, Pieces: 3, Table: 0}))
	require.False(t, meets([]uint32{9, 0, 4}, ports.Run{Addr: 0, Stride: 1000, Piece: 8, Pieces: 3, Table: 0}))
}
