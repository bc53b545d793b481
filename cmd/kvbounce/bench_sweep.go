package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

type sweepFlags struct {
	on     bool
	bytes  string
	pieces []string

	total uint64   // of bytes; 0: the layout's
	sizes []uint64 // of pieces
}

func (f *sweepFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.on, "sweep", false, "measure pages in random order of several sizes too")
	cmd.Flags().StringVar(&f.bytes, "bytes", "", "with --sweep: what a transfer moves, as 72M (default: the layout's total)")
	cmd.Flags().StringSliceVar(&f.pieces, "pieces", []string{"256", "512", "1K", "2K", "4K", "8K", "16K", "32K", "64K"}, "with --sweep: the sizes of pages")
}

// The bounds of a sweep.
const (
	maxSweepBytes = 1 << 30
	maxPiece      = 16 << 20
)

// check reads the sizes and says what is wrong with them.
func (f *sweepFlags) check() (err error) {
	if f.bytes != "" {
		if f.total, err = config.ParseSize(f.bytes); err != nil {
			return badUsage("bytes", "--bytes: %v", err)
		}
		if f.total < 1 || f.total > maxSweepBytes {
			return badUsage("bytes", "--bytes is %s, allowed is 1 to 1G", f.bytes)
		}
		if !f.on {
			return badUsage("bytes", "--bytes is of a sweep: allowed with --sweep only")
		}
	}
	if len(f.pieces) == 0 {
		return badUsage("pieces", "--pieces is empty, allowed are sizes as 256,4K,64K")
	}
	for _, text := range f.pieces {
		size, err := config.ParseSize(text)
		if err != nil {
			return badUsage("pieces", "--pieces: %v", err)
		}
		if size < 1 || size > maxPiece {
			return badUsage("pieces", "--pieces has %s, allowed is 1 to 16M", text)
		}
		f.sizes = append(f.sizes, size)
	}
	return nil
}

// fits gives the sweep its total and says if a piece size makes too many pages of it.
func (f *sweepFlags) fits(layoutBytes uint64) error {
	if f.total == 0 {
		f.total = layoutBytes
	}
	if f.total > maxSweepBytes {
		return badUsage("bytes", "the layout's %d bytes are too many for a sweep: give it --bytes, at most 1G", f.total)
	}
	for i, size := range f.sizes {
		if (f.total-1)/size >= maxDescriptors {
			return badUsage("pieces", "--pieces has %s, which cuts %d bytes into more than %d pages: allowed are larger pieces, or fewer --bytes", f.pieces[i], f.total, maxDescriptors)
		}
	}
	return nil
}

// sweepRow is one piece size.
type sweepRow struct {
	Piece       uint64     `json:"piece_bytes"`
	Descriptors int        `json:"descriptors"`
	Bytes       uint64     `json:"bytes"`
	Bounce      pathResult `json:"bounce"`
	Direct      pathResult `json:"direct"`
	Speedup     float64    `json:"speedup"`
}

// sweepBudget is what one piece size may take before its rounds are cut to the least.
const sweepBudget = 5 * time.Second

// runSweep adds the sweep to the result. Each piece size has two workers of its own.
func (a *app) runSweep(f benchFlags, cfg config.Config, r *benchResult) error {
	var rows []*measurement
	steps := 0
	for _, size := range f.sweep.sizes {
		m := f.measurement(layout.Pages(f.sweep.total, size, f.seed), false, leg{pathBounce, f.burst}, leg{pathDirect, f.directBurst})
		m.budget = sweepBudget
		steps += m.steps()
		rows = append(rows, m)
	}
	bar := a.progress(steps)
	for i, m := range rows {
		m.bar = bar
		got, err := a.measureAlone(f, cfg, m)
		if err != nil {
			return fmt.Errorf("pieces of %d bytes: %w", f.sweep.sizes[i], err)
		}
		row := sweepRow{
			Piece: f.sweep.sizes[i], Descriptors: len(m.layout.Src), Bytes: m.bytes(),
			Bounce: summarize(got.took[pathBounce], m.bytes()), Direct: summarize(got.took[pathDirect], m.bytes()),
		}
		row.Speedup = row.Direct.P50 / row.Bounce.P50
		r.Sweep = append(r.Sweep, row)
		r.Checked += got.checked
	}
	return nil
}

func printSweep(out io.Writer, rows []sweepRow) {
	fmt.Fprintf(out, "\npages in random order, %.1f MiB:\n\n", float64(rows[0].Bytes)/(1<<20))
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "piece\tpieces\tbounce p50\tGB/s\tdirect p50\tGB/s\tdirect/bounce\ttransfers\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%s\t%.2f\t%s\t%.2f\t%.1f\t%d/%d\t\n",
			shownSize(r.Piece), r.Descriptors, shown(r.Bounce.P50), r.Bounce.GBps, shown(r.Direct.P50), r.Direct.GBps, r.Speedup, r.Bounce.Requests, r.Direct.Requests)
	}
	_ = w.Flush()
}
