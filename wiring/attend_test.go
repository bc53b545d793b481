package wiring

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

func TestProcessorsAreKeptBusyOnlyNextToAGPU(t *testing.T) {
	before := runtime.GOMAXPROCS(attendFrom)
	defer runtime.GOMAXPROCS(before)
	require.True(t, companions(ports.Place{Kind: ports.Device}))
	require.False(t, companions(ports.Place{}))
	runtime.GOMAXPROCS(attendFrom - 1)
	require.False(t, companions(ports.Place{Kind: ports.Device}))
}

// A condition that stays false is attended to for a moment, and one of two waiters sleeps at once.
func TestAttendantEnds(t *testing.T) {
	one := attendant()
	asked := 0
	one(func() bool { asked++; return false })
	require.Positive(t, asked)
	one(func() bool {
		one(func() bool { t.Error("two are awake"); return true })
		return true
	})
}

// The work runs once and before its wait returns, whether the companion is awake or has given up, and whether anybody waits or not.
func TestCompanion(t *testing.T) {
	var all sync.WaitGroup
	for _, late := range []bool{false, true} {
		for range 200 {
			beside := summon()
			if late {
				attend(func() bool { return false })
				runtime.Gosched()
			}
			var ran atomic.Int32
			result := 0
			all.Add(1)
			wait := beside(func() { defer all.Done(); result = 7; ran.Add(1) })
			if ran.Load() == 0 {
				runtime.Gosched()
			}
			wait()
			require.Equal(t, 7, result)
			require.EqualValues(t, 1, ran.Load())
		}
	}
	all.Wait()
	summon() // without work it ends by itself, as the leak check of the package sees
}
