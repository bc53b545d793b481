package transport

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// revokingEngine ends a peer's access when the test says so.
type revokingEngine struct {
	*fakeEngine
	asked  []ports.Identity
	proven bool
}

func (e *revokingEngine) Revoke(p ports.Identity) {
	e.asked = append(e.asked, p)
	delete(e.connected, p)
}

func (e *revokingEngine) Revoked(ports.Identity) bool { return e.proven }

func revoking(t *testing.T) (*harness, *revokingEngine) {
	h := withPeer(t)
	e := &revokingEngine{fakeEngine: h.engine}
	h.tr.revoker = e
	return h, e
}

// revoke revokes alpha and returns where its end will be.
func (h *harness) revoke() *bool {
	h.Helper()
	done := new(bool)
	require.NoError(h, h.tr.RevokePeer(peerA, func(proven bool) { *done = proven }))
	h.turn()
	return done
}

func TestRevokePeer(t *testing.T) {
	t.Run("an engine that can't says so", func(t *testing.T) {
		require.ErrorIs(t, withPeer(t).tr.RevokePeer(peerA, nil), ErrNoRevoke)
	})
	t.Run("is evidence for writes, and then the request is drained as ever", func(t *testing.T) {
		h, e := revoking(t)
		doubted, x := writing(h)
		x.end(ports.FailedUnknown)
		h.turn()
		h.failedBecause(doubted, ErrWriteFailed)
		gate := h.peer(peerA).info.Gate
		done := h.revoke()
		require.Equal(t, []ports.Identity{peerA}, e.asked)
		require.ErrorIs(t, gate.Refusal(), ErrPeerGone)
		require.ErrorIs(t, h.addInfo(infoOf(peerA)), ErrRevoked, "not before it is over")
		h.tick(time.Hour)
		h.sent()
		require.False(t, *done)
		require.NotEmpty(t, h.tr.Unproved(), "time proves nothing")

		e.proven = true
		h.turn()
		require.True(t, *done)
		require.True(t, x.released)
		require.False(t, doubted.IsQuiesced(), "its copies at the receiver are not proven")
		h.expect(wire.TypeDrain)
		h.deliver(drained(1))
		require.True(t, doubted.IsQuiesced())
		require.Empty(t, h.tr.CallerDoubts())
		require.Zero(t, h.tr.Totals().Blocks)

		require.NoError(t, h.addInfo(infoOf(peerA)))
		require.Contains(t, h.engine.connected, peerA)
		require.Nil(t, h.peer(peerA).info.Gate.Refusal())
	})
	t.Run("a transfer that runs is over by it, and one to another peer is not", func(t *testing.T) {
		h, e := revoking(t)
		h.add(peerB)
		running, _ := h.direct(DirectSubmission{})
		other := h.start(Submission{Peer: peerB, Chunks: twoChunks})
		done := h.revoke()
		h.failedBecause(running, ErrRevoked)
		require.False(t, running.IsQuiesced())
		require.Equal(t, InProgress, other.Status())
		e.proven = true
		h.turn()
		require.True(t, *done)
		require.True(t, running.IsQuiesced())
		h.cancel(other)
		h.sent()
	})
	t.Run("frees what the peer was granted, once no copy of it runs", func(t *testing.T) {
		h, e := revoking(t)
		credits := openFlow(h)
		h.deliver(dataFor(5, credits[0], 2))
		h.revoke()
		require.Equal(t, 2, h.arena.LiveBlocks())
		e.proven = true
		h.turn()
		require.Equal(t, 1, h.arena.LiveBlocks(), "a scatter runs")
		h.copied()
		require.Zero(t, h.arena.LiveBlocks())
		h.sent()
		h.deliver(dataFor(5, credits[1], 2))
		h.expectNack(wire.ReasonUnknownFlow)
	})
	t.Run("of a peer that is not known is the engine's alone, and a second call waits for the first", func(t *testing.T) {
		h, e := revoking(t)
		ended := 0
		for range 2 {
			require.NoError(t, h.tr.RevokePeer(peerB, func(proven bool) {
				require.True(t, proven)
				ended++
			}))
		}
		h.turn()
		require.Equal(t, []ports.Identity{peerB}, e.asked)
		e.proven = true
		h.turn()
		require.Equal(t, 2, ended)
	})
	t.Run("when the agent stops first nothing is proven", func(t *testing.T) {
		h, _ := revoking(t)
		proven := true
		require.NoError(t, h.tr.RevokePeer(peerA, func(p bool) { proven = p }))
		h.turn()
		h.tr.Stop()
		require.False(t, proven)
		h.stuck = true
	})
}
