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

// The result is the JSON of cli.md.
type (
	result struct {
		Engine    string       `json:"engine"`
		Control   string       `json:"control"`
		Memory    string       `json:"memory"`
		Layout    layoutResult `json:"layout"`
		Bounce    pathResult   `json:"bounce"`
		Direct    pathResult   `json:"direct"`
		Speedup   float64      `json:"speedup"`
		Verified  bool         `json:"verified"`
		Checked   uint64       `json:"bytes_checked"`
		Stages    stagesResult `json:"stages_us"`
		DataBytes uint64       `json:"data_message_bytes"`

		engineVersion string
		to            string // the receiver's memory
		bothWays      bool
	}
	layoutResult struct {
		Name        string `json:"name"`
		Descriptors int    `json:"descriptors"`
		Bytes       uint64 `json:"bytes"`
	}
	pathResult struct {
		P50      float64 `json:"p50_us"`
		P99      float64 `json:"p99_us"`
		Min      float64 `json:"min_us"`
		GBps     float64 `json:"gbps"`
		Requests int     `json:"requests"`
	}
	stagesResult struct {
		Plan      float64 `json:"plan"`
		WantGrant float64 `json:"want_grant"`
		Gather    float64 `json:"gather"`
		Write     float64 `json:"write"`
		DataAck   float64 `json:"data_ack"`
	}
)

// newResult is what demo, send and bench say of a measurement.
func newResult(engine string, m *measurement, got *measured) (*result, error) {
	r := &result{
		Engine: engine, Control: got.control, Memory: got.places[0].Kind.String(), Verified: true, Checked: got.checked,
		Layout:        layoutResult{Name: m.layout.Name, Descriptors: len(m.layout.Src), Bytes: m.bytes()},
		engineVersion: got.engineVersion, to: got.places[1].Kind.String(), bothWays: len(m.senders) == 2,
	}
	r.Bounce, r.Direct = summarize(got.took[pathBounce], r.Layout.Bytes), summarize(got.took[pathDirect], r.Layout.Bytes)
	r.Speedup = r.Direct.P50 / r.Bounce.P50
	r.Stages = medianStages(got.stages)
	var err error
	r.DataBytes, err = dataBytes(m.layout, got.places[0].Kind == ports.Device && got.places[1].Kind == ports.Device)
	return r, err
}

// summarize gives percentiles by nearest rank, the least, and the rate at the median.
func summarize(took []time.Duration, bytes uint64) pathResult {
	sorted := slices.Clone(took)
	slices.Sort(sorted)
	rank := func(percent int) time.Duration { return sorted[(len(sorted)*percent+99)/100-1] }
	p50 := rank(50)
	return pathResult{P50: micros(p50), P99: micros(rank(99)), Min: micros(sorted[0]), GBps: float64(bytes) / float64(p50.Nanoseconds()), Requests: len(took)}
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
func dataBytes(l layout.Layout, devices bool) (uint64, error) {
	p, n := plan.New(), uint64(0)
	if _, err := p.Begin(l.Src, l.Dst, agent.Limits(0, 40<<20, devices)); err != nil {
		return 0, err
	}
	var c plan.Chunk
	for p.Next(&c) {
		n += uint64(c.DataBytes())
	}
	return n, nil
}

// print is the table for people. More rows may follow those of the two paths.
func (r *result) print(out io.Writer, more ...row) {
	ways := "one way"
	if r.bothWays {
		ways = "both ways"
	}
	fmt.Fprintf(out, "%s: %d pieces, %.1f MiB, %s; engine %s, control %s, memory %s\n\n",
		r.Layout.Name, r.Layout.Descriptors, float64(r.Layout.Bytes)/(1<<20), ways, r.engineName(), r.Control, r.memory())
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "path\tp50\tp99\tleast\tGB/s\ttransfers\t")
	for _, row := range append([]row{{pathBounce, r.Bounce}, {pathDirect, r.Direct}}, more...) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.2f\t%d\t\n", row.name, shown(row.p.P50), shown(row.p.P99), shown(row.p.Min), row.p.GBps, row.p.Requests)
	}
	_ = w.Flush()
	fmt.Fprintf(out, "\n%s; %d bytes checked, all right\n", r.compared(), r.Checked)
	if r.Speedup < 1-alike && r.memory() == ports.Host.String() {
		fmt.Fprintln(out, "in host memory without RDMA bounce copies three times where direct copies once, and gains with smaller pieces: see docs/bench.md")
	}
	s := r.Stages
	fmt.Fprintf(out, "stages of a bounce, overlapping: plan %s, want to last grant %s, gather %s, write %s, data to last ack %s; DATA %.1f KB\n",
		shown(s.Plan), shown(s.WantGrant), shown(s.Gather), shown(s.Write), shown(s.DataAck), float64(r.DataBytes)/1000)
}

// alike is by how much two paths may differ that are said to be as fast as each other.
const alike = 0.05

// compared says which path is faster.
func (r *result) compared() string {
	switch {
	case r.Speedup > 1+alike:
		return fmt.Sprintf("bounce is %.1f x as fast as the direct path", r.Speedup)
	case r.Speedup < 1-alike:
		return fmt.Sprintf("bounce is %.1f x slower than the direct path", 1/r.Speedup)
	}
	return "bounce is as fast as the direct path"
}

// engineName is the engine with its version, if it has one.
func (r *result) engineName() string { return strings.TrimSpace(r.Engine + " " + r.engineVersion) }

// memory is where the bytes are, on both sides.
func (r *result) memory() string {
	if r.to == r.Memory {
		return r.Memory
	}
	return r.Memory + " to " + r.to
}

// row is a line of the table.
type row struct {
	name string
	p    pathResult
}

// shown is a time in microseconds as a table shows it.
func shown(us float64) string {
	if us < 1000 {
		return fmt.Sprintf("%.1f µs", us)
	}
	return fmt.Sprintf("%.2f ms", us/1000)
}

// shownSize is a size as people read it: exact where that is short.
func shownSize(bytes uint64) string {
	for _, unit := range []struct {
		name  string
		bytes uint64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		switch {
		case bytes >= unit.bytes && bytes%unit.bytes == 0:
			return fmt.Sprintf("%d %s", bytes/unit.bytes, unit.name)
		case bytes >= 10*unit.bytes:
			return fmt.Sprintf("%.1f %s", float64(bytes)/float64(unit.bytes), unit.name)
		}
	}
	return fmt.Sprintf("%d B", bytes)
}
