package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// One planner serves all cases, so that nothing of one request may show in the next.
func TestPlansMoveEveryByte(t *testing.T) {
	p := New()
	rapid.Check(t, func(t *rapid.T) {
		src, dst := anyLayout(t)
		lim := Limits{
			ChunkBytes: rapid.OneOf(rapid.Uint64Range(1, 80), rapid.Uint64Range(81, 1000), rapid.Just(uint64(MaxChunkBytes))).Draw(t, "chunk bytes"),
			Chunks:     rapid.OneOf(rapid.Just(0), rapid.IntRange(1, 12), rapid.IntRange(1, MaxChunks)).Draw(t, "chunks"),
		}
		got, err := planAll(p, src, dst, lim)
		require.NoError(t, err)
		check(t, src, dst, lim, got)
	})
}
