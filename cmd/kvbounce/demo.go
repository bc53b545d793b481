package main

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

// Engines of demo and bench.
const (
	engineNIXL   = "nixl"
	engineMemory = "memory"
)

type demoFlags struct {
	name   string // of the agents; send's
	engine string
	layout string
	memory memoryFlag
	// oneProcess puts both agents of the engine "nixl" into this process.
	oneProcess bool
	rounds     int
	seed       uint64
}

func (a *app) demo() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Move a paged KV layout between two processes both ways, check every byte, and compare with the direct path",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := cmp.Or(f.check(), f.checkPreset()); err != nil {
				return err
			}
			return a.runDemo(f)
		},
	}
	cmd.Flags().StringVar(&f.engine, "engine", engineNIXL, `what moves the bytes: "nixl" between two processes, or "memory" within one`)
	cmd.Flags().StringVar(&f.layout, "layout", "paged-4k", "a preset: "+strings.Join(layout.Names(), ", "))
	cmd.Flags().Var(&f.memory, "memory", memoryHelp)
	cmd.Flags().BoolVar(&f.oneProcess, "one-process", false, "run both agents in this process")
	cmd.Flags().IntVar(&f.rounds, "rounds", 8, "transfers on each path and in each direction")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "of the layout and of the bytes")
	return cmd
}

// check says what is wrong with the flags, but for the layout.
func (f demoFlags) check() error {
	switch {
	case f.engine != engineNIXL && f.engine != engineMemory:
		return badUsage("engine", "--engine is %q, allowed are %q and %q", f.engine, engineNIXL, engineMemory)
	case f.engine == engineMemory && f.memory.place.Kind != ports.Host:
		return badUsage("memory", "--memory is %q, allowed with --engine memory is %q", f.memory.place.Kind, ports.Host)
	case f.rounds < 1 || f.rounds > 10000:
		return badUsage("rounds", "--rounds is %d, allowed is 1 to 10000", f.rounds)
	}
	return nil
}

// checkPreset says what is wrong with a --layout that can only be a preset.
func (f demoFlags) checkPreset() error {
	if _, err := layout.Preset(f.layout, f.seed); err != nil {
		return badUsage("layout", "--layout: %v", err)
	}
	return nil
}

// bounceConfig are the settings of the environment and its file with bounce on. The files of keys that they name are read too.
func bounceConfig(environ []string, log *slog.Logger) (config.Config, error) {
	settings, err := wiring.ReadSettings(environ)
	cfg := settings.Config
	if err != nil {
		return cfg, err
	}
	if err := wiring.CheckKeys(cfg); err != nil {
		return cfg, &fieldError{"keys", err}
	}
	for _, w := range settings.Warnings {
		log.Warn(w)
	}
	cfg.Enable = true
	return cfg, nil
}

// demoConfig are the settings with bounce on, and on loopback unless they say where.
func demoConfig(environ []string, log *slog.Logger) (config.Config, error) {
	cfg, err := bounceConfig(environ, log)
	if err != nil {
		return cfg, err
	}
	if cfg.ControlBind == config.Default().ControlBind {
		cfg.ControlBind = "tcp://127.0.0.1:0"
	}
	// Two agents on one machine can't have one port.
	if host, _, err := net.SplitHostPort(strings.TrimPrefix(cfg.ControlBind, "tcp://")); err == nil {
		cfg.ControlBind = "tcp://" + net.JoinHostPort(host, "0")
	}
	return cfg, nil
}

func (a *app) runDemo(f demoFlags) error {
	defer a.interruptible()()
	// The workers read the same environment: what is wrong with it is said once, here.
	cfg, err := demoConfig(os.Environ(), a.log)
	if err != nil {
		return err
	}
	parties, err := a.start(f, cfg)
	if err != nil {
		return err
	}
	return a.compare(f, parties, 0, 1)
}

// compare measures a transfer at a time over each path, from each of the parties that senders lists, ends the parties and prints the result.
func (a *app) compare(f demoFlags, parties []party, senders ...int) error {
	r, err := a.comparison(f, parties, senders)
	if err := endAll(parties, err); err != nil {
		return err
	}
	if a.json {
		return a.print(r)
	}
	r.print(a.out)
	return nil
}

func (a *app) comparison(f demoFlags, parties []party, senders []int) (*result, error) {
	l, err := layout.Preset(f.layout, f.seed)
	if err != nil {
		return nil, err
	}
	m := measurement{
		name: cmp.Or(f.name, "demo"), layout: l, preset: true, seed: f.seed, places: [2]ports.Place{f.memory.place, f.memory.place},
		legs: []leg{{pathBounce, 1}, {pathDirect, 1}}, senders: senders, rounds: f.rounds,
	}
	m.bar = a.progress(m.steps())
	got, err := m.run(parties)
	if err != nil {
		return nil, err
	}
	return newResult(f.engine, &m, got)
}

// endAll ends the parties. If something went wrong before, that alone is said, and soon: what ending them says mostly follows from it, and processes are not waited for.
func endAll(parties []party, err error) error {
	if err != nil {
		giveUpAll(parties, err)
		return err
	}
	var ends []error
	for _, p := range parties {
		ends = append(ends, p.end())
	}
	return errors.Join(ends...)
}

// giveUpAll ends processes at once, and agents of this process as they like. failed is why.
func giveUpAll(parties []party, failed error) {
	for _, p := range parties {
		switch p := p.(type) {
		case interface{ giveUp() }:
			p.giveUp()
		case interface{ endFailed(error) }:
			p.endFailed(failed)
		default:
			_ = p.end()
		}
	}
}

// startParties starts the two workers: processes, or agents of this one, as for the memory engine.
func (a *app) startParties(f demoFlags, cfg config.Config) ([]party, error) {
	if f.engine == engineMemory || f.oneProcess {
		var world *wiring.World
		if f.engine == engineMemory {
			world = wiring.NewWorld()
		}
		if f.memory.place.Kind == ports.Device {
			if err := allowSameProcess(); err != nil {
				return nil, err
			}
		}
		return []party{a.newWorker(cfg, world), a.newWorker(cfg, world)}, nil
	}
	var parties []party
	stderr := &lockedWriter{w: a.err}
	for range 2 {
		p, err := spawn(stderr, a.verbose)
		if err != nil {
			for _, q := range parties {
				q.(*process).giveUp()
			}
			return nil, err
		}
		parties = append(parties, p)
	}
	return parties, nil
}

// newWorker is a worker in this process, over NIXL without a world.
func (a *app) newWorker(cfg config.Config, world *wiring.World) *worker {
	return &worker{cfg: cfg, world: world, log: a.log, failStop: a.failStop}
}

// allowSameProcess lets UCX move GPU memory between two agents of this process over CUDA IPC, unless the environment says something else. UCX reads this when NIXL is loaded.
func allowSameProcess() error {
	const variable = "UCX_CUDA_IPC_ENABLE_SAME_PROCESS"
	if _, set := os.LookupEnv(variable); set {
		return nil
	}
	return os.Setenv(variable, "y")
}

// progress shows how far long work has come, on a terminal.
func (a *app) progress(steps int) *progressbar.ProgressBar {
	w := io.Discard
	if file, ok := a.err.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		w = a.err
	}
	return progressbar.NewOptions(steps, progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(40), progressbar.OptionClearOnFinish(), progressbar.OptionSetDescription("transfers"))
}
