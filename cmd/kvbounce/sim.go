package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kvbounce/kvbounce/wiring/simulation"
)

type simFlags struct {
	seed       uint64
	seeds      string
	scenario   string
	peers      int
	requests   int
	replay     string
	shrink     string
	output     string
	exhaustive bool
}

func (a *app) sim() *cobra.Command {
	var f simFlags
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run the core in virtual time under every fault, and check it",
		Long: `Run the real core in a deterministic simulator: virtual time, simulated memory, network, engine and
copy device, faults of each kind, and an oracle that checks every access to memory and every
statement. The same scenario and seed do the same on every machine.

Scenarios: ` + strings.Join(simulation.Names(), ", ") + `; or a file of your own.
A run that breaks a rule exits 1 and writes a file for --replay and --shrink. An example of such a
file, of a run without a violation, is in the repository: wiring/simulation/testdata/replays.`,
		Example: "  kvbounce sim --scenario all --seeds 1..1000\n  kvbounce sim --scenario loss --seed 7 --json\n  kvbounce sim --replay wiring/simulation/testdata/replays/late-write.txt\n  kvbounce sim --exhaustive",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.runSim(f, cmd.Flags().Changed) },
	}
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "run one seed")
	cmd.Flags().StringVar(&f.seeds, "seeds", "", "run seeds A..B")
	cmd.Flags().StringVar(&f.scenario, "scenario", "all", "a scenario's name or file")
	cmd.Flags().IntVar(&f.peers, "peers", 0, "how many agents send, instead of what the scenario says")
	cmd.Flags().IntVar(&f.requests, "requests", 0, "how many requests are submitted, at the same rate, instead of what the scenario says")
	cmd.Flags().StringVar(&f.replay, "replay", "", "run what this file says, and print every step")
	cmd.Flags().StringVar(&f.shrink, "shrink", "", "reduce what this file says to the least that breaks the same rule")
	cmd.Flags().StringVar(&f.output, "output", "", "the file that a violation or --shrink writes, instead of sim-SCENARIO-SEED.txt")
	cmd.Flags().BoolVar(&f.exhaustive, "exhaustive", false, "explore every order of events and every fault of small configurations of its own, which takes minutes: --scenario and --peers say nothing of them")
	return cmd
}

// runSim runs what the flags say; given tells which of them the command line has.
func (a *app) runSim(f simFlags, given func(flag string) bool) error {
	chosen := 0
	for _, is := range []bool{given("seed"), given("seeds"), given("replay"), given("shrink"), f.exhaustive} {
		if is {
			chosen++
		}
	}
	if given("replay") || given("shrink") {
		for _, flag := range []string{"scenario", "peers", "requests"} {
			if given(flag) {
				return badUsage(flag, "--%s is not for --replay and --shrink: their file says it", flag)
			}
		}
	}
	switch {
	case chosen > 1:
		return badUsage("seed", "sim takes one of --seed, --seeds, --replay, --shrink and --exhaustive")
	case f.peers < 0 || f.peers > simulation.MaxPeers:
		return badUsage("peers", "--peers %d: want 1 to %d, or 0 for what the scenario says", f.peers, simulation.MaxPeers)
	case f.requests < 0 || f.requests > simulation.MaxRequests:
		return badUsage("requests", "--requests %d: want 1 to %d, or 0 for what the scenario says", f.requests, simulation.MaxRequests)
	case given("replay"):
		return a.replaySim(f)
	case given("shrink"):
		return a.shrinkSim(f)
	case f.exhaustive:
		return a.exploreSim(f)
	}
	s, err := findScenario(f.scenario)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return badUsage("scenario", "--scenario: %v", err)
	case err != nil:
		return &fieldError{"scenario", fmt.Errorf("--scenario: %w", err)}
	}
	o := simulation.Options{Override: simulation.Override{Peers: f.peers, Requests: f.requests}}
	if !given("seeds") {
		return a.simDone(f, simulation.Run(s, f.seed, o))
	}
	first, last, err := parseSeeds(f.seeds)
	if err != nil {
		return badUsage("seeds", "--seeds: %v", err)
	}
	bar := a.progress(int(last - first + 1))
	r := simulation.RunMany(s, first, last, o, func() { _ = bar.Add(1) })
	_ = bar.Finish()
	return a.simDone(f, r)
}

// maxSeeds bounds --seeds: the results of all runs are kept until the last.
const maxSeeds = 10_000_000

func parseSeeds(text string) (first, last uint64, err error) {
	low, high, ok := strings.Cut(text, "..")
	if !ok {
		return 0, 0, fmt.Errorf("%q: want A..B", text)
	}
	first, err1 := strconv.ParseUint(low, 10, 64)
	last, err2 := strconv.ParseUint(high, 10, 64)
	if err1 != nil || err2 != nil || last < first || last-first >= maxSeeds {
		return 0, 0, fmt.Errorf("%q: want A..B, whole numbers with A <= B, at most %d of them", text, maxSeeds)
	}
	return first, last, nil
}

// findScenario takes a name, or else a file. What is neither is os.ErrNotExist.
func findScenario(name string) (*simulation.Scenario, error) {
	s, err := simulation.Load(name)
	if err == nil {
		return s, nil
	}
	text, fileErr := os.ReadFile(name)
	if errors.Is(fileErr, os.ErrNotExist) {
		return nil, fmt.Errorf("%w; as a file: %w", err, fileErr)
	}
	if fileErr != nil {
		return nil, fileErr
	}
	return simulation.ParseScenario(name, string(text))
}

// errViolation is the failure of a run that broke a rule; its text was printed already.
type errViolation struct{ v simulation.Violation }

func (e *errViolation) Error() string {
	text := fmt.Sprintf("seed %d broke %s at step %d: %s", e.v.Seed, e.v.Rule, e.v.Step, e.v.Text)
	if e.v.Replay != "" {
		text += "; replay it with kvbounce sim --replay " + e.v.Replay
	}
	return text
}

// simDone writes the replay file of a violation, and prints the result.
func (a *app) simDone(f simFlags, r *simulation.Result) error {
	var failed error
	if r.Record != nil {
		file, err := a.saveRecord(f, r.Record)
		if err != nil { // the violation is to be told all the same
			return &fieldError{"output", fmt.Errorf("%w; its replay file can't be written: %w; run the seed again with another --output", &errViolation{r.Violations[0]}, err)}
		}
		r.Violations[0].Replay = file
		failed = &errViolation{r.Violations[0]}
	}
	if a.json {
		if err := a.print(r); err != nil {
			return err
		}
		if failed != nil {
			return errReported
		}
		return nil
	}
	printSim(a.out, r)
	return failed
}

// saveRecord writes a replay file and returns its name.
func (a *app) saveRecord(f simFlags, r *simulation.Record) (string, error) {
	file := f.output
	if file == "" {
		base := strings.TrimSuffix(filepath.Base(r.Scenario.Name), filepath.Ext(r.Scenario.Name))
		file = fmt.Sprintf("sim-%s-%d.txt", base, r.Seed)
	}
	return file, os.WriteFile(file, []byte(r.String()), 0o644)
}

func printSim(out io.Writer, r *simulation.Result) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("scenario", "%s", r.Scenario)
	if r.Runs > 0 {
		row("seeds", "%d..%d", r.Seed, r.Seed+uint64(r.Runs)-1)
	} else {
		row("seed", "%d", r.Seed)
	}
	q, x := r.Requests, r.Faults
	row("requests", "%d submitted: %d succeeded, %d failed, %d cancelled; %d quiesced, %d in doubt", q.Submitted, q.Succeeded, q.Failed, q.Cancelled, q.Quiesced, q.InDoubt)
	row("faults", "frames %d lost, %d twice, %d late, %d refused; writes %d bad, %d of them late; %d bad copies; %d crashes", x.Lost, x.Duplicated, x.Reordered, x.Refused, x.BadWrites, x.LateWrites, x.BadCopies, x.Crashes)
	o := r.Ownership
	row("ownership", "%d windows, %d deregistrations, %d fences, %d frames of fenced peers dropped, %d fail-stops", o.Windows, o.Deregisters, o.Fences, o.LateFrames, o.FailStops)
	row("sessions", "%d, of which %d released; by the limit on what is retained %d requests refused, %d sent directly, %d bounced after it", o.Sessions, o.Released, o.Retained, o.Rerouted, o.Regained)
	row("events", "%d in %d steps, %.3f s of virtual time, %.3f s of real time", r.Events, r.Steps, float64(r.VirtualUS)/1e6, r.WallMS/1e3)
	if f := r.Fairness; f != nil {
		row("fairness", "%d senders, goodput max/min %.2f, grant wait p50 %.0f us, p99 %.0f us", f.Senders, f.GoodputMaxToMin, f.GrantWaitP50US, f.GrantWaitP99US)
	}
	if r.Complete != nil {
		row("explored", "%d executions, %d states, complete: %t", r.Executions, r.States, *r.Complete)
	}
	row("digest", "%s", r.Digest)
	row("violations", "%d", len(r.Violations))
	_ = w.Flush()
	for i, v := range r.Violations {
		if i == 20 {
			fmt.Fprintf(out, "and %d more\n", len(r.Violations)-i)
			break
		}
		fmt.Fprintf(out, "seed %d, step %d: %s: %s\n", v.Seed, v.Step, v.Rule, v.Text)
	}
}

func readRecord(file string) (*simulation.Record, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w; want a file that a violation wrote", err)
	}
	r, err := simulation.ParseRecord(string(text), findScenario)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

func (a *app) replaySim(f simFlags) error {
	r, err := readRecord(f.replay)
	if err != nil {
		return &fieldError{"replay", fmt.Errorf("--replay: %w", err)}
	}
	log := a.out
	if a.json {
		log = a.err
	}
	result := r.Replay(simulation.Options{Log: func(format string, args ...any) { fmt.Fprintf(log, format+"\n", args...) }})
	if len(result.Violations) > 0 {
		result.Violations[0].Replay = f.replay
		result.Record = nil
	}
	if a.json {
		if err := a.print(result); err != nil {
			return err
		}
	} else {
		printSim(a.out, result)
	}
	if len(result.Violations) > 0 {
		if a.json {
			return errReported
		}
		return &errViolation{result.Violations[0]}
	}
	return nil
}

func (a *app) shrinkSim(f simFlags) error {
	r, err := readRecord(f.shrink)
	if err != nil {
		return &fieldError{"shrink", fmt.Errorf("--shrink: %w", err)}
	}
	bar := a.progress(-1)
	small := r.Shrink(simulation.Options{}, func() { _ = bar.Add(1) })
	_ = bar.Finish()
	if small == nil {
		return &fieldError{"shrink", fmt.Errorf("--shrink: %s breaks no rule, so there is nothing to shrink", f.shrink)}
	}
	if f.output == "" {
		f.output = strings.TrimSuffix(f.shrink, filepath.Ext(f.shrink)) + "-small.txt"
	}
	file, err := a.saveRecord(f, small)
	if err != nil {
		return err
	}
	if a.json {
		return a.print(struct {
			File   string `json:"file"`
			Ops    int    `json:"ops"`
			Faults int    `json:"faults"`
			Rule   string `json:"rule"`
			Text   string `json:"text"`
		}{file, len(small.Ops), len(small.Choices), small.Rule, small.Text})
	}
	fmt.Fprintf(a.out, "%s: %s\n%d of %d operations and %d of %d faults are left, in %s\n", small.Rule, small.Text, len(small.Ops), len(r.Ops), len(small.Choices), len(r.Choices), file)
	return nil
}

// exploreLimit is how many executions --exhaustive gives one configuration.
const exploreLimit = 5_000_000

func (a *app) exploreSim(f simFlags) error {
	bar := a.progress(-1)
	explored := simulation.Explore(exploreLimit, simulation.Options{}, func() { _ = bar.Add(1) })
	_ = bar.Finish()
	sum := simulation.Sum(explored)
	if !a.json {
		printExplored(a.out, explored)
	}
	err := a.simDone(f, sum)
	if err == nil && !*sum.Complete {
		return errReported
	}
	return err
}

func printExplored(out io.Writer, explored []*simulation.Exploration) {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "configuration\texecutions\tstates\tleft")
	for _, x := range explored {
		left := "none"
		switch {
		case len(x.Violations) > 0:
			left = "stopped: " + x.Violations[0].Rule
		case !*x.Complete:
			left = "more than the limit"
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", x.Name, x.Executions, x.States, left)
	}
	_ = w.Flush()
}
