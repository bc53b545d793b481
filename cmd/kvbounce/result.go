package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

// summarize gives percentiles by nearest rank, and the rate at the median.
func summarize(took []time.Duration, bytes uint64) pathResult {
	sorted := slices.Clone(took)
	slices.Sort(sorted)
	rank := func(percent int) time.Duration { return sorted[(len(sorted)*percent+99)/100-1] }
	p50 := rank(50)
	return pathResult{P50: micros(p50), P99: micros(rank(99)), GBps: float64(bytes) / float64(p50.Nanoseconds()), Requests: len(took)}
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// medianStages is the median of each stage by itself.
func medianStages(all []transport.Stages) stagesResult {
	median := func(of func(transport.Stages) time.Duration) float64 {
		var v []time.Duration
		for _, s := range all {
			v = append(v, of(s))
		}
		slices.Sort(v)
		return micros(v[(len(v)-1)/2])
	}
	return stagesResult{
		Plan:      median(func(s transport.Stages) time.Duration { return s.Plan }),
		WantGrant: median(func(s transport.Stages) time.Duration { return s.WantGrant }),
		Gather:    median(func(s transport.Stages) time.Duration { return s.Gather }),
		Write:     median(func(s transport.Stages) time.Duration { return s.Write }),
		DataAck:   median(func(s transport.Stages) time.Duration { return s.DataAck }),
	}
}

// dataBytes is what the DATA messages of the layout's plan take, as an agent with the default chunk limit cuts it.
func dataBytes(l layout.Layout, kind ports.MemoryKind) (uint64, error) {
	p, n := plan.New(), uint64(0)
	if _, err := p.Begin(l.Src, l.Dst, agent.Limits(0, 40<<20, kind == ports.Device)); err != nil {
		return 0, err
	}
	var c plan.Chunk
	for p.Next(&c) {
		n += uint64(c.DataBytes())
	}
	return n, nil
}

func printResult(out io.Writer, r *result) {
	ways := "one way"
	if r.bothWays {
		ways = "both ways"
	}
	fmt.Fprintf(out, "%s: %d pieces, %.1f MiB, %s; engine %s, control %s, memory %s\n\n",
		r.Layout.Name, r.Layout.Descriptors, float64(r.Layout.Bytes)/(1<<20), ways, strings.TrimSpace(r.Engine+" "+r.engineVersion), r.Control, r.Memory)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "path\tp50\tp99\tGB/s\ttransfers\t")
	for _, row := range []struct {
		name string
		p    pathResult
	}{{"bounce", r.Bounce}, {"direct", r.Direct}} {
		fmt.Fprintf(w, "%s\t%.2f ms\t%.2f ms\t%.2f\t%d\t\n", row.name, row.p.P50/1000, row.p.P99/1000, row.p.GBps, row.p.Requests)
	}
	_ = w.Flush()
	compared := fmt.Sprintf("bounce is %.1f x as fast as the direct path", r.Speedup)
	if r.Speedup < 1 {
		compared = fmt.Sprintf("bounce is %.1f x slower than the direct path", 1/r.Speedup)
	}
	fmt.Fprintf(out, "\n%s; %d bytes checked, all right\n", compared, r.Checked)
	s := r.Stages
	fmt.Fprintf(out, "stages of a bounce, overlapping: plan %.2f ms, want to last grant %.2f, gather %.2f, write %.2f, data to last ack %.2f; DATA %.1f KB\n",
		s.Plan/1000, s.WantGrant/1000, s.Gather/1000, s.Write/1000, s.DataAck/1000, float64(r.DataBytes)/1000)
}
