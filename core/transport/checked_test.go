package transport

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// The DATA of a request whose plan is not checked is held back, and nothing else is: gathers and writes go on.
func TestUncheckedPlanHoldsData(t *testing.T) {
	h := withPeer(t)
	hd := h.submission(Submission{Peer: peerA, Chunks: twoChunks, Unchecked: true})
	h.expect(wire.TypeWant)
	h.deliver(grant(1, twoChunks, 0, 1))
	h.copied()
	h.written(ports.Success)
	h.silent()
	h.tick(repeatFirst * 2)
	h.silent() // nor is it repeated
	hd.PlanChecked(ms)
	h.turn()
	h.expect(wire.TypeData, wire.TypeData)
	h.deliver(ack(1, 2, 0), ack(1, 2, 1))
	require.Equal(t, Succeeded, hd.Status())
	require.Equal(t, ms, hd.Stages().Plan)
}

// What is written after the check needs no further word.
func TestCheckedBeforeTheWrite(t *testing.T) {
	h := withPeer(t)
	hd := h.submission(Submission{Peer: peerA, Chunks: []uint32{8 * kilo}, Unchecked: true})
	hd.PlanChecked(ms)
	h.turn()
	h.expect(wire.TypeWant)
	h.deliver(grant(1, []uint32{8 * kilo}, 0))
	h.copied()
	h.written(ports.Success)
	h.expect(wire.TypeData)
}

// A plan that turns out to be wrong fails the request although its bytes stand in the peer's region, and none of it is scattered.
func TestWrongPlanSendsNoData(t *testing.T) {
	h := withPeer(t)
	hd := h.submission(Submission{Peer: peerA, Chunks: []uint32{8 * kilo}, Unchecked: true})
	h.expect(wire.TypeWant)
	h.deliver(grant(1, []uint32{8 * kilo}, 0))
	h.copied()
	h.written(ports.Success)
	hd.PlanFailed(plan.ErrOverlap)
	h.turn()
	h.expect(wire.TypeDrain)
	require.ErrorIs(t, h.failedBecause(hd, ErrPlan), plan.ErrOverlap)
	hd.PlanChecked(ms) // too late
	h.turn()
	h.silent()
	h.deliver(drained(1))
	require.True(t, hd.IsQuiesced())
}

// Requests that share one plan neither change nor recycle it.
func TestRequestsShareAPlan(t *testing.T) {
	h := withPeer(t)
	chunks := []*plan.Chunk{planned(0, twoChunks[0]), planned(1, twoChunks[1])}
	before := []plan.Chunk{*chunks[0], *chunks[1]}
	var handles []*Handle
	for range 2 {
		hd, err := h.tr.Start(Submission{Peer: peerA, Chunks: twoChunks, Plan: chunks, Recycle: func(*plan.Chunk) {}})
		require.NoError(t, err)
		handles = append(handles, hd)
	}
	h.turn()
	h.expect(wire.TypeWant, wire.TypeWant)
	h.deliver(grant(1, twoChunks, 0, 1), grant(2, twoChunks, 0, 1))
	h.copied()
	h.written(ports.Success)
	h.expect(wire.TypeData, wire.TypeData, wire.TypeData, wire.TypeData)
	h.deliver(ack(1, 2, 0), ack(1, 2, 1), ack(2, 2, 0), ack(2, 2, 1))
	for _, hd := range handles {
		require.Equal(t, Succeeded, hd.Status())
	}
	require.Equal(t, before, []plan.Chunk{*chunks[0], *chunks[1]})
}
