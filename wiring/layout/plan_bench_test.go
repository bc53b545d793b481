package layout_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

// benchLimits cut as an agent does in host memory with the default settings.
var benchLimits = plan.Limits{ChunkBytes: 40 << 20, Target: 8 << 20, Taper: true}

// shapes are the presets, and layouts that are none: cut differently on the two sides, pages of two lengths in turn, and very many descriptors.
func shapes(tb testing.TB) (all []layout.Layout) {
	for _, name := range layout.Names() {
		l, err := layout.Preset(name, 1)
		require.NoError(tb, err)
		all = append(all, l)
	}
	paged := all[0]
	cut := layout.Layout{Name: "cut-differently", Dst: paged.Dst}
	turn := layout.Layout{Name: "two-lengths-in-turn"}
	for i, s := range paged.Src {
		if i%2 == 0 {
			cut.Src = append(cut.Src, ports.Descriptor{Addr: 2 * s.Addr, Bytes: 2 * s.Bytes})
		} else {
			s.Bytes /= 4
		}
		d := paged.Dst[i]
		d.Bytes = s.Bytes
		turn.Src, turn.Dst = append(turn.Src, s), append(turn.Dst, d)
	}
	many := layout.Layout{Name: "110592-random"}
	for i := range uint64(6) {
		for k := range paged.Src {
			s, d := paged.Src[k], paged.Dst[(k*7+int(i))%len(paged.Dst)]
			s.Addr, d.Addr = s.Addr*6+i*4096, d.Addr*6+i*4096
			many.Src, many.Dst = append(many.Src, s), append(many.Dst, d)
		}
	}
	return append(all, cut, turn, many)
}

// BenchmarkPlan plans each layout in every iteration, stage by stage, beside a plain loop that copies its descriptors. It reports the least time that each took, in ns for each descriptor of the longer list: on a machine that
// does other things as well that is what the stage costs.
func BenchmarkPlan(b *testing.B) {
	for _, l := range shapes(b) {
		b.Run(l.Name, func(b *testing.B) {
			src, dst := make([]ports.Descriptor, len(l.Src)), make([]ports.Descriptor, len(l.Dst))
			p, n := plan.New(), float64(max(len(l.Src), len(l.Dst)))
			var chunks []plan.Chunk
			stages := []struct {
				name string
				do   func() error
				best time.Duration
			}{
				{"copy", func() error { copyList(src, l.Src); copyList(dst, l.Dst); return nil }, time.Hour},
				{"sizes", func() error { _, err := p.Begin(l.Src, l.Dst, benchLimits); return err }, time.Hour},
				{"first-gather", func() error {
					if chunks == nil {
						chunks = make([]plan.Chunk, len(p.ChunkBytes()))
					}
					p.NextGather(&chunks[0])
					return nil
				}, time.Hour},
				{"runs", func() error {
					for i := 1; i < len(chunks); i++ {
						p.NextGather(&chunks[i])
					}
					for i := range chunks {
						p.NextScatter(&chunks[i])
					}
					return nil
				}, time.Hour},
				{"overlap", p.Overlap, time.Hour},
			}
			b.ReportAllocs()
			for b.Loop() {
				for i := range stages {
					began := time.Now()
					if err := stages[i].do(); err != nil {
						b.Fatal(err)
					}
					stages[i].best = min(stages[i].best, time.Since(began))
				}
			}
			b.ReportMetric(0, "ns/op")
			stages[3].best += stages[2].best
			for _, s := range stages {
				if s.name == "first-gather" {
					b.ReportMetric(float64(s.best.Nanoseconds())/1000, "us-first-gather")
					continue
				}
				b.ReportMetric(float64(s.best.Nanoseconds())/n, "ns-"+s.name)
			}
			data := 0
			for i := range chunks {
				data += chunks[i].DataBytes()
			}
			b.ReportMetric(float64(data), "DATA-bytes")
		})
	}
}

// copyList copies one descriptor after the other.
func copyList(to, from []ports.Descriptor) {
	//lint:ignore S1001 the loop is what planning is compared with
	for i := range from {
		to[i] = from[i]
	}
}

// planAll plans a layout, chunk by chunk into c.
func planAll(p *plan.Planner, l layout.Layout, lim plan.Limits, c *plan.Chunk, each func()) error {
	if _, err := p.Begin(l.Src, l.Dst, lim); err != nil {
		return err
	}
	for p.Next(c) {
		each()
	}
	return p.Overlap()
}
