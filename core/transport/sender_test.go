package transport

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

func TestSenderHappyPath(t *testing.T) {
	h := withPeer(t)
	sizes := []uint32{8 * kilo, 4 * kilo, 16 * kilo}
	hd := h.submission(Submission{Peer: peerA, Chunks: sizes, Bytes: 28 * kilo, Token: 77, Notify: []byte("done")})

	w := only[*wire.Want](h)
	require.Equal(t, &wire.Want{Request: 1, Oldest: 1, Token: 77, Endpoint: []byte("mem:self"), ChunkBytes: sizes}, w)
	require.EqualValues(t, 1, hd.ID())
	require.Len(t, h.gpu.copies, 3, "all chunks are gathered ahead of their credits")

	// Chunk 2 is granted and done first: chunks are independent.
	h.copied()
	h.deliver(grant(1, sizes, 2))
	require.Len(t, h.pendingWrites(), 1)
	h.silent()
	h.deliver(grant(1, sizes, 0, 1))
	require.Len(t, h.pendingWrites(), 3)
	require.True(t, hd.IsSourceReleased(), "all chunks stand in staging that can't be taken")
	require.False(t, hd.IsQuiesced())

	h.engine.transfers[0].end(ports.Success)
	h.turn()
	d := only[*wire.Data](h)
	require.Equal(t, &wire.Data{Request: 1, Region: regionOf(2), Chunk: 2, Chunks: 3, Runs: d.Runs}, d)
	require.Equal(t, planned(2, 16*kilo).Scatter.Runs, d.Runs.Runs)
	require.True(t, h.engine.transfers[0].released)
	require.Equal(t, 2, h.arena.LiveBlocks(), "written staging is free")

	h.written(ports.Success)
	h.expect(wire.TypeData, wire.TypeData)
	h.zero()
	h.deliver(ack(1, 3, 1), ack(1, 3, 0))
	require.Equal(t, InProgress, hd.Status())
	require.Empty(t, h.engine.notified)
	h.deliver(ack(1, 3, 2))
	require.Equal(t, Succeeded, hd.Status())
	require.NoError(t, hd.Err())
	require.True(t, hd.IsQuiesced())
	require.Equal(t, 3, h.recycled, "plans go back to the planner")
	h.turn()
	require.Equal(t, []string{"done"}, h.engine.notified, "after success")
	h.tick(time.Minute)
	h.silent()
	require.EqualValues(t, 28*kilo, h.count(BouncedBytes))
	require.EqualValues(t, 1, h.count(BounceSucceeded))
}

// Chunks are pipelined: one may be gathered while another is written and a third is scattered.
func TestSenderPipelinesWithoutEagerGather(t *testing.T) {
	h := withPeer(t, func(s *Settings) { s.EagerGather = false })
	sizes := []uint32{8 * kilo, 8 * kilo, 8 * kilo}
	hd := h.submit(sizes...)
	h.expect(wire.TypeWant)
	require.Empty(t, h.gpu.copies, "no gather ahead of a credit")
	h.deliver(grant(1, sizes, 0))
	h.copied()
	h.deliver(grant(1, sizes, 1))
	require.Len(t, h.pendingWrites(), 1)
	require.Len(t, h.gpu.running(), 1, "chunk 1 is gathered while chunk 0 is written")
	h.copied()
	h.engine.transfers[0].end(ports.Success)
	h.deliver(grant(1, sizes, 2))
	h.expect(wire.TypeData)
	require.False(t, hd.IsSourceReleased())
	h.copied()
	require.True(t, hd.IsSourceReleased())
	h.written(ports.Success)
	h.expect(wire.TypeData, wire.TypeData)
	h.deliver(ack(1, 3, 0), ack(1, 3, 1), ack(1, 3, 2))
	require.Equal(t, Succeeded, hd.Status())
}

// A chunk's first gather starts before later chunks are planned, and a credit may come before its chunk's plan.
func TestSenderPlansArriveLater(t *testing.T) {
	h := withPeer(t)
	hd := h.start(Submission{Peer: peerA, Chunks: twoChunks})
	h.turn()
	h.expect(wire.TypeWant)
	hd.Planned(planned(0, 8*kilo), ms)
	h.turn()
	require.Len(t, h.gpu.copies, 1)
	h.deliver(grant(1, twoChunks, 0, 1))
	h.copied()
	h.written(ports.Success)
	h.expect(wire.TypeData)
	require.False(t, hd.IsSourceReleased(), "chunk 1 has not been planned")
	hd.Planned(planned(1, 8*kilo), ms)
	h.turn()
	h.copied()
	h.written(ports.Success)
	h.expect(wire.TypeData)
	h.deliver(ack(1, 2, 0), ack(1, 2, 1))
	require.Equal(t, Succeeded, hd.Status())
	require.Equal(t, 2*ms, hd.Stages().Plan)
}

func TestSenderPlanFails(t *testing.T) {
	h := withPeer(t)
	hd := h.start(Submission{Peer: peerA, Chunks: twoChunks})
	hd.Planned(planned(0, 8*kilo), 0)
	h.turn()
	hd.PlanFailed(errTest)
	h.turn()
	f := h.failedBecause(hd, ErrPlan)
	require.ErrorIs(t, f, errTest)
	require.False(t, hd.IsSourceReleased(), "a gather runs")
	hd.Planned(planned(1, 8*kilo), 0)
	h.copied()
	require.True(t, hd.IsQuiesced())
	require.Equal(t, 2, h.recycled)
}

func TestSenderWaitsForReadyEvent(t *testing.T) {
	for name, c := range map[string]struct {
		act  func(h *harness, hd *Handle, e *fakeEvent)
		kind error // nil: it is sent
	}{
		"fires":  {func(_ *harness, _ *Handle, e *fakeEvent) { e.status = ports.CopyDone }, nil},
		"fails":  {func(_ *harness, _ *Handle, e *fakeEvent) { e.status = ports.CopyFailed }, ErrGatherFailed},
		"cancel": {func(_ *harness, hd *Handle, _ *fakeEvent) { hd.Cancel() }, ErrCancelled},
		"peer removed": {func(h *harness, _ *Handle, e *fakeEvent) {
			h.remove(peerA)
		}, ErrPeerGone},
		"peer superseded": {func(h *harness, _ *Handle, e *fakeEvent) {
			h.add(must(ports.NewIdentity("alpha", 2)))
			e.status = ports.CopyDone
		}, ErrPeerGone},
	} {
		t.Run(name, func(t *testing.T) {
			h := withPeer(t)
			ready := &fakeEvent{}
			hd := h.submission(Submission{Peer: peerA, Chunks: twoChunks, Ready: ready})
			h.tick(40 * time.Second)
			h.silent()
			require.Empty(t, h.gpu.copies, "a waiting copy holds no context and no staging")
			require.Zero(t, hd.ID(), "no number is drawn")
			require.Equal(t, InProgress, hd.Status(), "waiting is not bound by the request timeout")
			h.zero()
			c.act(h, hd, ready)
			h.turn()
			if c.kind == nil {
				require.EqualValues(t, 1, only[*wire.Want](h).Request)
				require.Len(t, h.gpu.copies, 2)
				return
			}
			h.silent()
			h.failedBecause(hd, c.kind)
			require.True(t, hd.IsQuiesced())
			require.Equal(t, 2, h.recycled)
			require.Empty(t, h.gpu.copies)
		})
	}
}

func TestSenderRefusals(t *testing.T) {
	t.Run("unknown peer", func(t *testing.T) {
		h := newHarness(t)
		hd := h.submit(twoChunks...)
		h.failedBecause(hd, ErrUnknownPeer)
		require.True(t, hd.IsQuiesced())
		require.Equal(t, 2, h.recycled)
	})
	t.Run("a peer known by frames alone", func(t *testing.T) {
		h := newHarness(t)
		h.deliver(drainOf(1))
		h.expect(wire.TypeDrainAck)
		hd := h.submit(twoChunks...)
		h.failedBecause(hd, ErrPeerGone)
		h.silent()
	})
	t.Run("removed peer", func(t *testing.T) {
		h := withPeer(t)
		gate := h.peer(peerA).info.Gate
		require.Nil(t, gate.Refusal())
		h.remove(peerA)
		require.ErrorIs(t, gate.Refusal(), ErrPeerGone)
		h.failedBecause(h.submit(twoChunks...), ErrPeerGone)
	})
}

// Numbers count from 1, and `oldest` is the lowest that is tracked.
func TestSenderOldest(t *testing.T) {
	h := withPeer(t)
	one := []uint32{4 * kilo}
	first, second := h.submit(one...), h.submit(one...)
	h.expect(wire.TypeWant, wire.TypeWant)
	h.copied()
	h.succeedAll(2, one)
	h.sent()
	require.Equal(t, Succeeded, second.Status())
	h.submit(one...)
	w := only[*wire.Want](h)
	require.EqualValues(t, 3, w.Request)
	require.EqualValues(t, 1, w.Oldest)
	h.copied()
	first.Cancel()
	h.turn()
	h.submit(one...)
	h.copied()
	require.EqualValues(t, 1, h.expect(wire.TypeDrain, wire.TypeWant)[1].msg.(*wire.Want).Oldest, "a draining request is tracked")
	h.deliver(drained(1))
	h.submit(one...)
	w = only[*wire.Want](h)
	require.EqualValues(t, 5, w.Request)
	require.EqualValues(t, 3, w.Oldest)
}

// The sources of gathers ahead of their credit are not released: their staging may be taken, and they are gathered again.
func TestSourceReleased(t *testing.T) {
	t.Run("not while staging can be taken", func(t *testing.T) {
		h := withPeer(t)
		hd := h.submit(twoChunks...)
		h.copied()
		require.False(t, hd.IsSourceReleased())
		h.deliver(grant(1, twoChunks, 0))
		require.False(t, hd.IsSourceReleased())
		h.deliver(grant(1, twoChunks, 1))
		require.True(t, hd.IsSourceReleased())
		require.False(t, hd.IsQuiesced())
	})
	t.Run("not while a credited gather runs", func(t *testing.T) {
		h := withPeer(t)
		hd := h.submit(twoChunks...)
		h.deliver(grant(1, twoChunks, 0, 1))
		require.False(t, hd.IsSourceReleased())
		h.gpu.copies[0].status = ports.CopyDone
		h.turn()
		require.False(t, hd.IsSourceReleased())
		h.copied()
		require.True(t, hd.IsSourceReleased())
	})
	t.Run("after failure when the last gather ended", func(t *testing.T) {
		h := withPeer(t)
		hd := h.submit(twoChunks...)
		hd.Cancel()
		h.turn()
		require.False(t, hd.IsSourceReleased())
		h.copied()
		require.True(t, hd.IsSourceReleased())
	})
	t.Run("after failure although a write is unproven", func(t *testing.T) {
		h := withPeer(t)
		hd := h.submit(twoChunks...)
		h.copied()
		h.deliver(grant(1, twoChunks, 0))
		hd.Cancel()
		h.turn()
		require.True(t, hd.IsSourceReleased())
		require.False(t, hd.IsQuiesced())
	})
}

func TestStagingIsTakenByCreditedChunks(t *testing.T) {
	// Eager staging is bound to half of the arena; the rest is filled with grants to beta and two eager chunks of the first request.
	big := []uint32{maxChunk, maxChunk}
	setUp := func(t *testing.T) (h *harness, first, second *Handle) {
		h = withPeer(t)
		first = h.submit(big...)
		require.Len(t, h.gpu.copies, 2)
		fillArena(h)
		second = h.submit(maxChunk)
		h.sent()
		require.Len(t, h.gpu.copies, 2, "no staging is left")
		return h, first, second
	}
	t.Run("not while the gather runs", func(t *testing.T) {
		h, first, second := setUp(t)
		h.deliver(grant(2, []uint32{maxChunk}, 0))
		require.Len(t, h.gpu.copies, 2)
		require.Zero(t, h.count(StagingTaken))

		h.gpu.copies[0].status = ports.CopyDone
		h.turn()
		require.EqualValues(t, 1, h.count(StagingTaken))
		require.Len(t, h.gpu.copies, 3)
		require.Equal(t, h.gpu.copies[0].block, h.gpu.copies[2].block, "the staging whose gather completed")
		require.False(t, first.IsSourceReleased())
		h.copied()
		require.Len(t, h.pendingWrites(), 1)
		require.True(t, second.IsSourceReleased())

		// The chunk that lost its staging is gathered again once there is room, and comes through.
		h.written(ports.Success)
		require.Len(t, h.gpu.copies, 4)
		require.Equal(t, h.gpu.copies[0].runs.Runs, h.gpu.copies[3].runs.Runs)
		h.copied()
		h.deliver(ack(2, 1, 0), grant(1, big, 0, 1))
		h.written(ports.Success)
		h.deliver(ack(1, 2, 0), ack(1, 2, 1))
		require.Equal(t, Succeeded, first.Status())
		require.Equal(t, Succeeded, second.Status())
	})
	t.Run("the youngest goes first", func(t *testing.T) {
		h, _, _ := setUp(t)
		h.copied()
		h.deliver(grant(2, []uint32{maxChunk}, 0))
		require.Equal(t, h.gpu.copies[1].block, h.gpu.copies[2].block)
	})
	t.Run("a taken gather that is repeated is no progress", func(t *testing.T) {
		h, first, _ := setUp(t)
		h.copied()
		began := h.now
		h.tick(29 * time.Second)
		h.deliver(grant(2, []uint32{maxChunk}, 0))
		h.copied()
		h.written(ports.Success)
		require.Len(t, h.gpu.copies, 4, "gathered again")
		h.copied()
		h.tick(began.Add(30 * time.Second).Sub(h.now))
		h.failedBecause(first, ErrTimeout)
	})
	t.Run("never from a credited chunk", func(t *testing.T) {
		h, _, _ := setUp(t)
		h.deliver(grant(1, big, 0, 1), grant(2, []uint32{maxChunk}, 0))
		h.copied()
		require.Zero(t, h.count(StagingTaken))
		require.Len(t, h.gpu.copies, 2)
		h.engine.transfers[0].end(ports.Success)
		h.turn()
		require.Len(t, h.gpu.copies, 3, "it gets the staging when the write has ended")
	})
	t.Run("a timeout frees staging for the next chunk at once", func(t *testing.T) {
		h := withPeer(t, func(s *Settings) { s.ReceiverLease = time.Hour })
		h.submit(big...)
		fillArena(h)
		h.copied()
		h.tick(29 * time.Second)
		second := h.submit(maxChunk)
		require.Len(t, h.gpu.copies, 2)
		h.tick(time.Second)
		require.Len(t, h.gpu.copies, 3, "in the turn of the timeout")
		require.Equal(t, InProgress, second.Status())
	})
}

func TestGatherLaunch(t *testing.T) {
	t.Run("waits for a copy context", func(t *testing.T) {
		h := withPeer(t)
		h.gpu.contexts = 1
		h.submit(twoChunks...)
		require.Len(t, h.gpu.copies, 1)
		require.Equal(t, 1, h.arena.LiveBlocks(), "no staging is held without a gather")
		h.copied()
		require.Len(t, h.gpu.copies, 2)
	})
	t.Run("ahead of credits it takes half of the arena at most", func(t *testing.T) {
		h := withPeer(t)
		sizes := []uint32{maxChunk, maxChunk, maxChunk}
		h.submit(sizes...)
		require.Len(t, h.gpu.copies, 2)
		h.deliver(grant(1, sizes, 0))
		require.Len(t, h.gpu.copies, 3, "with a credit it is not ahead any more")
	})
	t.Run("busy is tried again", func(t *testing.T) {
		h := withPeer(t)
		h.gpu.gatherErr = ports.ErrBusy
		hd := h.submit(twoChunks...)
		h.tick(100 * ms)
		h.zero()
		h.gpu.gatherErr = nil
		h.tick(ms)
		require.Len(t, h.gpu.copies, 2)
		require.Equal(t, InProgress, hd.Status())
	})
	t.Run("not launched fails the request, proven", func(t *testing.T) {
		h := withPeer(t)
		h.gpu.gatherErr = errors.Join(ports.ErrNotLaunched, errTest)
		hd := h.submit(twoChunks...)
		f := h.failedBecause(hd, ErrGatherFailed)
		require.ErrorIs(t, f, errTest)
		require.True(t, hd.IsQuiesced())
		h.zero()
		h.expect(wire.TypeWant, wire.TypeDrain)
	})
	t.Run("a launch error proves nothing", func(t *testing.T) {
		h := withPeer(t)
		h.stuck = true
		h.gpu.gatherErr = errTest
		hd := h.submit(twoChunks...)
		h.gatherStuck(hd)
	})
	t.Run("a failed gather proves nothing", func(t *testing.T) {
		h := withPeer(t)
		h.stuck = true
		hd := h.submit(twoChunks...)
		h.gpu.copies[0].status = ports.CopyFailed
		h.turn()
		h.copied()
		h.gatherStuck(hd)
	})
}

// gatherStuck asserts that request 1's source and one staging block of 8 KiB stay in doubt, though the receiver drained it.
func (h *harness) gatherStuck(hd *Handle) {
	h.Helper()
	h.failedBecause(hd, ErrGatherFailed)
	h.expect(wire.TypeWant, wire.TypeDrain)
	h.deliver(drained(1))
	require.Nil(h, h.request(1))
	require.False(h, hd.IsSourceReleased())
	require.False(h, hd.IsQuiesced())
	require.Equal(h, 1, h.arena.LiveBlocks())
	require.EqualValues(h, 8*kilo, h.arena.RetainedBytes())
	require.Equal(h, 1, h.tr.Totals().Doubts)
	require.NotEmpty(h, h.tr.CallerDoubts())
	require.Nil(h, h.peer(peerA).info.Gate.Refusal(), "a copy's failure says nothing of the peer")
}

// An ACK of a chunk whose DATA was held back, since the plan was not checked yet, counts for nothing.
func TestSenderAckBeforeData(t *testing.T) {
	h := withPeer(t)
	hd := h.start(Submission{Peer: peerA, Chunks: []uint32{4 * kilo}, Unchecked: true})
	hd.Planned(planned(0, 4*kilo), 0)
	h.turn()
	h.copied()
	h.deliver(grant(1, []uint32{4 * kilo}, 0))
	h.written(ports.Success)
	h.sent()
	h.deliver(ack(1, 1, 0))
	require.Equal(t, InProgress, hd.Status())
	require.EqualValues(t, 1, h.count(StaleAcks))
	hd.PlanChecked(0)
	h.turn()
	h.expect(wire.TypeData)
	h.deliver(ack(1, 1, 0))
	require.Equal(t, Succeeded, hd.Status())
}
