package layout_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

// benchLimits are the defaults: 40 MiB a chunk, as few as that allows.
var benchLimits = plan.Limits{ChunkBytes: 40 << 20}

// BenchmarkPreset plans each preset, stage by stage, beside a plain loop that copies its descriptors into a list of one entry a piece. ns/piece is per pair of descriptors.
func BenchmarkPreset(b *testing.B) {
	for _, name := range layout.Names() {
		l, err := layout.Preset(name, 1)
		require.NoError(b, err)
		perPiece := func(b *testing.B) {
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(l.Src)), "ns/piece")
		}
		b.Run(name+"/copy", func(b *testing.B) {
			type entry struct{ src, dst, bytes uint64 }
			list := make([]entry, len(l.Src))
			for b.Loop() {
				for i := range list {
					list[i] = entry{l.Src[i].Addr, l.Dst[i].Addr, l.Src[i].Bytes}
				}
			}
			perPiece(b)
		})
		p := plan.New()
		b.Run(name+"/sizes", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Begin(l.Src, l.Dst, benchLimits); err != nil {
					b.Fatal(err)
				}
			}
			perPiece(b)
		})
		b.Run(name+"/sizes+runs", func(b *testing.B) {
			b.ReportAllocs()
			var c plan.Chunk
			for b.Loop() {
				if err := planAll(p, l, benchLimits, &c, func() {}); err != nil {
					b.Fatal(err)
				}
			}
			perPiece(b)
		})
	}
}

// planAll plans a layout, chunk by chunk into c.
func planAll(p *plan.Planner, l layout.Layout, lim plan.Limits, c *plan.Chunk, each func()) error {
	if _, err := p.Begin(l.Src, l.Dst, lim); err != nil {
		return err
	}
	for {
		ok, err := p.Next(c)
		if err != nil || !ok {
			return err
		}
		each()
	}
}
