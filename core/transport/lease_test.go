package transport

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

func TestLease(t *testing.T) {
	t.Run("without regions it ends in one NACK 10", func(t *testing.T) {
		h := withPeer(t)
		fillArena(h)
		h.deliver(want(5, maxChunk))
		h.silent()
		h.tick(59 * time.Second)
		for id := uint64(1); h.peer(peerB).flows[id] != nil; id++ { // they hold all regions and live on
			h.deliverFrom(peerB, &wire.Want{Request: id, Oldest: 1, ChunkBytes: []uint32{maxChunk, maxChunk, maxChunk, maxChunk}})
		}
		h.sent()
		h.tick(time.Second)
		n := h.expectNack(wire.ReasonExpired)
		require.EqualValues(t, 5, n.Request)
		require.EqualValues(t, wire.WholeRequest, n.Chunk)
		require.EqualValues(t, 1, n.Chunks)
		require.Nil(t, h.flow(5))
		require.EqualValues(t, 1, h.count(FlowsExpired))
		h.tick(10 * time.Second)
		h.silent()
	})
	t.Run("with regions it says so from 2 s to 60 s apart", func(t *testing.T) {
		h := withPeer(t)
		openFlow(h)
		h.tick(60 * time.Second)
		h.expectNack(wire.ReasonExpired)
		require.Equal(t, 2, h.arena.LiveBlocks())
		require.EqualValues(t, 16*kilo, h.arena.RetainedBytes(), "retained: no reserve of the arena")
		for _, wait := range []time.Duration{2, 4, 8, 16, 32, 60, 60, 60} {
			require.InDelta(t, wait*time.Second, h.until(2*time.Minute), float64(wait*time.Second/4))
			h.expectNack(wire.ReasonExpired)
		}
		h.deliver(drainOf(5))
		h.expect(wire.TypeDrainAck)
		h.zero()
		h.tick(2 * time.Minute)
		h.silent()
	})
	for name, m := range map[string]func(c []wire.Credit) wire.Message{
		"WANT":                   func([]wire.Credit) wire.Message { return want(5, twoChunks...) },
		"DATA of a done chunk":   func(c []wire.Credit) wire.Message { return dataFor(5, c[0], 2) },
		"DATA that is refused":   func(c []wire.Credit) wire.Message { d := dataFor(5, c[1], 2); d.Region = 99; return d },
		"a contradicting WANT":   func([]wire.Credit) wire.Message { return want(5, 1) },
		"DATA of another layout": func(c []wire.Credit) wire.Message { return dataFor(5, c[1], 3) },
	} {
		t.Run(name+" restarts it", func(t *testing.T) {
			h := withPeer(t)
			credits := openHalfDone(h)
			h.tick(59 * time.Second)
			h.deliver(m(credits))
			h.sent()
			h.tick(60*time.Second - ms)
			require.Equal(t, flowOpen, h.flow(5).state)
			h.tick(ms)
			require.Equal(t, flowExpired, h.flow(5).state)
		})
	}
	t.Run("a grant restarts it", func(t *testing.T) {
		h := withPeer(t)
		fillArena(h)
		h.deliver(want(5, maxChunk))
		h.tick(50 * time.Second)
		h.deliverFrom(peerB, drainOf(1))
		require.Equal(t, regionGranted, h.flow(5).chunks[0].stateNow())
		h.tick(59 * time.Second)
		require.Equal(t, flowOpen, h.flow(5).state)
	})
	t.Run("a running scatter holds it", func(t *testing.T) {
		h := withPeer(t)
		credits := openFlow(h)
		h.deliver(dataFor(5, credits[0], 2))
		h.tick(5 * time.Minute)
		h.silent()
		h.copied()
		h.expect(wire.TypeAck)
		h.tick(60*time.Second - ms)
		h.silent()
		h.tick(ms)
		h.expectNack(wire.ReasonExpired)
	})
	t.Run("a finished flow has none", func(t *testing.T) {
		h := withPeer(t)
		finishedFlow(h)
		h.tick(5 * time.Minute)
		h.silent()
		require.Equal(t, flowFinished, h.flow(5).state)
	})
}

// `oldest` acts on every lower request as its DRAIN would, without an answer.
func TestOldestClosesLowerFlows(t *testing.T) {
	t.Run("in every state", func(t *testing.T) {
		h := withPeer(t)
		small := []uint32{4 * kilo}
		one := h.granted(1, small...) // finished
		h.deliver(dataFor(1, one[0], 1))
		h.copied()
		h.deliver(wantOldest(2, 1, small...)) // expired
		h.tick(60 * time.Second)
		h.deliver(wantOldest(3, 1, small...)) // open
		h.sent()
		four := h.wantCredits(wantOldest(4, 1, small...)) // scattering
		h.deliver(dataFor(4, four[0], 1))
		require.Equal(t, []flowState{flowFinished, flowExpired, flowOpen, flowOpen}, h.states(1, 2, 3, 4))

		h.deliver(wantOldest(6, 5, small...))
		h.expect(wire.TypeGrant)
		require.Len(t, h.peer(peerA).flows, 2)
		require.Equal(t, flowClosed, h.flow(4).state, "it waits for its scatter")
		h.copied()
		h.expect(wire.TypeAck)
		require.Nil(t, h.flow(4))
		require.Equal(t, 1, h.arena.LiveBlocks())
		h.tick(30 * time.Second)
		h.silent()
	})
	t.Run("not the request itself, nor higher ones", func(t *testing.T) {
		h := withPeer(t)
		h.deliver(wantOldest(7, 2, 8), wantOldest(5, 5, 8))
		h.expect(wire.TypeGrant, wire.TypeGrant)
		require.Equal(t, []flowState{flowOpen, flowOpen}, h.states(5, 7))
	})
	t.Run("a late WANT of another request carries it too", func(t *testing.T) {
		h := withPeer(t)
		h.deliver(wantOldest(5, 5, 8))
		h.expect(wire.TypeGrant)
		h.deliver(wantOldest(9, 8, 8), wantOldest(6, 6, 8))
		h.expect(wire.TypeGrant)
		require.Nil(t, h.flow(5))
		require.Nil(t, h.flow(6))
	})
	t.Run("DRAIN of one that still waits is answered when it ends", func(t *testing.T) {
		h := withPeer(t)
		credits := openFlow(h)
		h.deliver(dataFor(5, credits[0], 2), want(6, 8))
		h.expect(wire.TypeGrant)
		h.deliver(drainOf(5))
		h.silent()
		h.copied()
		h.expect(wire.TypeAck, wire.TypeDrainAck)
	})
}

func (h *harness) wantCredits(w *wire.Want) []wire.Credit {
	h.Helper()
	h.deliver(w)
	return only[*wire.Grant](h).Credits
}

func (h *harness) states(ids ...uint64) (list []flowState) {
	h.Helper()
	for _, id := range ids {
		require.NotNil(h, h.flow(id), "flow %d", id)
		list = append(list, h.flow(id).state)
	}
	return list
}

// At most 1024 finished flows are kept per peer, oldest dropped first.
func TestFinishedFlowsAreBounded(t *testing.T) {
	h := withPeer(t)
	h.deliver(wantOldest(1, 1, 16)) // open throughout
	h.sent()
	for id := uint64(2); id <= maxFinished+3; id++ {
		c := h.wantCredits(wantOldest(id, 1, 16))
		h.deliver(dataFor(id, c[0], 1))
		h.copied()
		h.expect(wire.TypeAck)
	}
	require.Len(t, h.peer(peerA).flows, maxFinished+1)
	require.Equal(t, flowOpen, h.flow(1).state, "open ones are not dropped")
	require.Nil(t, h.flow(3))
	require.NotNil(t, h.flow(4))
	h.deliver(dataFor(3, wire.Credit{Region: 3, Length: 8}, 1))
	h.expectNack(wire.ReasonUnknownFlow)
	h.deliver(wantOldest(maxFinished+4, maxFinished+4, 16))
	require.Len(t, h.peer(peerA).flows, 1)
}

// A WANT that its DRAIN overtook makes no flow: nobody would end it. `oldest` takes the memory of the DRAIN away.
func TestWantThatDrainOvertook(t *testing.T) {
	h := withPeer(t)
	h.deliver(drainOf(5))
	h.expect(wire.TypeDrainAck)
	h.deliver(wantOldest(5, 4, 8*kilo))
	h.silent()
	require.EqualValues(t, 1, h.count(WantsAfterDrain))
	h.zero()

	c := h.granted(6, 8*kilo)
	h.deliver(drainOf(6))
	h.expect(wire.TypeDrainAck)
	h.deliver(wantOldest(6, 4, 8*kilo), dataFor(6, c[0], 1))
	h.expectNack(wire.ReasonUnknownFlow)
	require.EqualValues(t, 2, h.count(WantsAfterDrain))
	require.Len(t, h.peer(peerA).drained.ring, 1, "5 is below oldest")

	h.deliver(wantOldest(7, 7, 8*kilo))
	h.expect(wire.TypeGrant)
	require.Empty(t, h.peer(peerA).drained.ring)
	require.Empty(t, h.peer(peerA).drained.set)
	h.deliver(drainOf(7))
	h.expect(wire.TypeDrainAck)
}

func TestDrainedRequestsAreBounded(t *testing.T) {
	var d drainedRequests
	for id := uint64(1); id <= 3*maxDrained; id++ {
		d.add(id)
		d.add(id)
	}
	require.Len(t, d.ring, maxDrained)
	require.Len(t, d.set, maxDrained)
	require.False(t, d.has(2*maxDrained))
	require.True(t, d.has(2*maxDrained+1))
	d.dropBelow(3*maxDrained - 1)
	require.Equal(t, []uint64{3*maxDrained - 1, 3 * maxDrained}, d.ring)
	d.add(4 * maxDrained)
	require.True(t, d.has(3*maxDrained))
	d.dropBelow(5 * maxDrained)
	require.Equal(t, drainedRequests{}, d)
}

// Staging without a credit that came to lie where grants are promised room is given up.
func TestStagingInTheWayOfGrants(t *testing.T) {
	h := withPeer(t)
	hd := h.submit(maxChunk, maxChunk) // gathered ahead, in the two lowest zones
	h.copied()
	h.deliver(wantOldest(1, 1, maxChunk), wantOldest(2, 1, maxChunk))
	h.expect(wire.TypeWant, wire.TypeGrant, wire.TypeGrant)
	require.Equal(t, 4, h.arena.LiveBlocks(), "the arena is full")
	// The leases end: both zones of grants are retained, and the reserve of grants moves onto staging.
	for id := uint64(1); id <= 2; id++ {
		h.flow(id).chunks[0].hold.Retain()
	}
	h.deliverFrom(peerB, &wire.Want{Request: 1, Oldest: 1, Endpoint: []byte("mem:b"), ChunkBytes: []uint32{maxChunk}})
	require.EqualValues(t, 1, h.count(StagingTaken))
	require.Equal(t, wire.TypeGrant, typeOf(h.sent()[0].msg))
	require.Equal(t, InProgress, hd.Status())
}

// A scatter of a flow that was closed meanwhile is waited for, and its ACK is of no harm.
func TestScatterEndsAfterFlowWasForgottenByOldest(t *testing.T) {
	h := withPeer(t)
	credits := openFlow(h)
	h.deliver(dataFor(5, credits[0], 2), dataFor(5, credits[1], 2), want(6, 8))
	h.expect(wire.TypeGrant)
	h.gpu.copies[1].status = ports.CopyDone
	h.turn()
	h.expect(wire.TypeAck)
	require.Equal(t, flowClosed, h.flow(5).state)
	h.copied()
	h.expect(wire.TypeAck)
	require.Nil(t, h.flow(5))
}
