package transport

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// The frame-by-state table of the receiver (protocol.md, 7), one subtest a cell. Each begins with the flow of request 5 in the state of its column: two chunks of 8 KiB.

var twoChunks = []uint32{8 * kilo, 8 * kilo}

// openFlow leaves request 5 open with both chunks granted.
func openFlow(h *harness) []wire.Credit {
	h.Helper()
	credits := h.granted(5, twoChunks...)
	require.Len(h, credits, 2)
	return credits
}

// openHalfDone leaves request 5 open with chunk 0 scattered and chunk 1 granted.
func openHalfDone(h *harness) []wire.Credit {
	credits := openFlow(h)
	h.deliver(dataFor(5, credits[0], 2))
	h.copied()
	require.Equal(h, &wire.Ack{Request: 5, Region: credits[0].Region, Chunks: 2}, only[*wire.Ack](h))
	return credits
}

// expiredFlow leaves request 5 closed by its lease, chunk 0 done and chunk 1 retained.
func expiredFlow(h *harness) []wire.Credit {
	credits := openHalfDone(h)
	h.tick(60*time.Second - ms)
	h.silent()
	h.tick(ms)
	h.expectNack(wire.ReasonExpired)
	require.Equal(h, flowExpired, h.flow(5).state)
	return credits
}

// closedFlow leaves request 5 closed by DRAIN while the scatter of chunk 1 runs; chunk 0 is done.
func closedFlow(h *harness) []wire.Credit {
	credits := openHalfDone(h)
	h.deliver(dataFor(5, credits[1], 2), drainOf(5))
	h.silent()
	require.Equal(h, flowClosed, h.flow(5).state)
	return credits
}

// finishedFlow leaves request 5 finished.
func finishedFlow(h *harness) []wire.Credit {
	credits := openHalfDone(h)
	h.deliver(dataFor(5, credits[1], 2))
	h.copied()
	h.expect(wire.TypeAck)
	require.Equal(h, flowFinished, h.flow(5).state)
	h.zero()
	return credits
}

func TestReceiverUnknownFlow(t *testing.T) {
	t.Run("WANT admits", func(t *testing.T) {
		h := withPeer(t)
		credits := openFlow(h)
		require.Equal(t, flowOpen, h.flow(5).state)
		for i, c := range credits {
			require.Equal(t, uint32(i), c.Chunk)
			require.Equal(t, uint32(8*kilo), c.Length, "the chunk's bytes, not the block's")
			require.GreaterOrEqual(t, c.Addr, uint64(arenaBase))
			require.LessOrEqual(t, c.Addr+uint64(c.Length), uint64(arenaBase+arenaSize))
			require.Equal(t, uint64(i+1), c.Region, "regions count from 1")
		}
	})
	t.Run("WANT below the highest oldest is dropped", func(t *testing.T) {
		h := withPeer(t)
		h.granted(9, 4*kilo)
		h.deliver(wantOldest(8, 3, 4*kilo))
		h.silent()
		require.Nil(t, h.flow(8))
		require.EqualValues(t, 1, h.count(WantsBelowOldest))
	})
	t.Run("DATA is NACK 2", func(t *testing.T) {
		h := withPeer(t)
		h.deliver(dataFor(5, wire.Credit{Region: 7, Chunk: 1, Length: 8}, 2))
		require.Equal(t, &wire.Nack{Request: 5, Region: 7, Chunk: 1, Chunks: 2, Reason: wire.ReasonUnknownFlow, Text: "the flow is not known"}, only[*wire.Nack](h))
	})
	t.Run("DATA below the highest oldest is dropped", func(t *testing.T) {
		h := withPeer(t)
		h.granted(9, 4*kilo)
		h.deliver(dataFor(5, wire.Credit{Region: 7, Length: 8}, 1))
		h.silent()
	})
	t.Run("DRAIN is DRAIN_ACK", func(t *testing.T) {
		h := withPeer(t)
		h.deliver(drainOf(5))
		require.Equal(t, drained(5), only[*wire.DrainAck](h))
	})
	t.Run("DRAIN below the highest oldest is DRAIN_ACK", func(t *testing.T) {
		h := withPeer(t)
		h.granted(9, 4*kilo)
		h.deliver(drainOf(5))
		require.Equal(t, drained(5), only[*wire.DrainAck](h))
	})
	t.Run("DRAIN without a way back is dropped", func(t *testing.T) {
		h := newHarness(t)
		h.deliver(&wire.Drain{Request: 5})
		h.silent()
		require.EqualValues(t, 1, h.count(SendsNoPeer))
	})
	t.Run("DRAIN of a stranger brings its way back", func(t *testing.T) {
		h := newHarness(t)
		h.deliver(drainOf(5))
		require.Equal(t, drained(5), only[*wire.DrainAck](h))
	})
}

func TestReceiverOpenFlow(t *testing.T) {
	t.Run("WANT with the same content gets its credits again", func(t *testing.T) {
		h := withPeer(t)
		credits := openFlow(h)
		h.deliver(wantOldest(5, 3, twoChunks...))
		require.Equal(t, credits, only[*wire.Grant](h).Credits)
		require.Equal(t, 2, h.tr.regions, "nothing is granted twice")
	})
	t.Run("WANT gets credits of chunks whose scatter runs, too", func(t *testing.T) {
		h := withPeer(t)
		credits := openFlow(h)
		h.deliver(dataFor(5, credits[0], 2), want(5, twoChunks...))
		require.Equal(t, credits, only[*wire.Grant](h).Credits)
	})
	t.Run("WANT gets an ACK for a done chunk and the other's credit", func(t *testing.T) {
		h := withPeer(t)
		credits := openHalfDone(h)
		h.deliver(want(5, twoChunks...))
		out := h.expect(wire.TypeGrant, wire.TypeAck)
		require.Equal(t, credits[1:], out[0].msg.(*wire.Grant).Credits)
		require.Equal(t, &wire.Ack{Request: 5, Region: credits[0].Region, Chunks: 2}, out[1].msg)
	})
	t.Run("WANT without a grant gets ACK queued", func(t *testing.T) {
		h := withPeer(t)
		fillArena(h)
		h.deliver(want(5, maxChunk))
		h.silent()
		h.deliver(want(5, maxChunk))
		require.Equal(t, queued(5, 1), only[*wire.Ack](h))
	})
	for name, contradicting := range map[string]*wire.Want{
		"sizes":           want(5, 8*kilo, 4*kilo),
		"number of sizes": want(5, 8*kilo),
		"token":           {Request: 5, Oldest: 5, Token: 7, ChunkBytes: twoChunks},
	} {
		t.Run("WANT with another "+name+" is NACK 1", func(t *testing.T) {
			h := withPeer(t)
			credits := openFlow(h)
			h.deliver(contradicting)
			n := h.expectNack(wire.ReasonMalformed)
			require.EqualValues(t, wire.WholeRequest, n.Chunk)
			require.Equal(t, 2, h.tr.regions, "the flow and its regions stay as they are")
			h.deliver(want(5, twoChunks...))
			require.Equal(t, credits, only[*wire.Grant](h).Credits)
		})
	}
	t.Run("DATA launches", func(t *testing.T) {
		h := withPeer(t)
		credits := openFlow(h)
		d := dataFor(5, credits[1], 2)
		h.deliver(d)
		h.silent()
		require.Len(t, h.gpu.copies, 1)
		require.True(t, h.gpu.copies[0].scatter)
		require.Equal(t, credits[1].Addr, h.gpu.copies[0].block)
		require.Equal(t, d.Runs.Runs, h.gpu.copies[0].runs.Runs)
		h.copied()
		require.Equal(t, &wire.Ack{Request: 5, Region: credits[1].Region, Chunk: 1, Chunks: 2}, only[*wire.Ack](h))
		require.Equal(t, 1, h.arena.LiveBlocks(), "the region is free in the turn of the ACK")
	})
	t.Run("DATA of a done chunk is ACK", func(t *testing.T) {
		h := withPeer(t)
		credits := openHalfDone(h)
		h.deliver(dataFor(5, credits[0], 2))
		require.Equal(t, credits[0].Region, only[*wire.Ack](h).Region)
		require.Len(t, h.gpu.copies, 1, "one scatter")
	})
	t.Run("DATA of a chunk whose scatter runs is nothing", func(t *testing.T) {
		h := withPeer(t)
		credits := openFlow(h)
		h.deliver(dataFor(5, credits[0], 2), dataFor(5, credits[0], 2))
		h.silent()
		require.Len(t, h.gpu.copies, 1)
	})
	t.Run("DATA of a chunk whose scatter is queued is nothing", func(t *testing.T) {
		h := withPeer(t)
		h.gpu.contexts = 1
		credits := openFlow(h)
		h.deliver(dataFor(5, credits[0], 2), dataFor(5, credits[1], 2), dataFor(5, credits[1], 2))
		h.silent()
		require.Len(t, h.gpu.copies, 1)
		require.Len(t, h.tr.scatterQ, 1)
		h.copied()
		h.copied()
		h.expect(wire.TypeAck, wire.TypeAck)
		require.Len(t, h.gpu.copies, 2)
	})
	t.Run("DATA with another chunk's region is NACK 3", func(t *testing.T) {
		h := withPeer(t)
		credits := openFlow(h)
		d := dataFor(5, credits[0], 2)
		d.Region = credits[1].Region
		h.deliver(d)
		n := h.expectNack(wire.ReasonOutsideChunk)
		require.Equal(t, d.Region, n.Region)
		require.Zero(t, n.Chunk)
		require.Equal(t, 2, h.tr.regions, "the regions stay the flow's")
		require.Empty(t, h.gpu.copies)
	})
	t.Run("DATA of a done chunk with another region is NACK 3", func(t *testing.T) {
		h := withPeer(t)
		credits := openHalfDone(h)
		d := dataFor(5, credits[0], 2)
		d.Region = credits[1].Region
		h.deliver(d)
		h.expectNack(wire.ReasonOutsideChunk)
	})
	t.Run("DATA of an ungranted chunk is NACK 3", func(t *testing.T) {
		h := withPeer(t, func(s *Settings) { s.Window = 1 })
		credits := h.granted(5, twoChunks...)
		require.Len(t, credits, 1)
		h.deliver(dataFor(5, wire.Credit{Region: credits[0].Region, Chunk: 1, Length: 8 * kilo}, 2))
		h.expectNack(wire.ReasonOutsideChunk)
	})
	t.Run("DATA with another number of chunks is NACK 1", func(t *testing.T) {
		h := withPeer(t)
		credits := openFlow(h)
		h.deliver(dataFor(5, credits[0], 3))
		h.expectNack(wire.ReasonMalformed)
	})
	t.Run("DRAIN frees granted regions and is DRAIN_ACK", func(t *testing.T) {
		h := withPeer(t)
		openFlow(h)
		h.deliver(drainOf(5))
		require.Equal(t, drained(5), only[*wire.DrainAck](h))
		require.Nil(t, h.flow(5))
		h.zero()
	})
	t.Run("DRAIN waits for a running scatter", func(t *testing.T) {
		h := withPeer(t)
		credits := openFlow(h)
		h.deliver(dataFor(5, credits[0], 2), drainOf(5))
		h.silent()
		require.Equal(t, 1, h.arena.LiveBlocks(), "the region without a scatter is free")
		h.copied()
		out := h.expect(wire.TypeAck, wire.TypeDrainAck)
		require.Equal(t, drained(5), out[1].msg)
		require.Nil(t, h.flow(5))
		h.zero()
	})
	t.Run("DRAIN drops a queued scatter", func(t *testing.T) {
		h := withPeer(t)
		h.gpu.contexts = 1
		credits := openFlow(h)
		h.deliver(dataFor(5, credits[0], 2), dataFor(5, credits[1], 2), drainOf(5))
		h.silent()
		h.copied()
		h.expect(wire.TypeAck, wire.TypeDrainAck)
		require.Len(t, h.gpu.copies, 1, "the queued one is never launched")
		h.zero()
	})
	t.Run("DRAIN after a failed scatter is NACK 7", func(t *testing.T) {
		h := withPeer(t)
		h.stuck = true
		credits := openFlow(h)
		h.deliver(dataFor(5, credits[0], 2))
		h.gpu.copies[0].status = ports.CopyFailed
		h.turn()
		n := h.expectNack(wire.ReasonScatterFailed)
		require.Equal(t, credits[0].Region, n.Region)
		for range 2 {
			h.deliver(drainOf(5))
			n = h.expectNack(wire.ReasonScatterFailed)
			require.EqualValues(t, wire.WholeRequest, n.Chunk)
			require.EqualValues(t, 2, n.Chunks, "of the receiver's own accord: the flow's")
		}
		require.Equal(t, 1, h.arena.LiveBlocks(), "only the region in doubt is kept")
		require.EqualValues(t, 8*kilo, h.arena.RetainedBytes())
	})
}

func TestReceiverClosedFlow(t *testing.T) {
	for name, closed := range map[string]func(*harness) []wire.Credit{"lease": expiredFlow, "drain": closedFlow} {
		t.Run("WANT after "+name+" is NACK 10", func(t *testing.T) {
			h := withPeer(t)
			closed(h)
			h.deliver(want(5, twoChunks...))
			n := h.expectNack(wire.ReasonExpired)
			require.EqualValues(t, wire.WholeRequest, n.Chunk)
		})
		t.Run("DATA of a done chunk after "+name+" is ACK", func(t *testing.T) {
			h := withPeer(t)
			credits := closed(h)
			h.deliver(dataFor(5, credits[0], 2))
			require.Equal(t, credits[0].Region, only[*wire.Ack](h).Region)
		})
		t.Run("DATA of another chunk after "+name+" is NACK 10", func(t *testing.T) {
			h := withPeer(t)
			credits := closed(h)
			copies := len(h.gpu.copies)
			h.deliver(dataFor(5, credits[1], 2))
			h.expectNack(wire.ReasonExpired)
			require.Len(t, h.gpu.copies, copies)
		})
	}
	t.Run("DRAIN after lease frees and is DRAIN_ACK", func(t *testing.T) {
		h := withPeer(t)
		expiredFlow(h)
		require.EqualValues(t, 8*kilo, h.arena.RetainedBytes())
		h.deliver(drainOf(5))
		require.Equal(t, drained(5), only[*wire.DrainAck](h))
		require.Nil(t, h.flow(5))
		h.zero()
	})
	t.Run("DRAIN after drain waits on", func(t *testing.T) {
		h := withPeer(t)
		closedFlow(h)
		h.deliver(drainOf(5), drainOf(5))
		h.silent()
		h.copied()
		h.expect(wire.TypeAck, wire.TypeDrainAck)
		h.zero()
	})
}

func TestReceiverFinishedFlow(t *testing.T) {
	t.Run("WANT is an ACK for each chunk", func(t *testing.T) {
		h := withPeer(t)
		finishedFlow(h)
		h.deliver(want(5, twoChunks...))
		h.expect(wire.TypeAck, wire.TypeAck)
		require.Equal(t, flowFinished, h.flow(5).state)
	})
	t.Run("DATA is ACK", func(t *testing.T) {
		h := withPeer(t)
		credits := finishedFlow(h)
		h.deliver(dataFor(5, credits[1], 2))
		require.Equal(t, credits[1].Region, only[*wire.Ack](h).Region)
		require.Len(t, h.gpu.copies, 2)
	})
	t.Run("DRAIN is DRAIN_ACK", func(t *testing.T) {
		h := withPeer(t)
		finishedFlow(h)
		h.deliver(drainOf(5))
		require.Equal(t, drained(5), only[*wire.DrainAck](h))
		require.Nil(t, h.flow(5))
	})
}

// fillArena lets beta take all regions that can be granted.
func fillArena(h *harness) {
	h.Helper()
	for id := uint64(1); ; id++ {
		h.deliverFrom(peerB, &wire.Want{Request: id, Oldest: 1, Endpoint: []byte("mem:b"), ChunkBytes: []uint32{maxChunk, maxChunk, maxChunk, maxChunk}})
		if len(h.sent()) == 0 {
			return
		}
	}
}
