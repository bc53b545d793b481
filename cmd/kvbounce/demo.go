package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

// Engines of the demo.
const (
	engineNIXL   = "nixl"
	engineMemory = "memory"
)

type demoFlags struct {
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
			if err := f.check(); err != nil {
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

// check says what is wrong with the flags.
func (f demoFlags) check() error {
	switch {
	case f.engine != engineNIXL && f.engine != engineMemory:
		return badUsage("engine", "--engine is %q, allowed are %q and %q", f.engine, engineNIXL, engineMemory)
	case f.engine == engineMemory && f.memory.place.Kind != ports.Host:
		return badUsage("memory", "--memory is %q, allowed with --engine memory is %q", f.memory.place.Kind, ports.Host)
	case f.rounds < 1 || f.rounds > 10000:
		return badUsage("rounds", "--rounds is %d, allowed is 1 to 10000", f.rounds)
	}
	if _, err := layout.Preset(f.layout, f.seed); err != nil {
		return badUsage("layout", "--layout: %v", err)
	}
	return nil
}

// demoConfig are the settings of the environment and its file with bounce on, and on loopback unless they say where.
func demoConfig(environ []string, log *slog.Logger) (config.Config, error) {
	settings, err := wiring.ReadSettings(environ)
	cfg := settings.Config
	if err != nil {
		return cfg, err
	}
	for _, w := range settings.Warnings {
		log.Warn(w)
	}
	cfg.Enable = true
	if cfg.ControlBind == config.Default().ControlBind {
		cfg.ControlBind = "tcp://127.0.0.1:0"
	}
	// Two agents on one machine can't have one port.
	if host, _, err := net.SplitHostPort(strings.TrimPrefix(cfg.ControlBind, "tcp://")); err == nil {
		cfg.ControlBind = "tcp://" + net.JoinHostPort(host, "0")
	}
	return cfg, nil
}

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

func (a *app) runDemo(f demoFlags) (err error) {
	// The workers read the same environment: what is wrong with it is said once, here.
	cfg, err := demoConfig(os.Environ(), a.log)
	if err != nil {
		return err
	}
	parties, err := a.demoParties(f, cfg)
	if err != nil {
		return err
	}
	defer func() { err = endAll(parties, err) }()
	r, err := a.measure(f, parties, []int{0, 1})
	if err != nil {
		return err
	}
	if a.json {
		return a.print(r)
	}
	printResult(a.out, r)
	return nil
}

// endAll ends the parties. What ending them says matters only if nothing went wrong before: it mostly follows from that.
func endAll(parties []party, err error) error {
	var ends []error
	for _, p := range parties {
		ends = append(ends, p.end())
	}
	if err != nil {
		return err
	}
	return errors.Join(ends...)
}

// demoParties starts the two workers: processes, or agents of this one, as for the memory engine.
func (a *app) demoParties(f demoFlags, cfg config.Config) ([]party, error) {
	if f.engine == engineMemory || f.oneProcess {
		var world *wiring.World
		if f.engine == engineMemory {
			world = wiring.NewWorld()
		}
		return []party{&worker{cfg: cfg, world: world, log: a.log}, &worker{cfg: cfg, world: world, log: a.log}}, nil
	}
	var parties []party
	stderr := &lockedWriter{w: a.err}
	for range 2 {
		p, err := spawn(stderr, a.verbose)
		if err != nil {
			for _, q := range parties {
				err = errors.Join(err, q.end())
			}
			return nil, err
		}
		parties = append(parties, p)
	}
	return parties, nil
}

// introduce opens both workers and makes each known to the other.
func introduce(f demoFlags, parties []party) ([]reply, error) {
	var opened []reply
	// Both have one name, so that one pair of CURVE keys in the environment serves both.
	for _, p := range parties {
		r, err := p.do(call{Op: "open", Name: "demo", Layout: f.layout, Seed: f.seed, Place: f.memory.place})
		if err != nil {
			return nil, err
		}
		opened = append(opened, r)
	}
	for i, p := range parties {
		other := opened[1-i]
		r, err := p.do(call{Op: "add", Desc: other.Desc, DstBase: other.DstBase, Place: other.Place})
		if err != nil {
			return nil, err
		}
		if !r.Bounce {
			return nil, fmt.Errorf("bounce is off between the two agents: %s", r.Reason)
		}
	}
	return opened, nil
}

// controlOf is the control channel in an agent's description.
func controlOf(desc []byte) (string, error) {
	d, err := agent.ParseAgentDesc(desc)
	if err != nil {
		return "", err
	}
	var h wire.Handshake
	err = h.Decode(d.Bounce)
	return h.Control.String(), err
}

// measure moves the layout over both paths from each of the parties that senders lists, in turn, and checks every byte.
func (a *app) measure(f demoFlags, parties []party, senders []int) (*result, error) {
	opened, err := introduce(f, parties)
	if err != nil {
		return nil, err
	}
	l, err := layout.Preset(f.layout, f.seed)
	if err != nil {
		return nil, err
	}
	control, err := controlOf(opened[0].Desc)
	if err != nil {
		return nil, err
	}
	res := &result{Engine: f.engine, Control: control, Memory: f.memory.place.Kind.String(), engineVersion: opened[0].EngineVersion, bothWays: len(senders) == 2}
	res.Layout = layoutResult{Name: f.layout, Descriptors: len(l.Src)}
	for _, d := range l.Src {
		res.Layout.Bytes += d.Bytes
	}
	bar := a.progress(2 * len(senders) * (f.rounds + warmUps))
	took := map[string][]time.Duration{}
	var stages []transport.Stages
	for round := range f.rounds + warmUps {
		for _, path := range []string{"bounce", "direct"} {
			for _, from := range senders {
				r, checked, err := transferAndCheck(f, parties, from, path, uint64(round))
				if err != nil {
					return nil, fmt.Errorf("%s transfer %d from %s: %w", path, round, opened[from].Identity, err)
				}
				res.Checked += checked
				_ = bar.Add(1)
				if round < warmUps {
					continue
				}
				took[path] = append(took[path], r.Took)
				if path == "bounce" {
					stages = append(stages, r.Stages)
				}
			}
		}
	}
	_ = bar.Finish()
	res.Bounce, res.Direct = summarize(took["bounce"], res.Layout.Bytes), summarize(took["direct"], res.Layout.Bytes)
	res.Speedup = res.Direct.P50 / res.Bounce.P50
	res.Stages = medianStages(stages)
	res.Verified = true
	res.DataBytes, err = dataBytes(l, f.memory.place.Kind)
	return res, err
}

// warmUps are rounds that are checked but not measured: the first touch of memory and the engine's wire-up are theirs.
const warmUps = 1

// transferAndCheck moves the layout once and checks the destination.
func transferAndCheck(f demoFlags, parties []party, from int, path string, round uint64) (r reply, checked uint64, err error) {
	sender, receiver := parties[from], parties[1-from]
	if _, err = receiver.do(call{Op: "poison"}); err != nil {
		return r, 0, err
	}
	// Both directions and both paths write other bytes.
	round = round<<2 | uint64(from)<<1
	if path == "direct" {
		round |= 1
	}
	if _, err = sender.do(call{Op: "start", Path: path, Seed: f.seed, Round: round}); err != nil {
		return r, 0, err
	}
	if r, err = sender.do(call{Op: "wait"}); err != nil {
		return r, 0, err
	}
	if r.Failure != "" {
		return r, 0, errors.New(r.Failure)
	}
	c, err := receiver.do(call{Op: "check", Seed: f.seed, Round: round})
	return r, c.Checked, err
}

// progress shows how far long work has come, on a terminal.
func (a *app) progress(steps int) *progressbar.ProgressBar {
	w := io.Discard
	if file, ok := a.err.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		w = a.err
	}
	return progressbar.NewOptions(steps, progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(40), progressbar.OptionClearOnFinish(), progressbar.OptionSetDescription("transfers"))
}
