package main

import (
	"fmt"
	"io"
)

// The result of bench is demo's and more.
type (
	benchResult struct {
		result
		To          string       `json:"to_memory"`
		Planned     *pathResult  `json:"bounce_prepared,omitempty"` // of bounces with a plan made beforehand, unless all are
		Routed      routedResult `json:"routed"`
		Rounds      int          `json:"rounds"`
		Burst       int          `json:"burst"`
		DirectBurst int          `json:"direct_burst"`
		Prepared    bool         `json:"prepared"`
		OneProcess  bool         `json:"one_process"`
		Seed        uint64       `json:"seed"`
		Sweep       []sweepRow   `json:"sweep,omitempty"`
	}
	// routedResult is of the transfers whose path the agent chose.
	routedResult struct {
		pathResult
		Path string `json:"path"`
	}
)

func newBenchResult(f benchFlags, m *measurement, got *measured) (*benchResult, error) {
	common, err := newResult(f.engine, m, got)
	if err != nil {
		return nil, err
	}
	routed := routedResult{summarize(got.took[pathRouted], common.Layout.Bytes), pathDirect}
	// The agent may go directly where it would bounce only while memory is in doubt, and then no measurement succeeds: all have one path.
	if got.bounced[pathRouted] > 0 {
		routed.Path = pathBounce
	}
	var planned *pathResult
	if !f.prepared {
		p := summarize(got.took[pathPrepared], common.Layout.Bytes)
		planned = &p
	}
	return &benchResult{
		result: *common, Planned: planned, To: common.to, Routed: routed, Rounds: f.rounds, Burst: f.burst, DirectBurst: f.directBurst,
		Prepared: f.prepared, OneProcess: f.oneProcess || f.engine == engineMemory, Seed: f.seed,
	}, nil
}

// print is the table for people.
func (r *benchResult) print(out io.Writer) {
	rows, planned := []row{}, "planned beforehand"
	if r.Planned != nil {
		rows, planned = append(rows, row{"bounce, prepared", *r.Planned}), "planned in each Submit but for the prepared ones"
	}
	r.result.print(out, append(rows, row{"routed (" + r.Routed.Path + ")", r.Routed.pathResult})...)
	fmt.Fprintf(out, "rounds: %d, each of %d bounces back to back, %d direct and 1 routed; %s\n", r.Rounds, r.Burst, r.DirectBurst, planned)
	if len(r.Sweep) > 0 {
		printSweep(out, r.Sweep)
	}
}
