package transport

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/ports"
)

// direct submits a direct write to alpha, and returns its transfer once it was posted.
func (h *harness) direct(s DirectSubmission) (*Handle, *fakeTransfer) {
	h.Helper()
	s.Peer, s.Bytes = peerA, 4096
	s.Local = []ports.Descriptor{{Addr: sourceBase, Bytes: 4096}}
	s.Remote = []ports.Descriptor{{Addr: destBase, Bytes: 4096}}
	hd, err := h.tr.StartDirect(s)
	require.NoError(h, err)
	h.handles = append(h.handles, hd)
	posted := len(h.engine.transfers)
	h.turn()
	if len(h.engine.transfers) == posted {
		return hd, nil
	}
	return hd, h.engine.transfers[posted]
}

func TestDirect(t *testing.T) {
	t.Run("success", func(t *testing.T) {
		h := withPeer(t)
		hd, x := h.direct(DirectSubmission{Notify: []byte("done")})
		require.False(t, x.read)
		require.Equal(t, PathDirect, hd.Path())
		require.Zero(t, h.tr.Totals().Blocks)
		require.False(t, hd.IsSourceReleased())
		x.end(ports.Success)
		h.turn()
		require.Equal(t, Succeeded, hd.Status())
		require.True(t, hd.IsQuiesced())
		require.True(t, x.released)
		h.turn()
		require.Equal(t, []string{"done"}, h.engine.notified)
		h.silent()
	})
	t.Run("read", func(t *testing.T) {
		h := withPeer(t)
		_, x := h.direct(DirectSubmission{Read: true})
		require.True(t, x.read)
	})
	for status, kind := range map[ports.TransferStatus]error{ports.FailedNothingPosted: ports.ErrNothingPosted, ports.FailedEnded: errTest} {
		t.Run(status.String()+" is failed and quiesced", func(t *testing.T) {
			h := withPeer(t)
			hd, x := h.direct(DirectSubmission{Notify: []byte("never")})
			x.end(status)
			h.turn()
			require.ErrorIs(t, h.failedBecause(hd, ErrWriteFailed), kind)
			require.True(t, hd.IsQuiesced())
			h.turn()
			require.Empty(t, h.engine.notified)
			require.Nil(t, h.peer(peerA).info.Gate.Refusal())
		})
	}
	t.Run("without evidence both sides' memory is in doubt", func(t *testing.T) {
		h := withPeer(t)
		hd, x := h.direct(DirectSubmission{})
		other, y := h.direct(DirectSubmission{})
		ready := &fakeEvent{}
		waiting, _ := h.direct(DirectSubmission{Ready: ready})
		x.end(ports.FailedUnknown)
		h.turn()
		h.tick(10 * time.Second)
		h.failedBecause(hd, ErrWriteFailed)
		require.False(t, hd.IsSourceReleased())
		require.Equal(t, drain.Totals{Doubts: 1}, h.tr.Totals())
		require.NotEmpty(t, h.tr.CallerDoubts())
		require.ErrorIs(t, h.peer(peerA).info.Gate.Refusal(), ErrPeerInDoubt)
		require.EqualValues(t, 1, h.count(UnprovedWrites))
		h.failedBecause(other, ErrPeerInDoubt)
		require.False(t, other.IsQuiesced())
		h.failedBecause(waiting, ErrPeerInDoubt)
		require.True(t, waiting.IsQuiesced())
		y.end(ports.Success)
		h.turn()
		require.True(t, other.IsQuiesced())
		h.failedBecause(other, ErrPeerInDoubt)

		x.end(ports.Success)
		h.turn()
		require.True(t, hd.IsQuiesced())
		h.failedBecause(hd, ErrWriteFailed)
		require.Empty(t, h.tr.CallerDoubts())
	})
	t.Run("timeout, then late success", func(t *testing.T) {
		h := withPeer(t)
		hd, x := h.direct(DirectSubmission{Notify: []byte("never")})
		h.tick(30*time.Second - ms)
		require.Equal(t, InProgress, hd.Status())
		h.tick(2 * ms)
		h.failedBecause(hd, ErrTimeout)
		require.False(t, hd.IsSourceReleased())
		require.False(t, hd.IsQuiesced())
		require.Nil(t, h.peer(peerA).info.Gate.Refusal(), "a pending transfer is no doubt about the peer")
		h.tick(time.Minute)
		x.end(ports.Success)
		h.turn()
		require.True(t, hd.IsQuiesced())
		h.failedBecause(hd, ErrTimeout)
		require.EqualValues(t, 1, h.count(DirectFailed))
		require.Zero(t, h.count(DirectSucceeded))
	})
	t.Run("cancel", func(t *testing.T) {
		h := withPeer(t)
		hd, x := h.direct(DirectSubmission{})
		h.cancel(hd)
		h.cancel(hd)
		h.failedBecause(hd, ErrCancelled)
		require.False(t, hd.IsQuiesced())
		x.end(ports.FailedEnded)
		h.turn()
		require.True(t, hd.IsQuiesced())
		h.failedBecause(hd, ErrCancelled)
	})
	t.Run("cancel after success", func(t *testing.T) {
		h := withPeer(t)
		hd, x := h.direct(DirectSubmission{})
		x.end(ports.Success)
		h.turn()
		h.cancel(hd)
		require.Equal(t, Succeeded, hd.Status())
	})
	for name, c := range map[string]struct {
		act  func(h *harness, hd *Handle, e *fakeEvent)
		kind error
	}{
		"fires":        {func(_ *harness, _ *Handle, e *fakeEvent) { e.status = ports.CopyDone }, nil},
		"fails":        {func(_ *harness, _ *Handle, e *fakeEvent) { e.status = ports.CopyFailed }, ErrGatherFailed},
		"cancel":       {func(_ *harness, hd *Handle, _ *fakeEvent) { hd.Cancel() }, ErrCancelled},
		"peer removed": {func(h *harness, _ *Handle, _ *fakeEvent) { h.remove(peerA) }, ErrPeerGone},
	} {
		t.Run("ready event: "+name, func(t *testing.T) {
			h := withPeer(t)
			ready := &fakeEvent{}
			hd, _ := h.direct(DirectSubmission{Ready: ready})
			h.tick(time.Minute)
			require.Empty(t, h.engine.transfers)
			require.Equal(t, InProgress, hd.Status())
			c.act(h, hd, ready)
			h.turn()
			if c.kind == nil {
				require.Len(t, h.engine.transfers, 1)
				h.tick(29 * time.Second)
				require.Equal(t, InProgress, hd.Status(), "the timeout begins with the post")
				return
			}
			h.turn()
			h.failedBecause(hd, c.kind)
			require.True(t, hd.IsQuiesced())
			require.Empty(t, h.engine.transfers)
		})
	}
	t.Run("unknown peer", func(t *testing.T) {
		h := newHarness(t)
		hd, x := h.direct(DirectSubmission{})
		require.Nil(t, x)
		h.failedBecause(hd, ErrUnknownPeer)
		require.True(t, hd.IsQuiesced())
	})
	t.Run("without bounce", func(t *testing.T) {
		h := newHarness(t)
		o := h.opt
		o.Control, o.Compute, o.Credits, o.Arena = nil, nil, nil, ports.Arena{}
		h.tr = New(o)
		info := infoOf(peerA)
		info.Endpoint = nil
		require.NoError(t, h.addInfo(info))
		hd, x := h.direct(DirectSubmission{})
		x.end(ports.FailedUnknown)
		h.turn()
		require.Equal(t, 1, h.tr.Totals().Doubts)
		x.end(ports.Success)
		h.turn()
		require.True(t, hd.IsQuiesced())
		h.remove(peerA)
		h.tick(time.Minute)
		require.Empty(t, h.tr.peers)
	})
}

// A notification is tried until the engine takes it.
func TestNotify(t *testing.T) {
	h := withPeer(t)
	h.engine.notifyErr = errTest
	require.NoError(t, h.tr.Notify(peerA, []byte("one")))
	require.NoError(t, h.tr.Notify(peerB, []byte("to nobody")))
	h.tick(100 * ms)
	require.False(t, h.tr.Quiet())
	h.engine.notifyErr = nil
	h.tick(ms)
	require.Equal(t, []string{"one"}, h.engine.notified)
	require.True(t, h.tr.Quiet())
	require.EqualValues(t, 1, h.count(NotifiesSent))
}
