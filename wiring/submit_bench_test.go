package wiring_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

// BenchmarkSubmit compares how long Submit takes with descriptors and with a prepared plan, in turn: 18432 pages of 64 bytes, so that planning is all there is. It reports the least of each, in µs.
func BenchmarkSubmit(b *testing.B) {
	const pages, size = 18432, 64
	src, dst := newBlock(b, pages*size), newBlock(b, pages*size)
	c := config.Default()
	c.Enable, c.ArenaSize, c.MaxChunkSize = true, 64<<20, 8<<20
	from, to := pair(b, wiring.Params{Config: c, World: wiring.NewWorld()})
	connect(b, from, to)
	_, err := to.Register([]ports.Descriptor{{Addr: dst.base(), Bytes: pages * size}}, agent.BounceOnly)
	require.NoError(b, err)
	lists := agent.Request{Peer: to.Identity(), Local: src.pages(pages, size, 1), Remote: dst.pages(pages, size, 2), Route: agent.ForceBounce}
	plan, err := from.Prepare(to.Identity(), lists.Local, lists.Remote)
	require.NoError(b, err)
	prepared := agent.Request{Peer: to.Identity(), Plan: plan, Route: agent.ForceBounce}
	best := map[bool]time.Duration{false: time.Hour, true: time.Hour}
	for b.Loop() {
		for _, r := range []agent.Request{lists, prepared} {
			began := time.Now()
			h, err := from.Submit(r)
			best[r.Plan != nil] = min(best[r.Plan != nil], time.Since(began))
			require.NoError(b, err)
			require.NoError(b, h.Wait(b.Context()))
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(best[false].Nanoseconds())/1000, "us-lists")
	b.ReportMetric(float64(best[true].Nanoseconds())/1000, "us-prepared")
}
