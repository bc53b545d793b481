package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

// pages are the addresses of a list of runs by their places in the block, a page of 4 KiB each.
func pages(t *testing.T, runs []runJSON, index []uint32) map[uint64]uint64 {
	t.Helper()
	const page = 4096
	at := make(map[uint64]uint64)
	for _, r := range runs {
		for k := range uint64(r.Pieces) {
			factor := k
			if r.Table != nil {
				require.Less(t, uint64(*r.Table)+k, uint64(len(index)), "a run's table is within its chunk's indices")
				factor = uint64(index[uint64(*r.Table)+k])
			}
			for inPiece := uint64(0); inPiece < uint64(r.Piece); inPiece += page {
				at[r.Offset+k*uint64(r.Step)+inPiece] = r.Addr + factor*uint64(r.Stride) + inPiece
			}
		}
	}
	return at
}

func pagesOf(list []ports.Descriptor) (addrs []uint64) {
	for _, d := range list {
		for at := uint64(0); at < d.Bytes; at += 4096 {
			addrs = append(addrs, d.Addr+at)
		}
	}
	return addrs
}

// What plan shows of several chunks is each chunk's own: by it every page of the layout comes to its destination.
func TestPlanShowsEachChunksRuns(t *testing.T) {
	for name, args := range map[string][]string{
		"vllm-block16": nil,
		"llama70b-tp8": {"--max-chunk", "8M"},
		"paged-4k":     {"--max-chunk", "4M", "--chunk-target", "4M"},
	} {
		r := planned(t, "", append([]string{"--layout", name, "--runs"}, args...)...)
		require.Greater(t, len(r.Chunks), 1, name)
		l, err := layout.Preset(name, 1)
		require.NoError(t, err)
		want := make(map[uint64]uint64)
		src, dst := pagesOf(l.Src), pagesOf(l.Dst)
		for i, addr := range src {
			want[addr] = dst[i]
		}
		got := make(map[uint64]uint64)
		for _, c := range r.Chunks {
			to := pages(t, c.Scatter, c.ScatterIndex)
			for place, addr := range pages(t, c.Gather, c.GatherIndex) {
				got[addr] = to[place]
			}
		}
		require.True(t, len(got) == len(want), "%s: %d pages of %d", name, len(got), len(want))
		for addr, dst := range want {
			require.Equal(t, dst, got[addr], name)
		}
	}
}
