package wiring_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

// BenchmarkChunkTarget moves 72 MiB in pages of 4 KiB in random order with several settings of CHUNK_TARGET, one after the other in each iteration, so that what else the machine does meets all of them alike. It
// reports the least time and the median of each, in ms.
func BenchmarkChunkTarget(b *testing.B) {
	for _, engine := range []string{"nixl", "memory"} {
		b.Run(engine, func(b *testing.B) {
			p := wiring.Params{}
			if engine == "memory" {
				p.World = wiring.NewWorld()
			}
			benchmarkTargets(b, p, []uint64{1, 2, 4, 8, 12, 16, 24, 36})
		})
	}
}

func benchmarkTargets(b *testing.B, p wiring.Params, mebibytes []uint64) {
	const pages, size = 18432, 4096
	src, dst := newBlock(b, pages*size), newBlock(b, pages*size)
	type setting struct {
		from    *wiring.Node
		request agent.Request
		took    []time.Duration
	}
	var settings []*setting
	for _, m := range mebibytes {
		p.Config = config.Default()
		p.Config.Enable, p.Config.ArenaSize, p.Config.ControlBind, p.Config.ChunkTarget = true, 256<<20, "tcp://127.0.0.1:0", m<<20
		from, to := pair(b, p)
		connect(b, from, to)
		_, err := to.Register([]ports.Descriptor{{Addr: dst.base(), Bytes: pages * size}}, agent.BounceOnly)
		require.NoError(b, err)
		settings = append(settings, &setting{from: from, request: agent.Request{
			Peer: to.Identity(), Local: src.pages(pages, size, 1), Remote: dst.pages(pages, size, 2), Route: agent.ForceBounce,
		}})
	}
	for b.Loop() {
		for _, s := range settings {
			began := time.Now()
			h, err := s.from.Submit(s.request)
			require.NoError(b, err)
			require.NoError(b, h.Wait(b.Context()))
			s.took = append(s.took, time.Since(began))
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, s := range settings {
		slices.Sort(s.took)
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		b.ReportMetric(ms(s.took[0]), fmt.Sprintf("min-ms@%02dM", mebibytes[i]))
		b.ReportMetric(ms(s.took[len(s.took)/2]), fmt.Sprintf("p50-ms@%02dM", mebibytes[i]))
	}
}
