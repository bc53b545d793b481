package porttest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kvbounce/kvbounce/ports"
)

func controlSizes(w *controlWorld) {
	w.connect(w.A, w.B)
	w.connect(w.B, w.A)
	sizes := []int{len(ports.FrameMagic) + 1, 63, 64, 255, 256, 1000, w.MaxFrame - 1, w.MaxFrame}
	for _, size := range append(sizes, 4095, 4096, 65535, 65536, 1<<20) {
		if size > w.MaxFrame {
			continue
		}
		w.deliver(w.A, w.B, w.frame(size))
		w.deliver(w.B, w.A, w.frame(size))
	}
}

func controlCopies(w *controlWorld) {
	endpoint := append([]byte(nil), w.B.Channel.Endpoint()...)
	require.NoError(w.t, w.A.Channel.Connect(w.B.Identity, endpoint))
	clear(endpoint)
	frame := w.frame(500)
	w.until("a frame whose buffer was cleared after Send", w.hasArrived(frame), func() {
		mine := append([]byte(nil), frame...)
		w.send(w.A, w.B.Identity, mine)
		clear(mine)
	}, w.take(w.B))
}

func controlBuffers(w *controlWorld) {
	w.connect(w.A, w.B)
	roomy := make([]byte, 2000)
	for _, buf := range [][]byte{nil, {}, make([]byte, 1), make([]byte, 0, 100), roomy[:0], roomy[:1500], roomy} {
		frame := w.frame(300)
		var got []byte
		w.until("the frame", w.hasArrived(frame), func() { w.send(w.A, w.B.Identity, frame) }, func() (ok bool) {
			got, ok = w.recvInto(w.B, buf)
			return ok
		})
		require.Equal(w.t, frame, got)
		if cap(buf) >= len(frame) {
			require.Same(w.t, &buf[:1][0], &got[0], "the frame fits the buffer of %d bytes and did not go there", cap(buf))
		}
	}

	// What was given out stays as it is while later frames come into other buffers.
	first, second := w.frame(300), w.frame(300)
	kept := w.deliver(w.A, w.B, first)
	w.deliver(w.A, w.B, second)
	require.Equal(w.t, first, kept)
}

func controlOversize(w *controlWorld) {
	w.connect(w.A, w.B)
	w.deliver(w.A, w.B, w.frame(100))
	for _, size := range []int{w.MaxFrame + 1, 2 * w.MaxFrame} {
		// recv fails for every frame that does not come from send, so one that came out would be noticed.
		result := w.A.Channel.Send(w.B.Identity, controlPattern(uint64(size), size))
		require.NotEqual(w.t, ports.NoPeer, result)
		w.deliver(w.A, w.B, w.frame(100))
		w.deliver(w.A, w.B, w.frame(w.MaxFrame))
	}
}

func controlManyPeers(w *controlWorld) {
	const peers, rounds = 8, 20
	ends := []ControlEnd{w.A}
	for len(ends) < peers {
		ends = append(ends, w.open())
	}
	waiting := make(map[string]int) // frame -> its sender
	for i, end := range ends {
		w.connect(end, w.B)
		w.connect(w.B, end)
		for range rounds {
			frame := w.frame(200)
			waiting[string(frame)] = i
		}
	}
	w.until("a frame of each peer", func() bool { return len(waiting) == 0 }, func() {
		for frame, i := range waiting {
			w.send(ends[i], w.B.Identity, []byte(frame))
		}
	}, func() bool {
		frame, ok := w.recvInto(w.B, nil)
		delete(waiting, string(frame))
		return ok
	})
	for _, end := range ends {
		w.deliver(w.B, end, w.frame(200))
	}
}

// controlWaitFD waits as a reactor does: only after Recv answered that nothing waits, and with nothing but the descriptor to wake it.
func controlWaitFD(w *controlWorld) {
	w.connect(w.A, w.B)
	w.deliver(w.A, w.B, w.frame(100))
	if w.B.Channel.WaitFD() < 0 {
		w.deliver(w.A, w.B, w.frame(100))
		require.Equal(w.t, -1, w.B.Channel.WaitFD(), "a channel without a descriptor answers -1")
		return
	}
	for round := range 300 {
		burst := 1 + round%5
		waiting := make(map[string]bool)
		for range burst {
			waiting[string(w.frame(64))] = true
		}
		w.drain(w.B)
		for frame := range waiting {
			require.Equal(w.t, ports.Accepted, w.send(w.A, w.B.Identity, []byte(frame)))
		}
		for len(waiting) > 0 {
			if frame, ok := w.recvInto(w.B, nil); ok {
				delete(waiting, string(frame))
				continue
			}
			require.True(w.t, w.readable(w.B.Channel.WaitFD(), controlPatience),
				"round %d: %d of %d frames came, and the descriptor does not wake for the rest", round, burst-len(waiting), burst)
		}
	}
}

// readable waits for a descriptor, driving the world meanwhile.
func (w *controlWorld) readable(fd int, patience time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for deadline := time.Now().Add(patience); ; {
		slice := time.Until(deadline)
		if w.Drive != nil {
			w.Drive()
			slice = min(slice, time.Millisecond)
		}
		n, err := unix.Poll(fds, max(0, int(slice.Milliseconds())))
		if err == unix.EINTR {
			continue
		}
		require.NoError(w.t, err, "polling the channel's descriptor")
		if n > 0 {
			require.Zero(w.t, fds[0].Revents&unix.POLLNVAL, fmt.Sprintf("%d is no open descriptor", fd))
			return true
		}
		if !time.Now().Before(deadline) {
			return false
		}
	}
}
