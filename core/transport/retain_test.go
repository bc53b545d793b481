package transport

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

func TestUnproved(t *testing.T) {
	h := withPeer(t)
	h.add(peerB)
	require.Empty(t, h.tr.Unproved())
	_, x := writing(h)
	_, dx := h.direct(DirectSubmission{})
	h.tick(3 * time.Second)
	require.Empty(t, h.tr.Unproved(), "what runs is in no doubt")
	since := h.now
	x.end(ports.FailedUnknown)
	h.turn()
	h.tick(time.Second)
	dx.end(ports.FailedUnknown)
	h.turn()
	require.Equal(t, []Unproved{{Peer: peerA, Bytes: 8 * kilo, Accesses: 2, Since: since, Draining: 1}}, h.tr.Unproved())
	x.end(ports.Success)
	h.turn()
	require.Equal(t, []Unproved{{Peer: peerA, Accesses: 1, Since: since, Draining: 1}}, h.tr.Unproved())
	h.deliver(drained(1))
	dx.end(ports.Success)
	h.turn()
	require.Empty(t, h.tr.Unproved())

	// A peer's regions after its lease.
	h.sent()
	h.deliverFrom(peerB, &wire.Want{Request: 1, Oldest: 1, Endpoint: []byte("mem:" + string(peerB)), ChunkBytes: []uint32{maxChunk}})
	h.tick(61 * time.Second)
	list := h.tr.Unproved()
	require.Len(t, list, 1)
	require.Equal(t, peerB, list[0].Peer)
	require.EqualValues(t, maxChunk, list[0].Bytes)
	require.Less(t, h.now.Sub(list[0].Since), 2*time.Second)
	require.Nil(t, h.tr.BounceRefusal(), "below the limit")
	h.sent()
}

// Requests whose DRAIN has no answer are shown too, though no arena block of this side is in doubt.
func TestUnprovedDraining(t *testing.T) {
	h := withPeer(t)
	drainingRequest(h)
	h.tick(1100 * ms)
	require.Equal(t, []Unproved{{Peer: peerA, Draining: 1}}, h.tr.Unproved())
	h.deliver(drained(1))
	h.tick(1100 * ms)
	h.tick(1100 * ms)
	require.Empty(t, h.tr.Unproved())
	h.sent()
}

func TestRetainLimit(t *testing.T) {
	// retain lets beta hold granted regions beyond its lease.
	retain := func(h *harness, sizes ...uint32) {
		h.deliverFrom(peerB, &wire.Want{Request: 1, Oldest: 1, Endpoint: []byte("mem:" + string(peerB)), ChunkBytes: sizes})
		require.Len(h, only[*wire.Grant](h).Credits, len(sizes))
		h.tick(61 * time.Second)
		h.sent()
	}
	t.Run("reached, then a fence gives it back", func(t *testing.T) {
		h := withPeer(t, func(s *Settings) { s.RetainLimit = maxChunk - 1 })
		h.add(peerB)
		require.Nil(t, h.tr.BounceRefusal())
		retain(h, maxChunk)
		f := h.tr.BounceRefusal()
		require.ErrorIs(t, f, ErrRetained)
		require.Equal(t, peerB, f.Peer)
		require.ErrorContains(t, f, "fence it")
		require.NotEmpty(t, h.granted(5, 8*kilo), "others are admitted while there is room")
		h.fenceOf(peerB)
		require.NotNil(t, h.tr.BounceRefusal())
		h.pass(settleDelay+ms, ms)
		require.Nil(t, h.tr.BounceRefusal())
		require.Empty(t, h.tr.Unproved())
	})
	t.Run("reached by few bytes that leave no aligned room", func(t *testing.T) {
		h := withPeer(t, func(s *Settings) { s.RetainLimit = arenaSize })
		h.add(peerB)
		retain(h, maxChunk, maxChunk, 4*kilo) // one in each zone but staging's
		require.False(t, h.arena.Room())
		require.ErrorIs(t, h.tr.BounceRefusal(), ErrRetained)
		h.deliver(want(5, 4*kilo))
		h.expectNack(wire.ReasonOverloaded)
		h.deliverFrom(peerB, &wire.Drain{Request: 1})
		h.expect(wire.TypeDrainAck)
		require.Nil(t, h.tr.BounceRefusal())
	})
}
