package transport

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// inspection is what Inspect hands over in the next turn.
func (h *harness) inspection() (in Inspection) {
	h.Helper()
	require.NoError(h, h.tr.Inspect(func(i Inspection) { in = i }))
	h.turn()
	return in
}

func (in Inspection) arena() []uint64 { return []uint64{in.Free, in.Granted, in.Staging, in.Retained} }

func TestInspect(t *testing.T) {
	h := withPeer(t)
	h.add(peerB)
	began := h.now
	in := h.inspection()
	require.Equal(t, []uint64{arenaSize, 0, 0, 0}, in.arena())
	require.Equal(t, []PeerView{{Peer: peerA, Added: true}, {Peer: peerB, Added: true}}, in.Peers)

	pending, x := writing(h)
	_, dx := h.direct(DirectSubmission{})
	heard := h.now
	h.tick(time.Second)
	in = h.inspection()
	require.Equal(t, []uint64{arenaSize - 8*kilo, 0, 8 * kilo, 0}, in.arena())
	require.Equal(t, PeerView{Peer: peerA, Added: true, Heard: heard, Requests: 1, Held: drain.Totals{Blocks: 1, Bytes: 8 * kilo}}, in.Peers[0])
	require.Empty(t, in.Unproved, "what runs is in no doubt")

	// A cancelled request whose write is pending, and a direct transfer that timed out: nothing failed, and nothing proves their end.
	pending.Cancel()
	h.tick(40 * time.Second)
	in = h.inspection()
	unproved := []Doubt{{peerA, 0, "direct transfer", 4096, began}, {peerA, 1, "write", 8 * kilo, began}}
	require.Equal(t, unproved, in.Unproved)
	require.Equal(t, 1, in.Peers[0].Draining)

	// They fail without evidence.
	x.end(ports.FailedUnknown)
	dx.end(ports.FailedUnknown)
	failed := h.now
	h.turn()
	in = h.inspection()
	require.Equal(t, failed, in.Peers[0].Since)
	require.Equal(t, unproved, in.Unproved)
	require.EqualValues(t, 8*kilo, in.Retained)
	x.end(ports.Success)
	dx.end(ports.Success)
	h.turn()
	h.deliver(drained(1))
	require.Empty(t, h.inspection().Unproved)
	h.sent()

	// A peer's regions: granted, beyond its lease, and fenced.
	h.deliverFrom(peerB, &wire.Want{Request: 1, Oldest: 1, Endpoint: []byte("mem:" + string(peerB)), ChunkBytes: []uint32{8 * kilo, 8 * kilo}})
	in = h.inspection()
	require.EqualValues(t, 16*kilo, in.Granted)
	require.Equal(t, 1, in.Peers[1].Flows)
	require.Empty(t, in.Unproved)
	granted := h.now
	h.tick(61 * time.Second)
	unproved = []Doubt{{peerB, 1, "peer write", 8 * kilo, granted}, {peerB, 1, "peer write", 8 * kilo, granted}}
	require.Equal(t, unproved, h.inspection().Unproved)
	h.fenceOf(peerB)
	in = h.inspection()
	require.True(t, in.Peers[1].Settling)
	require.Equal(t, unproved, in.Unproved)
	h.pass(settleDelay+ms, ms)
	in = h.inspection()
	require.Len(t, in.Peers, 1)
	require.Equal(t, []uint64{arenaSize, 0, 0, 0}, in.arena())
	h.sent()
}

func TestInspectAfterTheEnd(t *testing.T) {
	h := newHarness(t)
	h.tr.Stop()
	require.ErrorIs(t, h.tr.Inspect(func(Inspection) { t.Error("called") }), ErrClosing)
}

// What is kept without evidence is logged once when it begins and once when it ends, however many turns it lasts; so is the refusal of bounce requests.
func TestRetentionIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	h := withPeer(t, func(s *Settings) { s.RetainLimit = 4 * kilo })
	h.tr.log = slog.New(slog.NewTextHandler(&log, nil))
	lines := func(text string) int { return strings.Count(log.String(), text) }
	const begins, ends = "memory is kept without evidence", "nothing of the peer is in doubt any more"
	const refused, taken = "no new bounce requests", "bounce requests are taken again"
	for round := 1; round <= 2; round++ {
		_, x := writing(h)
		x.end(ports.FailedUnknown)
		h.turn()
		h.tick(20 * time.Second)
		require.Equal(t, []int{round, round - 1, round, round - 1}, []int{lines(begins), lines(ends), lines(refused), lines(taken)})
		require.Contains(t, log.String(), "peer="+string(peerA)+" arena_bytes=8192 accesses=1")
		x.end(ports.Success)
		h.turn()
		h.deliver(drained(uint64(round)))
		h.tick(20 * time.Second)
		require.Equal(t, []int{round, round, round, round}, []int{lines(begins), lines(ends), lines(refused), lines(taken)})
		h.add(peerA)
		h.sent()
	}
}

// What a peer that is being fenced still holds is not a reason to fence it.
func TestRetentionOfAFencedPeer(t *testing.T) {
	var log bytes.Buffer
	h := withPeer(t)
	h.tr.log = slog.New(slog.NewTextHandler(&log, nil))
	openFlow(h)
	h.fence()
	h.tick(settleDelay / 2)
	require.Equal(t, 1, strings.Count(log.String(), "memory is kept until the peer's fence has settled"))
	h.tick(settleDelay)
	require.Zero(t, h.arena.LiveBlocks())
	require.NotContains(t, log.String(), "memory is kept without evidence")
}
