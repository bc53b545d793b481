package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// alphaNext is a later incarnation of alpha.
var alphaNext = must(ports.NewIdentity("alpha", 0xA2))

func TestAddPeer(t *testing.T) {
	t.Run("connects both ports", func(t *testing.T) {
		h := withPeer(t)
		require.Equal(t, "mem:"+string(peerA), h.channel.endpoints[peerA])
		require.Equal(t, "metadata", h.engine.connected[peerA])
	})
	t.Run("again replaces its settings", func(t *testing.T) {
		h := withPeer(t)
		info := infoOf(peerA)
		info.EngineMetadata = []byte("more memory")
		info.RequestTimeout = time.Second
		require.NoError(t, h.addInfo(info))
		require.Equal(t, "more memory", h.engine.connected[peerA])
		hd := h.submit(8)
		require.EqualValues(t, 1, hd.ID())
		h.tick(time.Second)
		h.failedBecause(hd, ErrTimeout)
	})
	t.Run("with another endpoint is refused", func(t *testing.T) {
		h := withPeer(t)
		info := infoOf(peerA)
		info.Endpoint = []byte("mem:elsewhere")
		info.EngineMetadata = []byte("changed")
		require.ErrorContains(t, h.addInfo(info), "mem:elsewhere")
		require.Equal(t, "mem:"+string(peerA), h.channel.endpoints[peerA])
		require.Equal(t, "metadata", h.engine.connected[peerA], "a refusal changes nothing")
	})
	t.Run("replaces an endpoint learned from a frame", func(t *testing.T) {
		h := newHarness(t)
		d := drainOf(1)
		d.Endpoint = []byte("mem:claimed")
		h.deliver(d)
		h.expect(wire.TypeDrainAck)
		require.Equal(t, "mem:claimed", h.channel.endpoints[peerA])
		h.add(peerA)
		require.Equal(t, "mem:"+string(peerA), h.channel.endpoints[peerA])
		h.deliver(d)
		require.Equal(t, "mem:"+string(peerA), h.channel.endpoints[peerA], "AddPeer's word stands")
		require.Zero(t, h.tr.strangers)
	})
	t.Run("that the engine refuses leaves nothing", func(t *testing.T) {
		h := newHarness(t)
		h.engine.refuse = ports.ErrBadMetadata
		require.ErrorIs(t, h.addInfo(infoOf(peerA)), ports.ErrBadMetadata)
		require.Empty(t, h.channel.endpoints)
		require.Empty(t, h.tr.peers)
	})
	t.Run("that the channel refuses leaves the direct path", func(t *testing.T) {
		h := newHarness(t)
		h.channel.refuse = errTest
		err := h.addInfo(infoOf(peerA))
		require.ErrorIs(t, err, errTest)
		require.ErrorAs(t, err, new(*DirectOnlyError))
		require.Equal(t, "metadata", h.engine.connected[peerA])
		require.Empty(t, h.channel.endpoints)
		require.True(t, h.tr.peers[peerA].added)
		require.Empty(t, h.tr.peers[peerA].info.Endpoint)
		// Once the channel takes the endpoint, adding the peer again is enough.
		h.channel.refuse = nil
		require.NoError(t, h.addInfo(infoOf(peerA)))
		require.NotEmpty(t, h.tr.peers[peerA].info.Endpoint)
		require.Equal(t, "mem:"+string(peerA), h.channel.endpoints[peerA])
	})
	t.Run("that the engine refuses leaves the way back of a known stranger", func(t *testing.T) {
		h := newHarness(t)
		d := drainOf(1)
		d.Endpoint = []byte("mem:claimed")
		h.deliver(d)
		h.expect(wire.TypeDrainAck)
		h.engine.refuse = ports.ErrBadMetadata
		require.Error(t, h.addInfo(infoOf(peerA)))
		require.Equal(t, "mem:claimed", h.channel.endpoints[peerA])
		require.Equal(t, 1, h.tr.strangers)
	})
	t.Run("while closing is refused", func(t *testing.T) {
		h := newHarness(t)
		h.tr.BeginClose()
		require.ErrorIs(t, h.addInfo(infoOf(peerA)), ErrClosing)
	})
}

func TestSupersede(t *testing.T) {
	t.Run("an idle incarnation goes at once", func(t *testing.T) {
		h := withPeer(t)
		gate := h.peer(peerA).info.Gate
		h.add(alphaNext)
		require.ErrorIs(t, gate.Refusal(), ErrPeerGone)
		require.Nil(t, h.peer(peerA))
		require.NotContains(t, h.channel.endpoints, peerA)
		require.NotContains(t, h.engine.connected, peerA)
		require.ErrorIs(t, h.addInfo(infoOf(peerA)), ErrStale)
		h.deliver(want(1, 8))
		h.silent()
		require.Nil(t, h.peer(peerA), "its late frames make no entry")
	})
	t.Run("another name is not touched", func(t *testing.T) {
		h := withPeer(t)
		gate := h.add(peerB)
		h.add(alphaNext)
		require.Nil(t, gate.Refusal())
	})
	t.Run("admitted flows run to their end, and the last answer is not cut off", func(t *testing.T) {
		h := withPeer(t)
		credits := openFlow(h)
		h.add(alphaNext)
		h.deliver(want(5, twoChunks...))
		require.Equal(t, credits, only[*wire.Grant](h).Credits)
		h.deliver(wantOldest(6, 5, 8))
		h.expectNack(wire.ReasonRefused)
		h.deliver(dataFor(5, credits[0], 2), dataFor(5, credits[1], 2))
		h.copied()
		h.expect(wire.TypeAck, wire.TypeAck)
		h.deliver(dataFor(5, credits[1], 2)) // the ACK was lost on its way
		h.expect(wire.TypeAck)
		h.tick(61 * time.Second)
		require.Nil(t, h.peer(peerA), "a lease after its last flow")
		require.NotContains(t, h.channel.endpoints, peerA)
		require.ErrorIs(t, h.addInfo(infoOf(peerA)), ErrStale)
	})
	t.Run("DRAIN is still answered", func(t *testing.T) {
		h := withPeer(t)
		openFlow(h)
		h.add(alphaNext)
		for range 2 {
			h.deliver(drainOf(5))
			h.expect(wire.TypeDrainAck)
		}
	})
	t.Run("requests in progress run to their end", func(t *testing.T) {
		h := withPeer(t)
		hd := writtenRequest(h)
		h.add(alphaNext)
		require.Equal(t, InProgress, hd.Status())
		h.failedBecause(h.submit(8), ErrPeerGone)
		h.deliver(ack(1, 2, 1))
		require.Equal(t, Succeeded, hd.Status())
		require.Equal(t, peerA, hd.Peer())
	})
	t.Run("a frame supersedes nobody", func(t *testing.T) {
		h := withPeer(t)
		h.deliverFrom(alphaNext, &wire.Want{Request: 1, Oldest: 1, Endpoint: []byte("mem:x"), ChunkBytes: []uint32{8}})
		h.expect(wire.TypeGrant)
		require.Nil(t, h.peer(peerA).info.Gate.Refusal())
		require.False(t, h.peer(alphaNext).superseded, "it makes an entry of its own")
	})
	t.Run("to add what is added again supersedes nobody", func(t *testing.T) {
		h := withPeer(t)
		h.deliverFrom(alphaNext, &wire.Want{Request: 1, Oldest: 1, Endpoint: []byte("mem:x"), ChunkBytes: []uint32{8}})
		h.expect(wire.TypeGrant)
		h.add(peerA)
		h.deliverFrom(alphaNext, &wire.Want{Request: 2, Oldest: 1, ChunkBytes: []uint32{8}})
		h.expect(wire.TypeGrant)
		h.add(alphaNext)
		require.True(t, h.peer(peerA) == nil || h.peer(peerA).superseded)
		require.ErrorIs(t, h.addInfo(infoOf(peerA)), ErrStale)
	})
	t.Run("right after its last flow ended the last answer is not cut off either", func(t *testing.T) {
		h := withPeer(t)
		credits := openFlow(h)
		h.deliver(dataFor(5, credits[0], 2), dataFor(5, credits[1], 2))
		h.copied()
		h.expect(wire.TypeAck, wire.TypeAck)
		h.add(alphaNext)
		h.deliver(dataFor(5, credits[1], 2)) // the ACK was lost on its way
		h.expect(wire.TypeAck)
	})
	t.Run("what has no evidence keeps the entry", func(t *testing.T) {
		h := withPeer(t)
		hd, x := writing(h)
		x.end(ports.FailedUnknown)
		h.turn()
		h.add(alphaNext)
		h.tick(10 * time.Minute)
		require.NotNil(t, h.peer(peerA))
		require.Contains(t, h.engine.connected, peerA, "forgetting it in the engine would hide the late success")
		x.end(ports.Success)
		h.turn()
		h.expect(wire.TypeDrain)
		h.deliver(drained(1))
		require.True(t, hd.IsQuiesced())
		h.tick(61 * time.Second)
		require.Nil(t, h.peer(peerA))
	})
}

func TestRemovePeer(t *testing.T) {
	t.Run("fails its requests, which drain", func(t *testing.T) {
		h := withPeer(t)
		hd, x := writing(h)
		h.remove(peerA)
		h.failedBecause(hd, ErrPeerGone)
		h.silent()
		h.tick(10 * time.Minute)
		require.NotNil(t, h.peer(peerA), "a transfer is pending")
		x.end(ports.Success)
		h.turn()
		h.expect(wire.TypeDrain)
		h.deliver(drained(1))
		require.True(t, hd.IsQuiesced())
		h.tick(60 * time.Second)
		require.Nil(t, h.peer(peerA))
		require.NotContains(t, h.engine.connected, peerA)
		require.Zero(t, h.tr.strangers)
	})
	t.Run("keeps the way back while its flows run", func(t *testing.T) {
		h := withPeer(t)
		credits := openFlow(h)
		h.remove(peerA)
		h.tick(59 * time.Second)
		h.deliver(dataFor(5, credits[0], 2), dataFor(5, credits[1], 2))
		h.copied()
		h.expect(wire.TypeAck, wire.TypeAck)
		h.tick(61 * time.Second)
		require.Nil(t, h.peer(peerA), "finished ones go with it")
	})
	t.Run("an unknown peer is ignored", func(t *testing.T) {
		h := newHarness(t)
		h.remove(peerA)
	})
	t.Run("added again at once goes on counting", func(t *testing.T) {
		h := withPeer(t)
		h.submit(8)
		h.remove(peerA)
		h.add(peerA)
		require.EqualValues(t, 2, h.submit(8).ID())
	})
	t.Run("added again after it was forgotten goes on counting", func(t *testing.T) {
		h := withPeer(t)
		h.submit(8)
		h.copied()
		h.remove(peerA)
		h.tick(2 * time.Minute)
		require.Nil(t, h.peer(peerA))
		h.add(peerA)
		require.EqualValues(t, 2, h.submit(8).ID(), "numbers are never reused between two incarnations")
		h.add(peerB)
		require.EqualValues(t, 1, h.submission(Submission{Peer: peerB, Chunks: []uint32{8}}).ID())
	})
	t.Run("a gather that ends after DRAIN_ACK lets the entry go", func(t *testing.T) {
		h := withPeer(t)
		h.submit(8)
		h.remove(peerA)
		h.deliver(drained(1))
		h.tick(2 * time.Minute)
		require.NotNil(t, h.peer(peerA))
		h.copied()
		h.tick(61 * time.Second)
		require.Nil(t, h.peer(peerA))
	})
}

// Numbers stay unused even when so many incarnations were removed that not all are remembered.
func TestRetiredForgetsOldestFirst(t *testing.T) {
	var r retired
	name := func(i int) ports.Identity { return ports.Identity(fmt.Sprintf("p%d", i)) }
	r.add(name(-1), retiredPeer{})
	require.Empty(t, r.set, "there is nothing to remember of it")
	for i := range maxRetired {
		r.add(name(i), retiredPeer{superseded: i%2 == 0, lastID: uint64(i)})
	}
	require.True(t, r.superseded(name(0)))
	require.Zero(t, r.lastID(name(-1)))
	r.add(name(7), retiredPeer{lastID: 50})
	for i := range 10 {
		r.add(name(maxRetired+i), retiredPeer{superseded: true})
	}
	require.False(t, r.superseded(name(2)))
	require.Len(t, r.set, maxRetired)
	require.Len(t, r.ring, maxRetired)
	require.EqualValues(t, 50, r.lastID(name(7)), "not below what it drew")
	require.EqualValues(t, 50, r.lastID(name(-1)))
	require.EqualValues(t, 11, r.lastID(name(11)))
}

// A frame's endpoint is the way back, the newest one that can be used.
func TestWayBack(t *testing.T) {
	h := newHarness(t)
	from := func(endpoint string) *wire.Drain { return &wire.Drain{Request: 1, Endpoint: []byte(endpoint)} }
	h.deliver(from("mem:one"))
	h.expect(wire.TypeDrainAck)
	h.tick(wayBackEvery)
	h.channel.refuse = errTest
	h.deliver(from("nonsense"))
	h.expect(wire.TypeDrainAck)
	require.Equal(t, "mem:one", h.channel.endpoints[peerA], "an endpoint that can't be used changes nothing")
	require.EqualValues(t, 1, h.count(FramesNotDecoded))
	h.channel.refuse = nil
	h.deliver(from("mem:two"))
	require.Equal(t, "mem:one", h.channel.endpoints[peerA], "each endpoint costs a connection: not so soon again")
	h.expect(wire.TypeDrainAck)
	h.tick(wayBackEvery)
	h.deliver(from("mem:two"))
	require.Equal(t, "mem:two", h.channel.endpoints[peerA])
	h.deliver(&wire.Drain{Request: 1})
	require.Equal(t, "mem:two", h.channel.endpoints[peerA], "none is no news")
	h.expect(wire.TypeDrainAck, wire.TypeDrainAck)
}

// Entries made by frames are bounded, and dropped a lease after their last flow.
func TestStrangers(t *testing.T) {
	h := newHarness(t)
	stranger := func(i int) ports.Identity { return must(ports.NewIdentity("stranger", uint64(i+1))) }
	for i := range h.opt.Settings.MaxPeers {
		h.deliverFrom(stranger(i), &wire.Want{Request: 1, Oldest: 1, Endpoint: []byte("mem:s"), ChunkBytes: []uint32{8}})
	}
	require.Len(t, h.sent(), h.opt.Settings.MaxPeers)
	h.deliver(want(1, 8))
	h.silent()
	require.EqualValues(t, 1, h.count(FramesOfStrangers))

	h.tick(30 * time.Second)
	h.deliverFrom(stranger(0), drainOf(1))
	h.expect(wire.TypeDrainAck)
	h.tick(60*time.Second - ms)
	require.NotNil(t, h.peer(stranger(0)))
	h.tick(ms)
	require.Nil(t, h.peer(stranger(0)), "a lease after its last flow")
	require.NotNil(t, h.peer(stranger(1)), "its expired flow holds a region")
	h.sent()
	h.deliver(want(1, 8))
	h.expect(wire.TypeGrant)

	// An added peer takes no place of a stranger's.
	h.add(peerB)
	require.Equal(t, h.opt.Settings.MaxPeers, h.tr.strangers)
}
