package main

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

type benchFlags struct {
	demoFlags
	to          memoryFlag // the receiver's memory
	burst       int
	directBurst int
	prepared    bool
	sweep       sweepFlags
	plot        string
}

func (a *app) bench() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the bounce path against direct NIXL in one run, with every byte checked",
		Long: `Measure the bounce path against direct NIXL in one run, from one worker to another.

A round poisons the destination, fills the source with bytes of its own, moves the layout by forced
bounces, one after the other, and checks every byte; then it does the same with bounces whose plan was
made beforehand, with the direct path, and once with the path that the agent chooses by itself. The
order turns round from round to round. A warm-up round is checked but not measured. A time is from
before Submit to the end of Wait.

--sweep then measures pages in random order, from 256 bytes to 64 KiB, with the layout's total. Each
piece size takes --rounds rounds, or as many as begin within 5 s, and at least three: on two cores the
whole sweep of 72 MiB takes less than two minutes.`,
		Example: "  kvbounce bench --layout tiny --rounds 4\n  kvbounce bench --engine memory --layout tiny --sweep --pieces 1K,64K --json\n  kvbounce bench --layout FILE.csv --plot FILE.svg",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("to") {
				f.to = f.memory
			}
			if err := cmp.Or(f.check(), f.sweep.check()); err != nil {
				return err
			}
			if !f.sweep.on && cmd.Flags().Changed("pieces") {
				return badUsage("pieces", "--pieces are of a sweep: allowed with --sweep only")
			}
			return a.runBench(f)
		},
	}
	cmd.Flags().StringVar(&f.engine, "engine", engineNIXL, `what moves the bytes: "nixl" between two processes, or "memory" within one`)
	cmd.Flags().StringVar(&f.layout, "layout", "paged-4k", "a layout file, JSON or CSV, - for standard input, or a preset: "+strings.Join(layout.Names(), ", "))
	cmd.Flags().Var(&f.memory, "memory", memoryHelp)
	cmd.Flags().Var(&f.to, "to", "where the receiver's bytes are, if elsewhere: as --memory")
	cmd.Flags().BoolVar(&f.oneProcess, "one-process", false, "run both agents in this process")
	cmd.Flags().IntVar(&f.rounds, "rounds", 8, "rounds that are measured")
	cmd.Flags().IntVar(&f.burst, "burst", 8, "bounce transfers in a round, back to back")
	cmd.Flags().IntVar(&f.directBurst, "direct-burst", 1, "direct transfers in a round, back to back")
	cmd.Flags().BoolVar(&f.prepared, "prepared", false, "plan once, beforehand, all that is measured, instead of in each Submit too")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "of the layouts and of the bytes")
	cmd.Flags().StringVar(&f.plot, "plot", "", "draw what was measured into this file, NAME.svg: the distribution of the times, or with --sweep the rates")
	f.sweep.add(cmd)
	return cmd
}

// check says what is wrong with the flags, but for the layout and the sweep.
func (f benchFlags) check() error {
	if err := f.demoFlags.check(); err != nil {
		return err
	}
	switch {
	case f.engine == engineMemory && f.to.place.Kind != ports.Host:
		return badUsage("to", "--to is %q, allowed with --engine memory is %q", f.to.place.Kind, ports.Host)
	case f.burst < 1 || f.burst > maxBurst:
		return badUsage("burst", "--burst is %d, allowed is 1 to %d", f.burst, maxBurst)
	case f.directBurst < 1 || f.directBurst > maxBurst:
		return badUsage("direct-burst", "--direct-burst is %d, allowed is 1 to %d", f.directBurst, maxBurst)
	}
	return checkPlotName(f.plot)
}

const maxBurst = 10000

// measurement is what f asks for, of a layout.
func (f benchFlags) measurement(l layout.Layout, preset bool, legs ...leg) *measurement {
	return &measurement{
		name: "bench", layout: l, preset: preset, seed: f.seed, places: [2]ports.Place{f.memory.place, f.to.place},
		legs: legs, senders: []int{0}, rounds: f.rounds, prepared: f.prepared,
	}
}

func (a *app) runBench(f benchFlags) error {
	defer a.interruptible()()
	l, preset, err := a.benchLayout(f)
	if err != nil {
		return err
	}
	legs := []leg{{pathBounce, f.burst}, {pathDirect, f.directBurst}, {pathRouted, 1}}
	if !f.prepared {
		legs = slices.Insert(legs, 1, leg{pathPrepared, f.burst})
	}
	m := f.measurement(l, preset, legs...)
	if f.sweep.on {
		if err := f.sweep.fits(m.bytes()); err != nil {
			return err
		}
	}
	if f.plot != "" {
		if err := checkPlotPlace(f.plot); err != nil {
			return err
		}
	}
	cfg, err := demoConfig(os.Environ(), a.log)
	if err != nil {
		return err
	}
	got, err := a.measureAlone(f, cfg, m)
	if err != nil {
		return err
	}
	r, err := newBenchResult(f, m, got)
	if err != nil {
		return err
	}
	if f.sweep.on {
		if err := a.runSweep(f, cfg, r); err != nil {
			return err
		}
	}
	if f.plot != "" {
		if err := writePlot(f.plot, r, got); err != nil {
			return err
		}
	}
	if a.json {
		return a.print(r)
	}
	r.print(a.out)
	return nil
}

// measureAlone starts two workers for one measurement and ends them.
func (a *app) measureAlone(f benchFlags, cfg config.Config, m *measurement) (got *measured, err error) {
	parties, err := a.start(f.demoFlags, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = endAll(parties, err) }()
	if m.bar == nil {
		m.bar = a.progress(m.steps())
	}
	return m.run(parties)
}
