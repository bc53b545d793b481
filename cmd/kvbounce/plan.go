package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

type planFlags struct {
	in       string
	preset   string
	seed     uint64
	maxChunk string
	target   string
	memory   memoryFlag
	runs     bool
}

func (a *app) plan() *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan (--in FILE | --layout PRESET)",
		Short: "Show how a layout is cut into chunks and runs, and what its DATA messages take",
		Long: `Show how a layout is cut into chunks and runs, as an agent does it, and what its DATA messages take,
against the naive way: one run of 40 bytes for each piece (both lists cut at both sides' boundaries,
none of the pieces joined).

FILE is JSON, {"src":[[addr,bytes],...],"dst":[[addr,bytes],...],"src_device":0,"dst_device":0}, or
CSV, lines of side,addr,bytes where side is src or dst; a first line of these three words is a header.
An addr may be hexadecimal, 0x7f00 in CSV and "0x7f00" in JSON. The name's ending says which of the
two it is, .json or .csv, and where it does not the first character. "-" is standard input.`,
		Example: "  kvbounce plan --layout llama70b-tp8\n  kvbounce plan --in pages.csv --runs --json",
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return a.runPlan(f) },
	}
	cmd.Flags().StringVar(&f.in, "in", "", "a layout file, JSON or CSV, or - for standard input")
	cmd.Flags().StringVar(&f.preset, "layout", "", "a preset: "+strings.Join(layout.Names(), ", "))
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "of the preset")
	cmd.Flags().StringVar(&f.maxChunk, "max-chunk", "40M", "the chunk limit, as 40M or 4KiB")
	cmd.Flags().StringVar(&f.target, "chunk-target", "", "how long chunks should be, as 8M: the setting CHUNK_TARGET (default: the memory's)")
	cmd.Flags().Var(&f.memory, "memory", `where the bytes are on both sides, for the default of --chunk-target: "dram" or "vram"`)
	cmd.Flags().BoolVar(&f.runs, "runs", false, "show the runs and the index tables too")
	return cmd
}

// The plan's JSON is cli.md's.
type (
	planJSON struct {
		Descriptors    int         `json:"descriptors"`
		Bytes          uint64      `json:"bytes"`
		Chunks         []chunkJSON `json:"chunks"`
		DataBytes      uint64      `json:"data_bytes"`
		NaiveDataBytes uint64      `json:"naive_data_bytes"`
		PlanUS         float64     `json:"plan_us"`
	}
	chunkJSON struct {
		Bytes       uint32 `json:"bytes"` // of the block, padding included
		GatherRuns  int    `json:"gather_runs"`
		ScatterRuns int    `json:"scatter_runs"`
		Indices     int    `json:"indices"` // in the DATA message: the scatter's
		DataBytes   int    `json:"data_bytes"`

		// With --runs; else left out.
		Gather       []runJSON `json:"gather,omitzero"`
		Scatter      []runJSON `json:"scatter,omitzero"`
		GatherIndex  []uint32  `json:"gather_index,omitzero"`
		ScatterIndex []uint32  `json:"scatter_index,omitzero"`
	}
)

func (a *app) runPlan(f planFlags) error {
	if (f.in == "") == (f.preset == "") {
		return badUsage("in", "plan takes either --in FILE or --layout PRESET; see kvbounce plan --help")
	}
	limit, err := chunkSize("max-chunk", f.maxChunk)
	if err != nil {
		return err
	}
	target := uint64(0)
	if f.target != "" {
		if target, err = chunkSize("chunk-target", f.target); err != nil {
			return err
		}
	}
	l, err := a.planLayout(f)
	if err != nil {
		return err
	}
	r, err := planLists(l.Src, l.Dst, agent.Limits(target, limit, f.memory.place.Kind == ports.Device), f.runs)
	switch {
	case errors.Is(err, plan.ErrTooManyChunks):
		return &fieldError{"max-chunk", fmt.Errorf("--max-chunk is %s: %w", f.maxChunk, err)}
	case err != nil:
		return &fieldError{"in", fmt.Errorf("%s: %w", f.name(), err)}
	case a.json:
		return a.print(r)
	}
	printPlan(a.out, f.name(), r)
	return nil
}

// chunkSize reads a flag that holds the bytes of a chunk.
func chunkSize(flag, text string) (uint64, error) {
	size, err := config.ParseSize(text)
	if err != nil {
		return 0, badUsage(flag, "--%s: %v", flag, err)
	}
	if size < 1 || size > plan.MaxChunkBytes {
		return 0, badUsage(flag, "--%s is %s, allowed is 1 to %d bytes", flag, text, uint64(plan.MaxChunkBytes))
	}
	return size, nil
}

// name is what is planned, in errors and in the table.
func (f planFlags) name() string {
	switch {
	case f.preset != "":
		return f.preset
	case f.in == "-":
		return "standard input"
	}
	return f.in
}

// planLayout makes the preset or reads the file.
func (a *app) planLayout(f planFlags) (layout.Layout, error) {
	if f.preset != "" {
		l, err := layout.Preset(f.preset, f.seed)
		if err != nil {
			return l, badUsage("layout", "--layout: %v", err)
		}
		return l, nil
	}
	l, err := a.readLayout("in", f.in, f.name())
	if err == nil && (len(l.Src) == 0 || len(l.Dst) == 0) {
		side := "src"
		if len(l.Src) > 0 {
			side = "dst"
		}
		err = &fieldError{"in", fmt.Errorf("%s lists no %s: want at least one addr and bytes on each side", f.name(), side)}
	}
	return l, err
}

// planLists plans twice: once to see the result, and once more for the time, as an agent takes it that has planned before.
func planLists(src, dst []ports.Descriptor, lim plan.Limits, runs bool) (*planJSON, error) {
	r := &planJSON{Chunks: []chunkJSON{}}
	planner := plan.New()
	summary, err := planAll(planner, src, dst, lim, func(c *plan.Chunk) {
		r.DataBytes += uint64(c.DataBytes())
		r.Chunks = append(r.Chunks, newChunkJSON(c, runs))
	})
	if err != nil {
		return nil, err
	}
	r.Descriptors, r.Bytes = summary.Descriptors, summary.Bytes
	r.NaiveDataBytes = wire.RunBytes * countPieces(src, dst)
	began := time.Now()
	_, err = planAll(planner, src, dst, lim, func(*plan.Chunk) {})
	r.PlanUS = micros(time.Since(began))
	return r, err
}

func planAll(p *plan.Planner, src, dst []ports.Descriptor, lim plan.Limits, each func(*plan.Chunk)) (plan.Summary, error) {
	summary, err := p.Begin(src, dst, lim)
	if err != nil {
		return summary, err
	}
	var c plan.Chunk
	for p.Next(&c) {
		each(&c)
	}
	return summary, p.Overlap()
}

func newChunkJSON(c *plan.Chunk, runs bool) chunkJSON {
	j := chunkJSON{Bytes: c.Bytes, GatherRuns: len(c.Gather.Runs), ScatterRuns: len(c.Scatter.Runs), Indices: len(c.Scatter.Index), DataBytes: c.DataBytes()}
	if runs {
		// The planner uses the chunk's index tables again.
		index := func(list []uint32) []uint32 { return append([]uint32{}, list...) }
		j.Gather, j.GatherIndex = newRunsJSON(c.Gather.Runs), index(c.Gather.Index)
		j.Scatter, j.ScatterIndex = newRunsJSON(c.Scatter.Runs), index(c.Scatter.Index)
	}
	return j
}

// countPieces is how many pieces the lists are cut into at both sides' boundaries, if none are joined. Both lists hold the same bytes.
func countPieces(src, dst []ports.Descriptor) (n uint64) {
	var x, y uint64 // what is left of the present descriptors
	for {
		for ; x == 0 && len(src) > 0; src = src[1:] {
			x = src[0].Bytes
		}
		for ; y == 0 && len(dst) > 0; dst = dst[1:] {
			y = dst[0].Bytes
		}
		piece := min(x, y)
		if piece == 0 {
			return n
		}
		x, y, n = x-piece, y-piece, n+1
	}
}

// shownChunks is how many chunks the table shows, unless the runs are shown too.
const shownChunks = 16

func printPlan(out io.Writer, name string, r *planJSON) {
	fmt.Fprintf(out, "%s: %d descriptors, %d bytes (%.2f MiB), planned in %.2f ms\n\n", name, r.Descriptors, r.Bytes, float64(r.Bytes)/(1<<20), r.PlanUS/1000)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "chunk\tbytes\tgather runs\tscatter runs\tindices\tDATA bytes\t")
	for i, c := range r.Chunks {
		if i == shownChunks && len(r.Chunks) > shownChunks+1 && c.Gather == nil {
			fmt.Fprintf(w, "%d more\t\t\t\t\t\t\n", len(r.Chunks)-i)
			break
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t\n", i, c.Bytes, c.GatherRuns, c.ScatterRuns, c.Indices, c.DataBytes)
	}
	_ = w.Flush()
	fmt.Fprintf(out, "\nDATA messages: %d bytes; one run for each piece would take %d\n", r.DataBytes, r.NaiveDataBytes)
	for i, c := range r.Chunks {
		if c.Gather != nil {
			printRuns(out, fmt.Sprintf("chunk %d, gather", i), "source", c.Gather, c.GatherIndex)
			printRuns(out, fmt.Sprintf("chunk %d, scatter", i), "destination", c.Scatter, c.ScatterIndex)
		}
	}
}

func printRuns(out io.Writer, title, addr string, runs []runJSON, index []uint32) {
	fmt.Fprintf(out, "\n%s:\n", title)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "offset\t%s\tstride\tpiece\tpieces\tstep\ttable\t\n", addr)
	for _, r := range runs {
		table := "-"
		if r.Table != nil {
			table = fmt.Sprint(*r.Table)
		}
		fmt.Fprintf(w, "%d\t%#x\t%d\t%d\t%d\t%d\t%s\t\n", r.Offset, r.Addr, r.Stride, r.Piece, r.Pieces, r.Step, table)
	}
	_ = w.Flush()
	if len(index) > 0 {
		fmt.Fprintf(out, "indices: %v\n", index)
	}
}
