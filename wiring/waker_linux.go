package wiring

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Sleeps of these lengths are left to Go's scheduler. A thread that sleeps in the kernel by itself wakes fastest, but while one does so for less than 10 ms at a time, as the reactor that
// drives an idle engine every 5 ms, Go's monitor thread (sysmon) wakes some thousand times a second to look after it, which takes 2 to 5 % of a core.
const (
	parkFrom = 2 * time.Millisecond
	parkTo   = 20 * time.Millisecond
)

// waker lets any goroutine end the reactor's sleep. A wake that comes while the reactor is awake costs one atomic operation.
type waker struct {
	fd       int // eventfd
	asleep   atomic.Bool
	rung     atomic.Bool
	open     sync.Mutex      // held to write to fd, or to close it
	watched  []unix.PollFd   // the eventfd and, if there is one, the control channel's descriptor
	together *os.File        // an epoll descriptor for the same, known to Go's scheduler
	ready    syscall.RawConn // of together
	events   [1]unix.EpollEvent
	readBack [8]byte
}

// newWaker makes a waker.
func newWaker() (_ *waker, err error) {
	w := &waker{}
	if w.fd, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	if err := w.openTogether(); err != nil {
		return nil, errors.Join(fmt.Errorf("epoll: %w", err), unix.Close(w.fd))
	}
	if err := w.watch(w.fd); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *waker) openTogether() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // or the scheduler would not take it
		return errors.Join(err, unix.Close(fd))
	}
	w.together = os.NewFile(uintptr(fd), "waker")
	if w.ready, err = w.together.SyscallConn(); err != nil {
		return errors.Join(err, w.together.Close())
	}
	return nil
}

// watch adds a descriptor whose readability ends the sleep too.
func (w *waker) watch(fd int) error {
	var err error
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if of := w.ready.Control(func(together uintptr) { err = unix.EpollCtl(int(together), unix.EPOLL_CTL_ADD, fd, &event) }); of != nil {
		err = of
	}
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	w.watched = append(w.watched, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	return nil
}

// wake ends the present sleep, or the next one before it begins.
func (w *waker) wake() {
	w.rung.Store(true)
	if !w.asleep.Load() {
		return
	}
	w.open.Lock()
	defer w.open.Unlock()
	if w.fd >= 0 {
		one := [8]byte{1}
		_, _ = unix.Write(w.fd, one[:]) // EAGAIN: it is readable already
	}
}

// sleep waits until a wake, a watched descriptor, or the timeout; a negative one is for ever. An interrupted or failed wait is a short one: the reactor looks and comes back.
func (w *waker) sleep(timeout time.Duration) {
	if timeout >= parkFrom && timeout < parkTo {
		w.sleepIn(w.park, timeout)
	} else {
		w.sleepIn(w.poll, timeout)
	}
}

// sleepIn sleeps in one of the two ways.
func (w *waker) sleepIn(way func(time.Duration), timeout time.Duration) {
	w.asleep.Store(true)
	if !w.rung.Swap(false) {
		way(timeout)
		_, _ = unix.Read(w.fd, w.readBack[:])
		w.rung.Store(false)
	}
	w.asleep.Store(false)
}

// poll sleeps in the kernel.
func (w *waker) poll(timeout time.Duration) {
	var ts *unix.Timespec
	if timeout >= 0 {
		t := unix.NsecToTimespec(int64(timeout))
		ts = &t
	}
	_, _ = unix.Ppoll(w.watched, ts, nil)
}

// park sleeps as a goroutine.
func (w *waker) park(timeout time.Duration) {
	_ = w.together.SetReadDeadline(time.Now().Add(timeout))
	_ = w.ready.Read(func(together uintptr) bool {
		n, err := unix.EpollWait(int(together), w.events[:], 0)
		return n > 0 || err != nil
	})
}

// close gives the descriptors back. Adapters that are left open in doubt may still call wake.
func (w *waker) close() {
	w.open.Lock()
	defer w.open.Unlock()
	_ = w.together.Close()
	_ = unix.Close(w.fd)
	w.fd = -1
}

// preciseTimers asks the kernel not to round this thread's short sleeps up: the default slack, 50 µs, is as long as the reactor's shortest wait.
func preciseTimers() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0) }
