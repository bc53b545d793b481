package nixl

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// However the thread waits, what is handed over before a ring is seen after a wait: none is lost.
func TestBellLosesNoRing(t *testing.T) {
	for name, rest := range map[string]func(n int) bool{
		"in C":     func(int) bool { return false },
		"parked":   func(int) bool { return true },
		"in turns": func(n int) bool { return n%3 == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			const rings = 2000
			b := newBell()
			var handed, seen atomic.Int64
			done := make(chan struct{})
			go func() {
				defer close(done)
				for n := 0; seen.Load() < rings; n++ {
					b.atRest = rest(n)
					b.wait()
					seen.Store(handed.Load())
				}
			}()
			for n := range int64(rings) {
				handed.Store(n + 1)
				b.ring()
				for limit := time.Now().Add(30 * time.Second); n%2 == 0 && seen.Load() <= n; runtime.Gosched() {
					require.True(t, time.Now().Before(limit), "ring %d was lost", n)
				}
			}
			select {
			case <-done:
			case <-time.After(30 * time.Second):
				require.Fail(t, "the last ring was lost")
			}
		})
	}
}

// A thread that waited for long is at rest; one that is needed again at once is not.
func TestBellRests(t *testing.T) {
	b := newBell()
	b.ring()
	b.atRest = true
	b.wait()
	require.False(t, b.atRest)
	timer := time.AfterFunc(2*restAfter, b.ring)
	defer timer.Stop()
	b.wait()
	require.True(t, b.atRest)
}
