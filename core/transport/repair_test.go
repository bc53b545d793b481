package transport

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// backOff asserts that frames of these types, and no others, go out after each wait, within 25 %. heard lets the peer be heard of in between, by a frame that means nothing.
func (h *harness) backOff(heard bool, waits []time.Duration, types ...wire.Type) {
	h.Helper()
	for _, wait := range waits {
		if heard {
			h.deliver(drained(99))
		}
		require.InDelta(h, wait*ms, h.until(3*time.Minute), float64(wait*ms/4+ms))
		h.expect(types...)
	}
}

var (
	wantWaits  = []time.Duration{20, 40, 80, 160, 320, 640, 1280, 2000, 2000, 2000}
	drainWaits = []time.Duration{50, 100, 200, 400, 800, 1600, 2000, 2000, 2000}
)

func TestRepeats(t *testing.T) {
	for name, heard := range map[string]bool{"silent peer": false, "peer that is heard": true} {
		t.Run("WANT, "+name, func(t *testing.T) {
			h := withPeer(t)
			h.submit(twoChunks...)
			h.copied()
			h.expect(wire.TypeWant)
			h.backOff(heard, wantWaits, wire.TypeWant)
		})
		t.Run("DATA, "+name, func(t *testing.T) {
			h := withPeer(t)
			writtenRequest(h)
			h.backOff(heard, wantWaits, wire.TypeData)
		})
		t.Run("DRAIN, "+name, func(t *testing.T) {
			h := withPeer(t)
			drainingRequest(h)
			h.backOff(heard, drainWaits, wire.TypeDrain)
		})
	}
	t.Run("a re-sent WANT is the same but for oldest", func(t *testing.T) {
		h := withPeer(t)
		one := h.submit(4 * kilo)
		h.submission(Submission{Peer: peerA, Chunks: twoChunks, Token: 7})
		first := h.expect(wire.TypeWant, wire.TypeWant)[1].msg.(*wire.Want)
		h.copied()
		h.deliver(queued(1, 1))
		h.succeedAll(1, []uint32{4 * kilo})
		require.Equal(t, Succeeded, one.Status())
		h.sent()
		h.deliver(drained(99))
		h.until(time.Second)
		again := only[*wire.Want](h)
		require.EqualValues(t, 1, first.Oldest)
		first.Oldest = 2
		require.Equal(t, first, again)
	})
	t.Run("DATA is the same", func(t *testing.T) {
		h := withPeer(t)
		h.submit(8 * kilo)
		h.copied()
		h.deliver(grant(1, twoChunks[:1], 0))
		h.written(ports.Success)
		first := h.expect(wire.TypeWant, wire.TypeData)[1].msg
		h.until(time.Second)
		require.Equal(t, first, only[*wire.Data](h))
	})
}

func TestProgressRestartsRepeats(t *testing.T) {
	for name, step := range map[string]func(h *harness){
		"a credit":       func(h *harness) { h.deliver(grant(1, twoChunks, 0)) },
		"a first gather": func(h *harness) { h.tr.peers[peerA].requests[1].h.Planned(planned(1, 8*kilo), 0); h.turn() },
	} {
		t.Run(name, func(t *testing.T) {
			h := withPeer(t)
			hd := h.start(Submission{Peer: peerA, Chunks: twoChunks})
			hd.Planned(planned(0, 8*kilo), 0)
			h.turn()
			h.expect(wire.TypeWant)
			h.backOff(true, wantWaits, wire.TypeWant)
			step(h)
			h.backOff(true, wantWaits[:4], wire.TypeWant)
		})
	}
	t.Run("a write", func(t *testing.T) {
		h := withPeer(t)
		h.submit(8 * kilo)
		h.deliver(grant(1, twoChunks[:1], 0))
		h.copied()
		h.sent()
		h.tick(10 * time.Second)
		h.silent() // every credit is there, and there is no DATA yet
		h.written(ports.Success)
		h.expect(wire.TypeData)
		h.backOff(true, wantWaits[:4], wire.TypeData)
	})
	t.Run("an ACK of a chunk", func(t *testing.T) {
		h := withPeer(t)
		h.submit(twoChunks...)
		h.copied()
		h.deliver(grant(1, twoChunks, 0, 1))
		h.written(ports.Success)
		h.expect(wire.TypeWant, wire.TypeData, wire.TypeData)
		h.backOff(true, wantWaits, wire.TypeData, wire.TypeData)
		h.deliver(ack(1, 2, 0))
		h.backOff(true, wantWaits[:4], wire.TypeData)
	})
	t.Run("not a frame that changes nothing", func(t *testing.T) {
		h := withPeer(t)
		writtenRequest(h)
		h.backOff(true, wantWaits[:5], wire.TypeData)
		h.deliver(ack(1, 2, 0), grant(1, twoChunks, 1))
		require.Greater(t, h.until(3*time.Second), 400*ms)
	})
}

// To a silent peer one frame a step is repeated, of its requests in turn, and of each request its frames in turn.
func TestSilentPeerGetsOneFrameAStep(t *testing.T) {
	h := withPeer(t)
	const requests = 20
	for range requests {
		h.submit(4 * kilo)
	}
	h.copied()
	require.Len(t, h.sent(), requests)
	frames, seen := 0, map[uint64]bool{}
	began := h.now
	for h.now.Sub(began) < 25*time.Second {
		h.tick(ms)
		for _, f := range h.sent() {
			frames++
			seen[f.msg.(*wire.Want).Request] = true
		}
	}
	// Steps of 20 ms doubling to 2 s: 7 in the first 2.5 s, then one in 2 s or a little more.
	require.InDelta(t, 7+11, frames, 4)
	require.Greater(t, len(seen), frames*2/3, "in turn")

	// When it is heard again, all of them may speak again.
	h.deliver(drained(99))
	h.tick(4 * time.Second)
	require.Greater(t, len(h.sent()), 3)
}

func TestSilentPeerGetsWantAndDataInTurn(t *testing.T) {
	h := withPeer(t)
	sizes := []uint32{4 * kilo, 4 * kilo, 4 * kilo}
	h.submit(sizes...)
	h.copied()
	h.deliver(grant(1, sizes, 0, 2))
	h.written(ports.Success)
	h.expect(wire.TypeWant, wire.TypeData, wire.TypeData)
	h.until(time.Second)
	h.expect(wire.TypeWant, wire.TypeData, wire.TypeData) // the first repeat: the peer has just been heard
	var got []wire.Type
	for range 6 {
		h.until(3 * time.Second)
		out := h.sent()
		require.Len(t, out, 1)
		got = append(got, typeOf(out[0].msg))
	}
	require.Equal(t, []wire.Type{wire.TypeWant, wire.TypeData, wire.TypeData, wire.TypeWant, wire.TypeData, wire.TypeData}, got)
}

// Beyond 1024 frames since the peer's last one, one frame goes every 2 s.
func TestTrickleToAPeerThatNeverAnswers(t *testing.T) {
	h := withPeer(t)
	for range maxUnanswered + 50 {
		h.submit(1)
	}
	require.Len(t, h.sent(), maxUnanswered+1)
	require.EqualValues(t, 49, h.count(SendsFull))
	h.tick(10 * time.Second)
	require.LessOrEqual(t, len(h.sent()), 5)
	h.deliver(drained(1 << 40))
	h.tick(2 * time.Second)
	require.Greater(t, len(h.sent()), 5)
}

func TestNoProgressTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		reach func(h *harness) *Handle
		drain bool // nothing is unproven: DRAIN leaves at once
	}{
		"no answer":      {func(h *harness) *Handle { return h.submit(twoChunks...) }, true},
		"no second plan": {func(h *harness) *Handle { return h.start(Submission{Peer: peerA, Chunks: twoChunks}) }, true},
		"no grant":       {activeRequest, true},
		"no ACK":         {writtenRequest, true},
		"no write": {func(h *harness) *Handle {
			hd := h.submit(twoChunks...)
			h.copied()
			h.deliver(grant(1, twoChunks, 0))
			return hd
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := withPeer(t)
			hd := c.reach(h)
			h.turn()
			h.tick(30*time.Second - ms)
			require.Equal(t, InProgress, hd.Status())
			h.sent()
			h.tick(ms)
			f := h.failedBecause(hd, ErrTimeout)
			require.Contains(t, f.Error(), "30s")
			require.Contains(t, f.Error(), string(peerA))
			if c.drain {
				require.NotEmpty(t, h.sent())
			} else {
				h.silent()
			}
		})
	}
	t.Run("to be queued is none", func(t *testing.T) {
		h := withPeer(t)
		hd := h.submit(twoChunks...)
		h.copied()
		for range 29 {
			h.tick(time.Second)
			h.deliver(&wire.Ack{Request: 1, Chunk: wire.WholeRequest, Chunks: 2})
		}
		require.Equal(t, InProgress, hd.Status())
		h.tick(time.Second)
		h.failedBecause(hd, ErrTimeout)
	})
	t.Run("progress restarts it", func(t *testing.T) {
		h := withPeer(t)
		hd := h.submit(twoChunks...)
		h.copied()
		h.tick(29 * time.Second)
		h.deliver(grant(1, twoChunks, 0))
		h.tick(29 * time.Second)
		h.written(ports.Success)
		h.tick(29 * time.Second)
		h.deliver(ack(1, 2, 0))
		h.tick(30*time.Second - ms)
		require.Equal(t, InProgress, hd.Status())
		h.tick(ms)
		h.failedBecause(hd, ErrTimeout)
	})
	t.Run("the peer's timeout holds", func(t *testing.T) {
		h := newHarness(t)
		info := infoOf(peerA)
		info.RequestTimeout = 5 * time.Second
		require.NoError(t, h.addInfo(info))
		hd := h.submit(twoChunks...)
		h.tick(5 * time.Second)
		h.failedBecause(hd, ErrTimeout)
	})
}

// A lost GRANT is repaired by WANT, a lost DATA or ACK by DATA; a queue that is full loses frames alike.
func TestFullQueueLosesNoRequest(t *testing.T) {
	h := withPeer(t)
	h.channel.full = true
	hd := h.submit(8 * kilo)
	h.copied()
	h.silent()
	require.EqualValues(t, 1, h.count(SendsFull))
	h.channel.full = false
	h.until(time.Second)
	h.expect(wire.TypeWant)
	h.deliver(grant(1, twoChunks[:1], 0))
	h.channel.full = true
	h.written(ports.Success)
	h.silent()
	h.channel.full = false
	h.until(time.Second)
	h.expect(wire.TypeData)
	h.deliver(ack(1, 1, 0))
	require.Equal(t, Succeeded, hd.Status())
}

// A Poll that comes more than a second late moves every deadline by the excess, and takes in the evidence first.
func TestPause(t *testing.T) {
	t.Run("a request timeout", func(t *testing.T) {
		h := withPeer(t)
		hd := writtenRequest(h)
		h.tick(29 * time.Second)
		h.jump(70 * time.Second)
		require.Equal(t, InProgress, hd.Status())
		require.EqualValues(t, 1, h.count(PausesSeen))
		h.tick(500 * ms)
		require.Equal(t, InProgress, hd.Status())
		h.tick(2 * time.Second)
		h.failedBecause(hd, ErrTimeout)
	})
	t.Run("the evidence that waits in the socket counts", func(t *testing.T) {
		h := withPeer(t)
		hd := writtenRequest(h)
		h.tick(29 * time.Second)
		h.queue(ack(1, 2, 1))
		h.jump(70 * time.Second)
		require.Equal(t, Succeeded, hd.Status())
	})
	t.Run("a lease", func(t *testing.T) {
		h := withPeer(t)
		openFlow(h)
		h.tick(59 * time.Second)
		h.jump(300 * time.Second)
		require.Equal(t, flowOpen, h.flow(5).state)
		h.tick(2 * time.Second)
		require.Equal(t, flowExpired, h.flow(5).state)
	})
	t.Run("less than a second is no pause", func(t *testing.T) {
		h := withPeer(t)
		hd := writtenRequest(h)
		h.tick(30*time.Second - 500*ms)
		h.jump(500 * ms)
		require.Zero(t, h.count(PausesSeen))
		h.failedBecause(hd, ErrTimeout)
	})
	t.Run("evidence of the same turn comes before a deadline", func(t *testing.T) {
		h := withPeer(t)
		hd := writtenRequest(h)
		h.tick(30*time.Second - ms)
		h.queue(ack(1, 2, 1))
		h.tick(ms)
		require.Equal(t, Succeeded, hd.Status())
	})
	t.Run("an idle agent has no deadline to be late for", func(t *testing.T) {
		h := withPeer(t)
		h.tick(200 * ms)
		require.Equal(t, ports.Never, h.next)
		h.jump(time.Hour)
		require.Zero(t, h.count(PausesSeen))
	})
	t.Run("a flood does not let timers overtake evidence", func(t *testing.T) {
		h := withPeer(t)
		hd := writtenRequest(h)
		h.tick(30*time.Second - ms)
		for range framesPerPoll {
			h.queue(drained(99))
		}
		h.queue(ack(1, 2, 1))
		h.jump(ms)
		require.Equal(t, InProgress, hd.Status())
		require.Equal(t, h.now, h.next, "the next turn comes at once")
		h.turn()
		require.Equal(t, Succeeded, hd.Status())
	})
}

// A peer that never lets the channel run dry does not stop the clock of others.
func TestFloodDoesNotStopTimers(t *testing.T) {
	h := withPeer(t)
	hd := h.submit(twoChunks...)
	h.sent()
	for range 4 * maxUndrained {
		h.now = h.now.Add(900 * time.Millisecond)
		for range framesPerPoll + 1 {
			h.queue(ack(99, 2, 1))
		}
		h.turn()
	}
	h.failedBecause(hd, ErrTimeout)
}
