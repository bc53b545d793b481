package wiring

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// waker lets any goroutine end the reactor's sleep. A wake that comes while the reactor is awake costs one atomic operation.
type waker struct {
	fd       int // eventfd
	asleep   atomic.Bool
	rung     atomic.Bool
	watched  []unix.PollFd // the eventfd and, if there is one, the control channel's descriptor
	readBack [8]byte
}

// newWaker makes a waker.
func newWaker() (*waker, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return &waker{fd: fd, watched: []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}}, nil
}

// watch adds a descriptor whose readability ends the sleep too.
func (w *waker) watch(fd int) {
	w.watched = append(w.watched, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
}

// wake ends the present sleep, or the next one before it begins.
func (w *waker) wake() {
	w.rung.Store(true)
	if w.asleep.Load() {
		one := [8]byte{1}
		_, _ = unix.Write(w.fd, one[:]) // EAGAIN: it is readable already
	}
}

// sleep waits until a wake, a watched descriptor, or the timeout; a negative one is for ever.
func (w *waker) sleep(timeout time.Duration) {
	w.asleep.Store(true)
	if !w.rung.Swap(false) {
		var ts *unix.Timespec
		if timeout >= 0 {
			t := unix.NsecToTimespec(int64(timeout))
			ts = &t
		}
		// An interrupted or failed wait is a short one: the reactor looks and comes back.
		_, _ = unix.Ppoll(w.watched, ts, nil)
		_, _ = unix.Read(w.fd, w.readBack[:])
		w.rung.Store(false)
	}
	w.asleep.Store(false)
}

func (w *waker) close() { _ = unix.Close(w.fd) }

// preciseTimers asks the kernel not to round this thread's short sleeps up: the default slack, 50 µs, is as long as the reactor's shortest wait.
func preciseTimers() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0) }
