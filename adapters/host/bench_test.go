package host_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/adapters/host"
	"github.com/kvbounce/kvbounce/ports"
)

// benchmarkBytes is the size of the headline workload (workloads.md, paged-4k).
const benchmarkBytes = 72 << 20

// BenchmarkGather copies 72 MiB in pieces of several sizes, in irregular order, beside a plain loop of Go's copy over the same pieces.
func BenchmarkGather(b *testing.B) {
	app, block := allocate(b, 2*benchmarkBytes), allocate(b, benchmarkBytes)
	for i := range app {
		app[i] = byte(i)
	}
	clear(block) // each page is there before the clock runs
	for _, piece := range []uint32{64, 512, 4096, 65536, benchmarkBytes} {
		runs := scattered(address(app), piece)
		b.Run(fmt.Sprintf("piece=%d/loop", piece), func(b *testing.B) {
			b.SetBytes(benchmarkBytes)
			for b.Loop() {
				for k, page := range runs.Index {
					from := uint64(page) * 2 * uint64(piece)
					copy(block[uint64(k)*uint64(piece):], app[from:from+uint64(piece)])
				}
			}
		})
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("piece=%d/workers=%d", piece, workers), func(b *testing.B) {
				ended := make(chan struct{}, 1)
				c := newCompute(b, host.Config{Contexts: 1, Workers: workers, Wake: func() { ended <- struct{}{} }})
				b.SetBytes(benchmarkBytes)
				b.ReportAllocs()
				for b.Loop() {
					event, err := c.Gather(runs, address(block))
					require.NoError(b, err)
					<-ended
					require.Equal(b, ports.CopyDone, event.Status())
				}
			})
		}
	}
}

// scattered is every second piece of the application's memory, in irregular order.
func scattered(addr uint64, piece uint32) ports.Runs {
	pieces := uint32(benchmarkBytes / piece)
	index := make([]uint32, pieces)
	for i := range index {
		index[i] = uint32(uint64(i) * 7919 % uint64(pieces)) // 7919 is a prime that divides none of the counts
	}
	return ports.Runs{Index: index, Runs: []ports.Run{{Addr: addr, Stride: 2 * int64(piece), Piece: piece, Pieces: pieces, Step: piece}}}
}
