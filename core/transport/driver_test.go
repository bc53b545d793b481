package transport

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// drives is how often the engine was driven while that much time passed, if nobody polls more often than asked.
func (h *harness) drives(d time.Duration) int {
	before := h.engine.progressed
	h.pass(d, 1)
	return h.engine.progressed - before
}

// Who drives the engine (architecture.md, The reactor).
func TestDriver(t *testing.T) {
	t.Run("idle: not at all", func(t *testing.T) {
		h := withPeer(t)
		h.tick(time.Second)
		require.Equal(t, ports.Never, h.next)
		require.LessOrEqual(t, h.drives(time.Hour), 1)
	})
	for name, reach := range map[string]func(h *harness){
		"an open flow":   func(h *harness) { openFlow(h) },
		"a write":        func(h *harness) { writing(h) },
		"a direct write": func(h *harness) { h.direct(DirectSubmission{}) },
	} {
		t.Run(name+": every turn while things move, then every 1 ms", func(t *testing.T) {
			h := withPeer(t)
			reach(h)
			require.LessOrEqual(t, h.next.Sub(h.now), spinWait)
			turns := h.engine.progressed
			for range 10 {
				h.jump(time.Microsecond)
			}
			require.Equal(t, 10, h.engine.progressed-turns, "every turn")
			n := h.drives(100 * ms)
			require.InDelta(t, 2000, n, 20)
			require.InDelta(t, 1000, h.drives(time.Second), 20)
			h.deliver(drained(99))
			require.InDelta(t, 2000, h.drives(100*ms), 20, "a frame moves it")
		})
	}
	t.Run("a retained region: every 1 ms", func(t *testing.T) {
		h := withPeer(t)
		openFlow(h)
		h.tick(61 * time.Second)
		require.Equal(t, flowExpired, h.flow(5).state)
		require.InDelta(t, 1000, h.drives(time.Second), 20)
	})
	t.Run("a transfer in doubt: every 1 ms", func(t *testing.T) {
		h := withPeer(t)
		_, x := writing(h)
		x.end(ports.FailedUnknown)
		h.tick(time.Second)
		require.InDelta(t, 1000, h.drives(time.Second), 20)
	})
	t.Run("a target of direct transfers: every 1 ms, at rest every 5 ms", func(t *testing.T) {
		h := newHarness(t, func(s *Settings) { s.DirectRegistered = func() bool { return true } })
		require.InDelta(t, 1000, h.drives(time.Second), 20)
		require.InDelta(t, 200, h.drives(time.Second), 20)
		h.engine.moves = true
		h.tick(5 * ms)
		h.engine.moves = false
		require.InDelta(t, 1000, h.drives(time.Second-5*ms), 20)
		require.InDelta(t, 200, h.drives(time.Second), 20)
	})
	t.Run("a target whose engine drives itself: at rest only when something happened", func(t *testing.T) {
		h := newHarness(t, func(s *Settings) { s.DirectRegistered = func() bool { return true } })
		h.engine.rests = true
		h.tr.driver.rester = h.engine
		require.InDelta(t, 1000, h.drives(time.Second), 20)
		require.LessOrEqual(t, h.drives(time.Hour), 2)
		require.Equal(t, ports.Never, h.next)
		require.True(t, h.engine.resting)
		h.engine.moves = true // the engine wakes the reactor
		h.turn()
		require.False(t, h.engine.resting)
		h.engine.moves = false
		require.InDelta(t, 1000, h.drives(time.Second), 20)
		require.LessOrEqual(t, h.drives(time.Hour), 2)
		h.engine.rests = false // it can't any more
		h.turn()
		require.InDelta(t, 200, h.drives(time.Second), 20)
	})
	t.Run("an accepted notification: every turn for 1 s", func(t *testing.T) {
		h := withPeer(t)
		h.tick(time.Minute)
		require.NoError(t, h.tr.Notify(peerA, []byte("hello")))
		h.turn()
		require.InDelta(t, 20000, h.drives(time.Second), 100)
		h.tick(10 * ms)
		require.Equal(t, ports.Never, h.next)
	})
	t.Run("a flood of frames does not stop it", func(t *testing.T) {
		h := withPeer(t)
		h.tick(time.Minute)
		h.queue(want(5, 8))
		for range 3 * framesPerPoll {
			h.queue(drained(99))
		}
		before := h.engine.progressed
		for range 3 {
			h.turn()
		}
		require.GreaterOrEqual(t, h.engine.progressed-before, 2)
		h.expect(wire.TypeGrant)
	})
	t.Run("a waiting request is looked at every 1 ms", func(t *testing.T) {
		h := withPeer(t)
		ready := &fakeEvent{}
		h.submission(Submission{Peer: peerA, Chunks: twoChunks, Ready: ready})
		h.tick(time.Second)
		require.LessOrEqual(t, h.next.Sub(h.now), ms)
		ready.status = ports.CopyDone
		h.tick(ms)
		h.expect(wire.TypeWant)
	})
}
