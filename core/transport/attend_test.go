package transport

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// A waiter is awake at first, sleeps, and is woken when every DATA has left, to see the end as it comes.
func TestWaiterAttendsToTheEnd(t *testing.T) {
	h := withPeer(t)
	attended := make(chan struct{})
	h.tr.attend = func(func() bool) { attended <- struct{}{} }
	hd := h.submission(Submission{Peer: peerA, Chunks: twoChunks})
	h.expect(wire.TypeWant)
	ended := make(chan error)
	go func() { ended <- hd.Wait(t.Context()) }()
	<-attended

	h.copied()
	h.deliver(grant(1, twoChunks, 0, 1))
	h.engine.transfers[0].end(ports.Success)
	h.turn()
	h.expect(wire.TypeData)
	require.False(t, hd.near.isSet(), "a chunk's DATA is missing")
	h.engine.transfers[1].end(ports.Success)
	h.turn()
	h.expect(wire.TypeData)
	<-attended
	h.deliver(ack(1, 2, 0), ack(1, 2, 1))
	require.NoError(t, <-ended)
}

// A failure wakes the waiter too, though its end was never near.
func TestWaiterAttendsToFailure(t *testing.T) {
	h := withPeer(t)
	h.tr.attend = func(func() bool) {}
	hd := h.submission(Submission{Peer: peerA, Chunks: twoChunks})
	h.expect(wire.TypeWant)
	ended := make(chan error)
	go func() { ended <- hd.Wait(t.Context()) }()
	hd.Cancel()
	h.turn()
	require.ErrorIs(t, <-ended, ErrCancelled)
	h.copied()
	h.expect(wire.TypeDrain)
}

// A scatter is launched as soon as its DATA is checked: the frames behind it in the same turn may take longer than the launch.
func TestScatterDoesNotWaitForTheNextFrame(t *testing.T) {
	h := withPeer(t)
	c := h.granted(1, twoChunks...)
	var launched []int
	h.channel.onRecv = func() { launched = append(launched, len(h.gpu.copies)) }
	h.queueFrom(peerA, dataFor(1, c[0], 2))
	h.queueFrom(peerA, dataFor(1, c[1], 2))
	h.turn()
	require.Equal(t, []int{0, 1, 2}, launched, "scatters launched before each look for a frame")
	h.channel.onRecv = nil
	h.copied()
	h.expect(wire.TypeAck, wire.TypeAck)
}
