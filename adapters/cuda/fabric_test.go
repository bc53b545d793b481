//go:build cuda

package cuda

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Where the driver has fabric memory, it is memory as any other; where it says so and gives none, or does not say so, arenas are plain memory. Asked for plain ones, nobody asks it.
func TestFabricMemory(t *testing.T) {
	d := openDevice(t)
	const size = 5<<20 + 1
	m, err := d.allocateFabric(size)
	t.Logf("offered: %t; given: %t, %v", d.offersFabric(), err == nil, err)
	if err == nil {
		require.Zero(t, m.base%arenaAlignment)
		require.EqualValues(t, size, m.Descriptor().Bytes)
		want := bytes.Repeat([]byte("fabric!"), size/7)
		require.NoError(t, m.Write(3, want[:size-3]))
		got := make([]byte, size-3)
		require.NoError(t, m.Read(3, got))
		require.True(t, bytes.Equal(want[:size-3], got))
		require.NoError(t, m.Free())
	} else {
		require.ErrorContains(t, err, "cuMem", "the call that failed")
	}
	for _, plain := range []bool{false, true} {
		var log strings.Builder
		c := newCompute(t, Config{Contexts: 1, PlainArenas: plain, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		a := newArena(t, c, size)
		require.NoError(t, d.Write(a.Base+size-1, []byte{1}))
		fabric := c.arenas[a.Base].fabric != nil
		require.Equal(t, !plain && d.offersFabric() && err == nil, fabric)
		require.Equal(t, fabric, strings.Contains(log.String(), "the arena is fabric memory"))
		require.Equal(t, !plain && d.offersFabric() && err != nil, strings.Contains(log.String(), "gives none"), log.String())
	}
}
