package nixl

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is handed over before a ring is seen after a wait: none is lost.
func TestBellLosesNoRing(t *testing.T) {
	const rings = 2000
	var b bell
	var handed, seen atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for seen.Load() < rings {
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
}
