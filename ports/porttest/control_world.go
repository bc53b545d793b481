package porttest

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

const (
	// controlPatience is when a test gives up on something that must happen. Nothing is concluded from how long it took.
	controlPatience = 30 * time.Second
	// controlRepeat is when a frame is sent again: a channel may lose frames.
	controlRepeat = 300 * time.Millisecond
)

// controlWorld is a fixture in use. It knows every frame that was sent, so that recv can tell a damaged, partial or invented one; frames
// that come twice or in another order are all right.
type controlWorld struct {
	ControlFixture
	t       *testing.T
	sent    map[string]string // frame -> key of its sender
	arrived map[string]bool
	frames  uint64
}

func newControlWorld(t *testing.T, f ControlFixture) *controlWorld {
	w := &controlWorld{ControlFixture: f, t: t, sent: make(map[string]string), arrived: make(map[string]bool)}
	w.closeAtEnd(f.A)
	w.closeAtEnd(f.B)
	return w
}

func (w *controlWorld) closeAtEnd(end ControlEnd) ControlEnd {
	w.t.Cleanup(func() { require.NoError(w.t, end.Channel.Close()) })
	return end
}

func (w *controlWorld) open() ControlEnd { return w.closeAtEnd(w.Open(w.t)) }

func (w *controlWorld) reopen(endpoint []byte) ControlEnd {
	return w.closeAtEnd(w.Reopen(w.t, endpoint))
}

func (w *controlWorld) connect(from, to ControlEnd) {
	w.t.Helper()
	require.NoError(w.t, from.Channel.Connect(to.Identity, to.Channel.Endpoint()))
}

// frame makes a frame that differs from all others. It begins with the magic, as every frame on a shared channel must, and is full of NULs.
func (w *controlWorld) frame(bytes int) []byte {
	w.frames++
	return controlPattern(w.frames, bytes)
}

func controlPattern(number uint64, bytes int) []byte {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], number)
	source := rand.NewChaCha8(seed)
	frame := []byte(ports.FrameMagic)
	for len(frame) < bytes {
		frame = binary.LittleEndian.AppendUint64(frame, source.Uint64())
		frame = append(frame, 0)
	}
	return frame[:bytes]
}

func (w *controlWorld) send(from ControlEnd, to ports.Identity, frame []byte) ports.SendResult {
	w.sent[string(frame)] = from.Key
	return from.Channel.Send(to, frame)
}

// recvInto takes the next frame, if any, and checks it.
func (w *controlWorld) recvInto(at ControlEnd, buf []byte) ([]byte, bool) {
	w.t.Helper()
	frame, key, ok := at.Channel.Recv(buf)
	if !ok {
		return nil, false
	}
	require.LessOrEqual(w.t, len(frame), w.MaxFrame, "a frame above the limit came out")
	wantKey, sent := w.sent[string(frame)]
	require.True(w.t, sent, "a frame of %d bytes came out that was never sent", len(frame))
	require.Equal(w.t, wantKey, key, "the key that sent the frame")
	w.arrived[string(frame)] = true
	return frame, true
}

// drain takes everything that waits. Frames that are still under way may come later.
func (w *controlWorld) drain(at ControlEnd) {
	for ok := true; ok; {
		_, ok = w.recvInto(at, nil)
	}
}

// deliver sends a frame until it arrives.
func (w *controlWorld) deliver(from, to ControlEnd, frame []byte) (got []byte) {
	w.t.Helper()
	w.until("the frame", w.hasArrived(frame), func() {
		require.NotEqual(w.t, ports.NoPeer, w.send(from, to.Identity, frame))
	}, func() (ok bool) {
		got, ok = w.recvInto(to, nil)
		return ok
	})
	return got
}

func (w *controlWorld) hasArrived(frame []byte) func() bool {
	return func() bool { return w.arrived[string(frame)] }
}

// take receives at an end for until.
func (w *controlWorld) take(at ControlEnd) func() bool {
	return func() bool {
		_, ok := w.recvInto(at, nil)
		return ok
	}
}

// until sends, and sends again now and then, and receives until done says so. It stops at the frame that makes done true.
func (w *controlWorld) until(what string, done func() bool, send func(), receive func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(controlPatience)
	for repeat := time.Now(); !done(); {
		now := time.Now()
		require.True(w.t, now.Before(deadline), "%s did not arrive", what)
		if !now.Before(repeat) {
			send()
			repeat = now.Add(controlRepeat)
		}
		if !receive() {
			w.pause()
		}
	}
}

// pause lets other threads work, and drives what must be driven.
func (w *controlWorld) pause() {
	if w.Drive != nil {
		w.Drive()
	}
	time.Sleep(100 * time.Microsecond)
}

// fill sends to a peer that does not answer until its queue is full, which must come in time.
func (w *controlWorld) fill(from ControlEnd, to ports.Identity) {
	w.t.Helper()
	for range w.QueueFrames + 1 {
		switch w.send(from, to, w.frame(100)) {
		case ports.Accepted:
		case ports.Full:
			return
		default:
			require.FailNow(w.t, "the peer is connected and Send says that it is not")
		}
	}
	require.FailNow(w.t, "the queue is never full", "%d frames were taken", w.QueueFrames+1)
}

// snapshot is every frame that was sent so far.
func (w *controlWorld) snapshot() []string {
	frames := make([]string, 0, len(w.sent))
	for frame := range w.sent {
		frames = append(frames, frame)
	}
	return frames
}

// descriptors counts this process's open files, if the fixture's kind uses them.
func (w *controlWorld) descriptors() int {
	if !w.Descriptors {
		return 0
	}
	open, err := os.ReadDir("/proc/self/fd")
	require.NoError(w.t, err)
	return len(open)
}

// noMoreDescriptors waits until no more files are open than before; a channel may close them a moment later, in a thread of its own.
func (w *controlWorld) noMoreDescriptors(before int) {
	w.t.Helper()
	now := 0
	for deadline := time.Now().Add(controlPatience); time.Now().Before(deadline); w.pause() {
		if now = w.descriptors(); now <= before {
			return
		}
	}
	require.FailNow(w.t, "file descriptors were not given back", "%d before, %d now", before, now)
}
