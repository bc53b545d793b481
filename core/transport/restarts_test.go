package transport

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// TestRestartsLeaveNothing lets alpha restart thousands of times: added here, adding this side, or both, with transfers each way and with some that its end cuts off. What is left is one entry.
func TestRestartsLeaveNothing(t *testing.T) {
	const restarts = 6000 // more than are remembered
	h := newHarness(t, func(s *Settings) { s.MaxPeers, s.SettleDelay = 64, second })
	lease := h.opt.Settings.ReceiverLease
	for i := range uint64(restarts) {
		id := must(ports.NewIdentity("alpha", 1000+i))
		cutOff := i%50 < 3
		if i%3 != 0 {
			h.add(id)
			h.sendOne(id, cutOff)
		}
		if i%3 != 1 {
			h.receiveOne(id, cutOff)
		}
		h.pass(lease/16, lease/16)
		h.sent()
		if cutOff {
			// What its end left open goes by this statement alone.
			require.NoError(t, h.tr.FencePeer(id, func(FenceReport) {}))
			h.pass(second+100*ms, 5*ms)
			h.zero()
		}
		h.engine.transfers, h.gpu.copies, h.handles = nil, nil, nil
	}
	h.pass(2*lease, lease/16)
	last := must(ports.NewIdentity("alpha", 1000+restarts))
	h.add(last)
	h.pass(2*lease, lease/16)
	h.sent()
	require.Len(t, h.tr.peers, 1)
	require.Len(t, h.tr.order, 1)
	require.Equal(t, last, h.tr.order[0].id)
	require.Zero(t, h.tr.strangers)
	require.Empty(t, h.tr.timers)
	require.Empty(t, h.tr.fences)
	require.Zero(t, h.tr.draining)
	require.LessOrEqual(t, len(h.tr.retired.set), maxRetired)
	require.Len(t, h.channel.endpoints, 1, "ways back")
	require.Len(t, h.engine.connected, 1, "connections of the engine")
	h.zero()
}

// sendOne moves one chunk to a peer. Cut off, it was cancelled after its write and the peer answers nothing any more.
func (h *harness) sendOne(id ports.Identity, cutOff bool) {
	h.Helper()
	sizes := []uint32{4 * kilo}
	hd := h.submission(Submission{Peer: id, Chunks: sizes})
	h.copied()
	h.deliverFrom(id, grant(hd.ID(), sizes, 0))
	h.written(ports.Success)
	if cutOff {
		hd.Cancel()
		h.turn()
		return
	}
	h.deliverFrom(id, ack(hd.ID(), 1, 0))
	require.Equal(h, Succeeded, hd.Status())
}

// receiveOne takes one chunk from a peer. Cut off, the peer never writes into the region that it got.
func (h *harness) receiveOne(id ports.Identity, cutOff bool) {
	h.Helper()
	h.sent()
	h.deliverFrom(id, &wire.Want{Request: 1, Oldest: 1, Endpoint: []byte("mem:" + string(id)), ChunkBytes: []uint32{4 * kilo}})
	g := only[*wire.Grant](h)
	if cutOff {
		return
	}
	h.deliverFrom(id, dataFor(1, g.Credits[0], 1))
	h.copied()
	require.Equal(h, flowFinished, h.peer(id).flows[1].state)
}
