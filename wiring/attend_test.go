package wiring

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

func TestProcessorsAreKeptBusyOnlyNextToAGPU(t *testing.T) {
	before := runtime.GOMAXPROCS(attendFrom)
	defer runtime.GOMAXPROCS(before)
	require.True(t, attends(ports.Place{Kind: ports.Device}))
	require.False(t, attends(ports.Place{}))
	runtime.GOMAXPROCS(attendFrom - 1)
	require.False(t, attends(ports.Place{Kind: ports.Device}))
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
