package transport

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/ports"
)

// TestTimersAgainstModel arms, arms anew and stops timers at random; they come out when they are due and in the order of their instants.
func TestTimersAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h timers
		list := make([]timer, 12)
		armed := map[*timer]ports.Instant{}
		which := func(t *rapid.T) *timer { return &list[rapid.IntRange(0, len(list)-1).Draw(t, "timer")] }
		now := ports.Instant(0)
		t.Repeat(map[string]func(*rapid.T){
			"arm": func(t *rapid.T) {
				tm := which(t)
				armed[tm] = now + ports.Instant(rapid.Int64Range(0, 50).Draw(t, "wait"))
				h.arm(tm, armed[tm])
			},
			"stop": func(t *rapid.T) {
				tm := which(t)
				h.stop(tm)
				delete(armed, tm)
			},
			"pass": func(t *rapid.T) {
				now += ports.Instant(rapid.Int64Range(0, 30).Draw(t, "time"))
				last := ports.Instant(0)
				for tm := h.pop(now); tm != nil; tm = h.pop(now) {
					require.Equal(t, armed[tm], tm.at)
					require.LessOrEqual(t, last, tm.at)
					require.LessOrEqual(t, tm.at, now)
					last = tm.at
					delete(armed, tm)
				}
				for _, at := range armed {
					require.Greater(t, at, now)
				}
			},
			"": func(t *rapid.T) {
				require.Len(t, h, len(armed))
				first := ports.Never
				for tm, at := range armed {
					first = min(first, at)
					require.Same(t, tm, h[tm.slot-1])
				}
				require.Equal(t, first, h.next())
			},
		})
	})
}
