package transport

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// The frame-by-state table of the sender (protocol.md, 7), one subtest a cell. Requests have number 1 and two chunks of 8 KiB.

// forgottenRequest leaves request 1 known by number alone: it succeeded.
func forgottenRequest(h *harness) {
	hd := h.submit(twoChunks...)
	h.succeedAll(1, twoChunks)
	require.Equal(h, Succeeded, hd.Status())
	require.Nil(h, h.request(1))
	h.sent()
}

// succeedAll plays a receiver for which all goes well.
func (h *harness) succeedAll(id uint64, sizes []uint32) {
	h.Helper()
	for i := range sizes {
		h.deliver(grant(id, sizes, uint32(i)))
		h.copied()
		h.written(ports.Success)
		h.deliver(ack(id, uint32(len(sizes)), uint32(i)))
	}
}

// activeRequest leaves request 1 with chunk 0 ACKed and chunk 1 gathered, without a credit.
func activeRequest(h *harness) *Handle {
	hd := h.submit(twoChunks...)
	h.copied()
	h.deliver(grant(1, twoChunks, 0))
	h.written(ports.Success)
	h.deliver(ack(1, 2, 0))
	h.expect(wire.TypeWant, wire.TypeData)
	return hd
}

// writtenRequest leaves request 1 with chunk 0 ACKed and chunk 1 written, its DATA sent.
func writtenRequest(h *harness) *Handle {
	hd := activeRequest(h)
	h.deliver(grant(1, twoChunks, 1))
	h.written(ports.Success)
	h.expect(wire.TypeData)
	return hd
}

// drainingRequest leaves request 1 failed with its DRAIN sent.
func drainingRequest(h *harness) *Handle {
	hd := writtenRequest(h)
	hd.Cancel()
	h.turn()
	require.Equal(h, &wire.Drain{Request: 1, Endpoint: []byte("mem:self")}, only[*wire.Drain](h))
	return hd
}

// unprovenRequest leaves request 1 failed while the write of chunk 1 is pending.
func unprovenRequest(h *harness) *Handle {
	hd := activeRequest(h)
	h.deliver(grant(1, twoChunks, 1))
	hd.Cancel()
	h.turn()
	h.silent()
	return hd
}

func TestSenderNotTracked(t *testing.T) {
	cell := func(name string, answer bool, m wire.Message) {
		t.Run(name, func(t *testing.T) {
			h := withPeer(t)
			forgottenRequest(h)
			h.deliver(m)
			if answer {
				require.EqualValues(t, 1, only[*wire.Drain](h).Request)
			} else {
				h.silent()
			}
		})
	}
	cell("GRANT is DRAIN", true, grant(1, twoChunks, 0))
	cell("ACK is nothing", false, ack(1, 2, 0))
	cell("ACK queued is nothing", false, queued(1, 2))
	for _, reason := range []wire.Reason{1, 2, 3, 4, 5, 6, 8, 9, 10, 11} {
		cell("NACK "+reason.String()+" is DRAIN", true, nackWhole(1, reason))
	}
	cell("NACK 7 is nothing", false, nackWhole(1, wire.ReasonScatterFailed))
	cell("DRAIN_ACK is nothing", false, drained(1))

	for name, m := range map[string]wire.Message{"GRANT": grant(2, twoChunks, 0), "NACK": nackWhole(2, wire.ReasonExpired)} {
		t.Run(name+" for a number that was never drawn is counted", func(t *testing.T) {
			h := withPeer(t)
			forgottenRequest(h)
			h.deliver(m)
			h.silent()
			require.EqualValues(t, 1, h.count(StrayFrames))
		})
	}
}

func TestSenderInProgress(t *testing.T) {
	t.Run("GRANT counts", func(t *testing.T) {
		h := withPeer(t)
		activeRequest(h)
		h.deliver(grant(1, twoChunks, 1))
		require.Len(t, h.pendingWrites(), 1)
		x := h.pendingWrites()[0]
		require.Equal(t, peerA, x.peer)
		require.Equal(t, grant(1, twoChunks, 1).Credits[0].Addr, x.remote[0].Addr)
		require.EqualValues(t, 8*kilo, x.remote[0].Bytes)
		require.Equal(t, x.remote[0].Bytes, x.local[0].Bytes)
	})
	for name, spoil := range map[string]func(*wire.Grant){
		"a chunk that has a credit": func(g *wire.Grant) { g.Credits[0] = grant(1, twoChunks, 0).Credits[0]; g.Credits[0].Region = 900 },
		"another length":            func(g *wire.Grant) { g.Credits[0].Length-- },
		"another number of chunks":  func(g *wire.Grant) { g.Chunks = 3 },
		"a chunk out of range":      func(g *wire.Grant) { g.Chunks = 3; g.Credits[0].Chunk = 2 },
	} {
		t.Run("GRANT for "+name+" is ignored", func(t *testing.T) {
			h := withPeer(t)
			activeRequest(h)
			g := grant(1, twoChunks, 1)
			spoil(g)
			h.deliver(g)
			h.silent()
			require.Empty(t, h.pendingWrites())
			require.EqualValues(t, 1, h.count(StaleGrants))
			require.Equal(t, requestActive, h.request(1).state)
		})
	}
	t.Run("GRANT again is ignored", func(t *testing.T) {
		h := withPeer(t)
		activeRequest(h)
		h.deliver(grant(1, twoChunks, 1), grant(1, twoChunks, 0, 1))
		require.Len(t, h.pendingWrites(), 1)
		require.Zero(t, h.count(StaleGrants), "a repeated GRANT is usual")
	})
	t.Run("ACK counts", func(t *testing.T) {
		h := withPeer(t)
		hd := writtenRequest(h)
		h.deliver(ack(1, 2, 1))
		require.Equal(t, Succeeded, hd.Status())
		require.True(t, hd.IsQuiesced())
		require.Nil(t, h.request(1))
		h.silent()
		h.zero()
	})
	t.Run("ACK again is ignored", func(t *testing.T) {
		h := withPeer(t)
		hd := activeRequest(h)
		h.deliver(ack(1, 2, 0), ack(1, 2, 0))
		require.Equal(t, InProgress, hd.Status())
	})
	for name, a := range map[string]*wire.Ack{
		"another region":           {Request: 1, Region: 999, Chunk: 1, Chunks: 2},
		"another number of chunks": {Request: 1, Region: regionOf(1), Chunk: 1, Chunks: 3},
	} {
		t.Run("ACK with "+name+" is ignored", func(t *testing.T) {
			h := withPeer(t)
			hd := writtenRequest(h)
			h.deliver(a)
			require.Equal(t, InProgress, hd.Status())
			require.EqualValues(t, 1, h.count(StaleAcks))
		})
	}
	t.Run("ACK before DATA is ignored", func(t *testing.T) {
		h := withPeer(t)
		hd := activeRequest(h)
		h.deliver(grant(1, twoChunks, 1), ack(1, 2, 1))
		require.Equal(t, InProgress, hd.Status())
		require.EqualValues(t, 1, h.count(StaleAcks))
		h.written(ports.Success)
		h.expect(wire.TypeData)
	})
	t.Run("ACK queued slows the repeats", func(t *testing.T) {
		h := withPeer(t)
		h.submit(twoChunks...)
		h.copied()
		h.expect(wire.TypeWant)
		h.deliver(queued(1, 2))
		require.InDelta(t, 2*time.Second, h.until(3*time.Second), float64(500*ms))
		h.expect(wire.TypeWant)
	})
	t.Run("ACK queued with a credit in hand is old", func(t *testing.T) {
		h := withPeer(t)
		h.submit(twoChunks...)
		h.copied()
		h.deliver(grant(1, twoChunks, 0), queued(1, 2))
		h.written(ports.Success)
		h.expect(wire.TypeWant, wire.TypeData)
		require.Less(t, h.until(time.Second), 30*ms)
		h.expect(wire.TypeWant, wire.TypeData)
	})
	for reason := wire.Reason(1); reason <= 11; reason++ {
		if reason == wire.ReasonOverloaded {
			continue
		}
		t.Run("NACK "+reason.String()+" fails the request", func(t *testing.T) {
			h := withPeer(t)
			hd := writtenRequest(h)
			h.deliver(&wire.Nack{Request: 1, Region: regionOf(1), Chunk: 1, Chunks: 2, Reason: reason, Text: "why"})
			f := h.failedBecause(hd, ErrRefused)
			require.Equal(t, reason, f.Reason)
			require.Equal(t, "why", f.Text)
			require.EqualValues(t, 1, f.Request)
			require.Equal(t, peerA, f.Peer)
			h.expect(wire.TypeDrain)
			require.False(t, hd.IsQuiesced())
		})
		t.Run("NACK "+reason.String()+" for an ACKed chunk is ignored", func(t *testing.T) {
			h := withPeer(t)
			hd := activeRequest(h)
			h.deliver(&wire.Nack{Request: 1, Region: regionOf(0), Chunk: 0, Chunks: 2, Reason: reason})
			require.Equal(t, InProgress, hd.Status())
			h.silent()
		})
	}
	t.Run("NACK 9 is WANT again after back-off", func(t *testing.T) {
		h := withPeer(t)
		hd := h.submit(twoChunks...)
		h.copied()
		h.expect(wire.TypeWant)
		for _, wait := range []time.Duration{20, 40, 80, 160, 320, 640, 1280, 2000, 2000} {
			h.deliver(nackWhole(1, wire.ReasonOverloaded))
			require.InDelta(t, wait*ms, h.until(3*time.Second), float64(wait*ms/4+ms))
			h.expect(wire.TypeWant)
		}
		require.Equal(t, InProgress, hd.Status())
	})
	t.Run("NACK 9 is no progress", func(t *testing.T) {
		h := withPeer(t)
		hd := h.submit(twoChunks...)
		h.copied()
		for range 29 {
			h.tick(time.Second)
			h.deliver(nackWhole(1, wire.ReasonOverloaded))
		}
		require.Equal(t, InProgress, hd.Status())
		h.tick(time.Second)
		h.failedBecause(hd, ErrTimeout)
	})
	t.Run("DRAIN_ACK is nothing", func(t *testing.T) {
		h := withPeer(t)
		hd := writtenRequest(h)
		h.deliver(drained(1))
		require.Equal(t, InProgress, hd.Status())
		require.NotNil(t, h.request(1))
		h.silent()
	})
}

func TestSenderDraining(t *testing.T) {
	ignored := func(name string, m wire.Message) {
		t.Run(name+" is ignored", func(t *testing.T) {
			h := withPeer(t)
			hd := drainingRequest(h)
			h.deliver(m)
			h.silent()
			require.False(t, hd.IsQuiesced())
			require.NotNil(t, h.request(1))
		})
	}
	ignored("ACK", ack(1, 2, 1))
	ignored("ACK queued", queued(1, 2))
	for _, reason := range []wire.Reason{1, 2, 3, 4, 5, 6, 8, 9, 11} {
		ignored("NACK "+reason.String(), nackWhole(1, reason))
	}
	t.Run("GRANT is DRAIN again: the receiver admitted a WANT that DRAIN overtook", func(t *testing.T) {
		h := withPeer(t)
		hd := drainingRequest(h)
		h.deliver(grant(1, twoChunks, 1))
		h.expect(wire.TypeDrain)
		require.False(t, hd.IsQuiesced())
	})
	t.Run("GRANT before the proof is ignored", func(t *testing.T) {
		h := withPeer(t)
		unprovenRequest(h)
		h.deliver(grant(1, twoChunks, 1))
		h.silent()
		h.written(ports.Success)
		h.expect(wire.TypeDrain)
	})
	t.Run("GRANT starts nothing", func(t *testing.T) {
		h := withPeer(t)
		hd := h.submit(twoChunks...)
		h.copied()
		hd.Cancel()
		h.turn()
		h.deliver(grant(1, twoChunks, 0, 1))
		h.expect(wire.TypeWant, wire.TypeDrain, wire.TypeDrain)
		require.Empty(t, h.engine.transfers)
	})
	t.Run("NACK 10 is DRAIN at once", func(t *testing.T) {
		h := withPeer(t)
		drainingRequest(h)
		h.deliver(nackWhole(1, wire.ReasonExpired))
		h.expect(wire.TypeDrain)
	})
	t.Run("NACK 10 is DRAIN as soon as proven", func(t *testing.T) {
		h := withPeer(t)
		unprovenRequest(h)
		h.deliver(nackWhole(1, wire.ReasonExpired))
		h.silent()
		h.written(ports.Success)
		h.expect(wire.TypeDrain)
	})
	t.Run("NACK 7 after DRAIN is the next DRAIN in 60 s, until DRAIN_ACK", func(t *testing.T) {
		h := withPeer(t)
		hd := drainingRequest(h)
		h.deliver(nackWhole(1, wire.ReasonScatterFailed))
		for i := range 4 {
			require.Equal(t, time.Minute, h.until(2*time.Minute))
			h.expect(wire.TypeDrain)
			if i != 1 { // a lost answer changes nothing
				h.deliver(nackWhole(1, wire.ReasonScatterFailed))
			}
		}
		require.False(t, hd.IsQuiesced())
		h.deliver(drained(1))
		require.True(t, hd.IsQuiesced())
		require.Nil(t, h.request(1))
	})
	t.Run("NACK 7 for a chunk does not slow DRAIN", func(t *testing.T) {
		h := withPeer(t)
		drainingRequest(h)
		h.deliver(&wire.Nack{Request: 1, Region: 1, Chunk: 0, Chunks: 2, Reason: wire.ReasonScatterFailed})
		h.silent()
		h.tick(3 * time.Second)
		require.NotEmpty(t, h.sent(), "the next DRAIN comes in its usual time")
	})
	t.Run("NACK 7 before DRAIN is ignored", func(t *testing.T) {
		h := withPeer(t)
		unprovenRequest(h)
		h.deliver(nackWhole(1, wire.ReasonScatterFailed))
		h.written(ports.Success)
		h.expect(wire.TypeDrain)
		require.Less(t, h.until(time.Second), 70*ms)
		h.expect(wire.TypeDrain)
	})
	t.Run("DRAIN_ACK after DRAIN is quiesced", func(t *testing.T) {
		h := withPeer(t)
		hd := drainingRequest(h)
		require.False(t, hd.IsQuiesced())
		h.deliver(drained(1))
		require.True(t, hd.IsQuiesced())
		require.Equal(t, Failed, hd.Status(), "logical failure stays failure")
		require.Nil(t, h.request(1))
		h.tick(10 * time.Second)
		h.silent()
		h.zero()
	})
	t.Run("DRAIN_ACK before DRAIN is ignored and counted", func(t *testing.T) {
		h := withPeer(t)
		hd := unprovenRequest(h)
		h.deliver(drained(1))
		require.EqualValues(t, 1, h.count(StrayFrames))
		require.NotNil(t, h.request(1))
		require.False(t, hd.IsQuiesced())
		h.written(ports.Success)
		h.expect(wire.TypeDrain)
	})
}
