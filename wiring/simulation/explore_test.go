package simulation

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExplorationIsComplete explores the smallest configuration whole. The others take longer: kvbounce sim --exhaustive.
func TestExplorationIsComplete(t *testing.T) {
	x := smallWorlds()[0].explore(100_000, Options{}, func() {})
	t.Logf("%s: %d executions, %d states", x.Name, x.Executions, x.States)
	require.Empty(t, x.Violations)
	require.True(t, *x.Complete)
	require.Greater(t, x.Executions, 100)
	require.NotZero(t, x.Requests.Succeeded)
	require.NotZero(t, x.Faults.Lost)
	require.NotZero(t, x.Faults.LateWrites)
}

// TestExplorationReplays sees that a run of an exploration can be written down and made again.
func TestExplorationReplays(t *testing.T) {
	small := smallWorlds()[0]
	e := &explorer{small: small, seen: map[[16]byte]struct{}{}}
	for range 50 {
		w := e.execute(Options{})
		if !e.stop {
			record, err := ParseRecord(newRecord(w).String(), Load)
			require.NoError(t, err)
			require.Equal(t, w.digestHex(), record.Replay(Options{}).Digest)
		}
		require.True(t, e.advance())
	}
}
