package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
)

func TestSend(t *testing.T) {
	t.Run("is released with its source, before its success", func(t *testing.T) {
		r := newRig(t)
		q := r.request()
		h, gather := r.bounce()
		q.Send(h)
		require.Equal(t, Pending, q.RequireQuiescence())
		q.CancelLocal()
		r.turn()
		require.Equal(t, Pending, q.RequireQuiescence(), "a blocked gather reads the source")
		gather.copied = ports.CopyDone
		r.turn()
		require.Equal(t, Released, q.RequireQuiescence())
		require.Equal(t, transport.Failed, h.Status())
	})
	t.Run("without evidence about the arena alone stops nobody", func(t *testing.T) {
		r := newRig(t)
		q := r.request()
		h, gather := r.bounce()
		q.Send(h)
		gather.copied = ports.CopyDone
		r.turn()
		q.CancelLocal()
		r.pass(2*deadline, second)
		require.Equal(t, Released, q.RequireQuiescence())
		require.Empty(t, r.reports)
	})
	t.Run("with several writers waits for each", func(t *testing.T) {
		r := newRig(t)
		q := r.request()
		one, x := r.direct()
		two, y := r.direct()
		q.Send(one)
		q.Send(two)
		x.transfer = ports.FailedNothingPosted
		r.turn()
		require.Equal(t, transport.Failed, one.Status())
		require.Equal(t, Pending, q.RequireQuiescence())
		y.transfer = ports.Success
		r.turn()
		require.Equal(t, Released, q.RequireQuiescence())
	})
	t.Run("that is added after the cancel is kept all the same", func(t *testing.T) {
		r := newRig(t)
		q := r.request()
		q.CancelLocal()
		require.Equal(t, Released, q.RequireQuiescence())
		h, x := r.direct()
		q.Send(h)
		require.Equal(t, Pending, q.RequireQuiescence())
		q.CancelLocal()
		q.CancelLocal()
		r.turn()
		require.Equal(t, transport.Failed, h.Status())
		require.Equal(t, Pending, q.RequireQuiescence())
		x.transfer = ports.Success
		r.turn()
		require.Equal(t, Released, q.RequireQuiescence())
		q.CancelLocal()
		require.Equal(t, Released, q.RequireQuiescence(), "an abort of a request that is over")
	})
}

func TestReceive(t *testing.T) {
	t.Run("is released by local proof", func(t *testing.T) {
		r := newRig(t)
		q := r.request()
		w, scatters := r.window(0, 2)
		q.Receive(w)
		require.Equal(t, Pending, q.RequireQuiescence())
		require.True(t, w.IsClosed())
		scatters[0].copied = ports.CopyDone
		r.turn()
		require.Equal(t, Pending, q.RequireQuiescence(), "another writer's copy runs")
		scatters[1].copied = ports.CopyDone
		r.turn()
		require.Equal(t, Released, q.RequireQuiescence())
	})
	t.Run("is closed by the cancel", func(t *testing.T) {
		r := newRig(t)
		q := r.request()
		w, _ := r.window(0, 0)
		q.Receive(w)
		q.CancelLocal()
		require.True(t, w.IsQuiesced())
		require.Equal(t, Released, q.RequireQuiescence())
	})
}

func TestAllOrNothing(t *testing.T) {
	for name, last := range map[string]string{"the window": "send", "the transfer": "receive"} {
		t.Run(name+" alone releases nothing", func(t *testing.T) {
			r := newRig(t)
			q := r.request()
			h, x := r.direct()
			w, scatters := r.window(0, 1)
			q.Send(h)
			q.Receive(w)
			q.CancelLocal()
			r.turn()
			steps := []func(){func() { x.transfer = ports.Success }, func() { scatters[0].copied = ports.CopyDone }}
			if last == "send" {
				steps[0], steps[1] = steps[1], steps[0]
			}
			steps[0]()
			r.turn()
			require.Equal(t, Pending, q.RequireQuiescence())
			steps[1]()
			r.turn()
			require.Equal(t, Released, q.RequireQuiescence())
		})
	}
}

func TestDeadline(t *testing.T) {
	t.Run("a direct write without evidence is fatal in bounded time, once, with a report", func(t *testing.T) {
		r := newRig(t)
		q := r.request()
		h, x := r.direct()
		q.Send(h)
		x.transfer = ports.FailedUnknown
		r.turn()
		r.pass(deadline-second, second)
		require.Equal(t, Pending, q.RequireQuiescence())
		require.Empty(t, r.reports)
		q.CancelLocal()
		r.pass(second+200*time.Millisecond, 50*time.Millisecond)
		require.Equal(t, Fatal, q.RequireQuiescence(), "cancelling again does not set the deadline again")
		require.Len(t, r.reports, 1)
		require.Equal(t, "42", r.reports[0].Request)
		require.Len(t, r.reports[0].Doubts, 1)
		d := r.reports[0].Doubts[0]
		require.Equal(t, peer, d.Peer)
		require.EqualValues(t, 4096, d.Bytes)
		require.Equal(t, "source of a direct transfer", d.Part)
		require.InDelta(t, deadline.Seconds(), r.reports[0].Now.Sub(d.Since).Seconds(), 1)
		require.Contains(t, r.reports[0].String(), "request 42")
		require.Contains(t, r.reports[0].String(), "4096 bytes: source of a direct transfer, peer "+string(peer)+", for 5m")

		// It is final.
		x.transfer = ports.Success
		r.pass(second, second)
		require.Equal(t, Fatal, q.RequireQuiescence())
		_, err := r.manager.Request("43")
		require.ErrorIs(t, err, ErrFailStopped)
		r.manager.FailStop(Report{})
		require.Len(t, r.reports, 1)
	})
	t.Run("a copy that never ends is fatal", func(t *testing.T) {
		for name, start := range map[string]func(r *rig, q *Request){
			"gather":  func(r *rig, q *Request) { h, _ := r.bounce(); q.Send(h); q.CancelLocal() },
			"scatter": func(r *rig, q *Request) { w, _ := r.window(0, 1); q.Receive(w); q.CancelLocal() },
		} {
			t.Run(name, func(t *testing.T) {
				r := newRig(t)
				q := r.request()
				start(r, q)
				r.turn()
				r.pass(deadline+2*second, second)
				require.Equal(t, Fatal, q.RequireQuiescence())
				require.Len(t, r.reports, 1)
			})
		}
	})
	t.Run("does not start before the logical end", func(t *testing.T) {
		r := newRig(t)
		q := r.request()
		w, scatters := r.window(0, 1)
		q.Receive(w)
		r.pass(2*deadline, second)
		require.Empty(t, r.reports)
		scatters[0].copied = ports.CopyDone
		r.turn()
		require.Equal(t, Released, q.RequireQuiescence())
	})
	t.Run("waits for a settle delay that runs", func(t *testing.T) {
		r := newRig(t)
		q := r.request()
		h, x := r.direct()
		q.Send(h)
		x.transfer = ports.FailedUnknown
		r.turn()
		r.pass(deadline-second, second)
		require.NoError(t, r.tr.FencePeer(peer, func(transport.FenceReport) {}))
		r.turn()
		r.pass(settle-2*second, 5*time.Millisecond)
		require.Equal(t, Pending, q.RequireQuiescence())
		r.pass(3*second, 5*time.Millisecond)
		require.Equal(t, Released, q.RequireQuiescence())
		require.Empty(t, r.reports)
	})
	t.Run("requests that are over are forgotten without being asked", func(t *testing.T) {
		r := newRig(t)
		for range 100 {
			h, x := r.direct()
			r.request().Send(h)
			x.transfer = ports.Success
			r.turn()
		}
		r.pass(second, lookEvery)
		require.Empty(t, r.manager.open)
		require.Equal(t, ports.Never, r.manager.Poll(r.now))
	})
}
