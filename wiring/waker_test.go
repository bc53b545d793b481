package wiring

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Each way of sleeping ends by a wake, by one that came before, by a watched descriptor, and by its timeout. A sleep that misses what should end it lasts until the test's own time is up.
func TestWaker(t *testing.T) {
	const timeout = time.Hour
	for name, way := range map[string]func(*waker) func(time.Duration){
		"in the kernel": func(w *waker) func(time.Duration) { return w.poll },
		"parked":        func(w *waker) func(time.Duration) { return w.park },
	} {
		t.Run(name, func(t *testing.T) {
			w, err := newWaker()
			require.NoError(t, err)
			defer w.close()
			fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
			require.NoError(t, err)
			defer func() { require.NoError(t, unix.Close(fd)) }()
			require.NoError(t, w.watch(fd))

			w.wake()
			w.sleepIn(way(w), timeout)
			for range 100 {
				timer := time.AfterFunc(100*time.Microsecond, w.wake)
				w.sleepIn(way(w), timeout)
				timer.Stop()
			}
			ready := []byte{1, 0, 0, 0, 0, 0, 0, 0}
			for range 3 {
				_, err = unix.Write(fd, ready)
				require.NoError(t, err)
				w.sleepIn(way(w), timeout)
				w.sleepIn(way(w), timeout) // it is still readable
				_, err = unix.Read(fd, make([]byte, 8))
				require.NoError(t, err)
			}
		})
	}
	w, err := newWaker()
	require.NoError(t, err)
	defer w.close()
	for _, timeout := range []time.Duration{0, time.Microsecond, parkFrom, parkTo} {
		w.sleep(timeout)
	}
}
