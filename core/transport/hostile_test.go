package transport

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/ports"
)

// Sequences by which the transport was once broken.

// Memory that is deregistered while DATA for it is being checked, and whose scatter then has to queue, is not scattered into.
func TestDeregisteredWhileDataIsChecked(t *testing.T) {
	const at = 0x9000_0000
	for try := range 40 {
		h := withPeer(t)
		h.stuck = true
		h.gpu.contexts = 1
		h.deliver(dataFor(1, h.granted(1, 4*kilo)[0], 1)) // occupies the only context
		victim := []ports.Descriptor{{Addr: at, Bytes: 64 * kilo}, {Addr: at + 128*kilo, Bytes: 64 * kilo}}
		h.reg.Add(victim)
		c := h.granted(2, 64*kilo)[0]
		// Pieces on both sides of a gap: they are checked one by one, which takes a while.
		index := make([]uint32, 32*kilo)
		for i := range index {
			index[i] = uint32(i%2*128*kilo + i)
		}
		d := dataFor(2, c, 1)
		d.Runs = ports.Runs{Runs: []ports.Run{{Addr: at, Stride: 1, Step: 1, Piece: 1, Pieces: uint32(len(index))}}, Index: index}
		h.queue(d)
		go func() {
			time.Sleep(time.Duration(try*10) * time.Microsecond)
			h.reg.Remove(victim) // what Memory.Deregister does first
		}()
		h.turn()
		for h.reg.covers(victim[0]) {
			runtime.Gosched()
		}
		gone := false
		require.NoError(t, h.tr.Leave(victim, func(err error) { gone = err == nil }))
		h.turn()
		if !gone {
			continue
		}
		h.sent()
		h.copied() // the context becomes free
		for _, x := range h.gpu.running() {
			require.NotEqual(t, uint64(at), x.runs.Runs[0].Addr, "try %d: a scatter into deregistered memory", try)
		}
	}
}

// A short message can't make the check of its destinations long.
func TestChecksAreBounded(t *testing.T) {
	require.Greater(t, maxPieceChecks, plan.MaxChunkPieces)
	const n = 40 << 20
	var reg Registry
	reg.Add([]ports.Descriptor{{Addr: 0x1_0000_0000, Bytes: n - 1}})
	looked := 0
	runs := ports.Runs{Runs: []ports.Run{{Addr: 0x1_0000_0000, Stride: 1, Piece: 1, Pieces: n, Step: 1, Table: ports.NoTable}}}
	_, k, found := findPiece(runs, func(first, last uint64) bool {
		looked++
		return last > first // the hull
	})
	require.True(t, found)
	require.EqualValues(t, maxPieceChecks, k)
	require.Equal(t, 1+maxPieceChecks, looked)
	require.Error(t, reg.CheckDestinations(runs, ports.Place{}))
}

// slowClock says that every turn took a while.
type slowClock struct {
	h    *harness
	took time.Duration
}

func (c *slowClock) Now() ports.Instant { return c.h.now.Add(c.took) }

// withSlowTurns makes a transport that knows alpha and whose turns take as long as the clock says.
func withSlowTurns(t *testing.T, took time.Duration) (*harness, *slowClock) {
	h := newHarness(t)
	clock := &slowClock{h, took}
	h.opt.Clock = clock
	h.tr = New(h.opt)
	h.add(peerA)
	return h, clock
}

// Turns that always take long are not for ever pauses of the process: timers fire all the same.
func TestLongTurnsDoNotStopTimers(t *testing.T) {
	h, _ := withSlowTurns(t, 1100*time.Millisecond)
	hd := h.submit(4 * kilo)
	for range 80 {
		h.now = h.now.Add(1100 * time.Millisecond)
		h.turn()
	}
	h.failedBecause(hd, ErrTimeout)
}

// A process that is stopped in the middle of a turn was paused as well.
func TestPauseWithinATurn(t *testing.T) {
	h, clock := withSlowTurns(t, 0)
	hd := writtenRequest(h)
	clock.took = 70 * time.Second
	h.turn()
	require.EqualValues(t, 1, h.count(PausesSeen))
	h.now, clock.took = h.now.Add(clock.took), 0
	h.turn()
	require.EqualValues(t, 1, h.count(PausesSeen), "it is seen once")
	require.Equal(t, InProgress, hd.Status())
	h.tick(29 * time.Second)
	require.Equal(t, InProgress, hd.Status())
	h.tick(2 * time.Second)
	h.failedBecause(hd, ErrTimeout)
}

// A request that waits for its ready event ends with the incarnation that it was for, and with the transport.
func TestWaitingRequestsEnd(t *testing.T) {
	for name, end := range map[string]func(h *harness){
		"superseded": func(h *harness) { h.add(must(ports.NewIdentity("alpha", 0xA2))) },
		"closing":    func(h *harness) { h.tr.BeginClose(); h.turn() },
		"stopped":    func(h *harness) { h.tr.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			h := withPeer(t)
			h.stuck = name == "stopped"
			ready := &fakeEvent{}
			hd := h.submission(Submission{Peer: peerA, Chunks: []uint32{4 * kilo}, Ready: ready})
			d, err := h.tr.StartDirect(DirectSubmission{Peer: peerA, Bytes: 1, Ready: ready})
			require.NoError(t, err)
			h.turn()
			end(h)
			require.Equal(t, Failed, hd.Status())
			require.Equal(t, Failed, d.Status())
			require.True(t, hd.IsQuiesced())
		})
	}
}

// Whoever waits for memory that is still in use when the transport stops is told so.
func TestLeaveIsAnsweredAtStop(t *testing.T) {
	h := withPeer(t)
	h.stuck = true
	h.submit(4 * kilo)
	require.Len(t, h.gpu.running(), 1)
	var answer error
	require.NoError(t, h.tr.Leave([]ports.Descriptor{{Addr: sourceBase, Bytes: 4 * kilo}}, func(err error) { answer = err }))
	h.turn()
	h.tr.BeginClose()
	h.turn()
	h.tr.Stop()
	require.ErrorIs(t, answer, ErrClosing)
}

// A peer whose engine connection was dropped and could not be made again takes no notifications.
func TestNoticesToADisconnectedPeer(t *testing.T) {
	h := withPeer(t)
	h.stuck = true
	h.submit(4 * kilo)
	h.deliver(grant(1, []uint32{4 * kilo}, 0))
	h.copied()
	h.written(ports.FailedUnknown)
	h.engine.refuse = ports.ErrBadMetadata
	require.Error(t, h.addInfo(infoOf(peerA)))
	h.engine.notifyErr = ports.ErrUnknownPeer
	require.NoError(t, h.tr.Notify(peerA, []byte("x")))
	h.turn()
	require.Empty(t, h.tr.notices)
	require.EqualValues(t, 1, h.count(NotifiesDropped))
}

// The older of two incarnations is stale in whichever order their descriptions reach the reactor.
func TestOlderIncarnationIsStale(t *testing.T) {
	h := newHarness(t)
	young, old := infoOf(peerA), infoOf(must(ports.NewIdentity("alpha", 0xA2)))
	young.StartedUnixNS, old.StartedUnixNS = 2, 1
	var answers []error
	for _, info := range []PeerInfo{young, old} {
		require.NoError(t, h.tr.AddPeer(info, func(err error) { answers = append(answers, err) }))
	}
	h.turn()
	require.NoError(t, answers[0])
	require.ErrorIs(t, answers[1], ErrStale)
	old.Force = true
	require.NoError(t, h.addInfo(old), "unless forced")
}
