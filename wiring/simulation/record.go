package simulation

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Record is a run written down: what was done and what went wrong, in place of what the seed would draw. The rest (sizes, times) the seed gives.
type Record struct {
	Scenario *Scenario
	Seed     uint64
	Peers    int
	Requests int
	Small    int      // number of a configuration of --exhaustive, from 1, instead of a scenario; 0: none
	Without  []string // agents that are left out
	Ops      []Op
	Choices  []Choice
	Rule     string // that it broke; "" if none
	Text     string
}

const recordHeader = "# kvbounce simulation 1"

func newRecord(w *World) *Record {
	r := &Record{Scenario: w.setup.scenario, Seed: w.setup.seed, Small: w.setup.small, Peers: w.setup.peers, Requests: w.setup.wanted, Without: w.setup.without, Ops: w.setup.ops, Choices: w.chooser.made}
	if v := w.oracle.violation; v != nil {
		r.Rule, r.Text = v.Rule, v.Text
	}
	return r
}

// String is the record as a file.
func (r *Record) String() string {
	var b strings.Builder
	fmt.Fprintln(&b, recordHeader)
	if r.Rule != "" {
		fmt.Fprintf(&b, "# broke %s: %s\n", r.Rule, strings.ReplaceAll(r.Text, "\n", " "))
	}
	if r.Small > 0 {
		fmt.Fprintf(&b, "exhaustive %d\n", r.Small)
	} else {
		fmt.Fprintf(&b, "scenario %s\nseed %d\n", r.Scenario.Name, r.Seed)
	}
	if r.Peers > 0 {
		fmt.Fprintf(&b, "peers %d\n", r.Peers)
	}
	if r.Requests > 0 {
		fmt.Fprintf(&b, "requests %d\n", r.Requests)
	}
	for _, name := range r.Without {
		fmt.Fprintf(&b, "without %s\n", name)
	}
	for _, o := range r.Ops {
		fmt.Fprintln(&b, o)
	}
	for _, c := range r.Choices {
		fmt.Fprintln(&b, c)
	}
	return b.String()
}

// ParseRecord reads what String wrote. find finds scenarios by name, Load for those that are built in.
func ParseRecord(text string, find func(name string) (*Scenario, error)) (*Record, error) {
	r := &Record{}
	if !strings.HasPrefix(text, recordHeader) {
		return nil, fmt.Errorf("not a replay file: it does not begin with %q", recordHeader)
	}
	seeded := false
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if err := r.parseLine(words, find); err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		seeded = seeded || words[0] == "seed"
	}
	switch {
	case r.Scenario == nil:
		return nil, fmt.Errorf("no scenario is named: want a line scenario NAME, or exhaustive N")
	case r.Small == 0 && !seeded:
		return nil, fmt.Errorf("no seed is given: want a line seed N, from 0 to %d", uint64(math.MaxUint64))
	}
	return r, nil
}

func (r *Record) parseLine(words []string, find func(string) (*Scenario, error)) (err error) {
	switch {
	case words[0] == "op":
		var o Op
		o, err = parseOp(words[1:])
		r.Ops = append(r.Ops, o)
	case words[0] == "fault":
		var c Choice
		c, err = parseChoice(words[1:])
		r.Choices = append(r.Choices, c)
	case words[0] == "order":
		var c Choice
		c, err = parseOrder(words[1:])
		r.Choices = append(r.Choices, c)
	case len(words) != 2:
		return fmt.Errorf("%q: want scenario, seed, exhaustive, peers, requests, without, op, fault or order", strings.Join(words, " "))
	case words[0] == "scenario":
		r.Scenario, err = find(words[1])
	case words[0] == "exhaustive":
		if r.Small, err = parseCount(words, len(smallWorlds())); err != nil {
			return err
		}
		r.Scenario = smallWorlds()[r.Small-1].setup().scenario
	case words[0] == "seed":
		if r.Seed, err = strconv.ParseUint(words[1], 10, 64); err != nil {
			return fmt.Errorf("%q: want seed 0 to %d", strings.Join(words, " "), uint64(math.MaxUint64))
		}
	case words[0] == "peers":
		r.Peers, err = parseCount(words, MaxPeers)
	case words[0] == "requests":
		r.Requests, err = parseCount(words, MaxRequests)
	case words[0] == "without":
		r.Without = append(r.Without, words[1])
	default:
		return fmt.Errorf("%q: want scenario, seed, exhaustive, peers, requests, without, op, fault or order", words[0])
	}
	return err
}

// parseCount reads a line of a word and a number from 1 to most.
func parseCount(words []string, most int) (int, error) {
	n, err := strconv.Atoi(words[1])
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%q: want %s 1 to %d", strings.Join(words, " "), words[0], most)
	}
	return n, nil
}

// Replay makes the run again.
func (r *Record) Replay(o Options) *Result {
	c := newChooser(nil)
	c.replayed(r.Choices)
	return runSetup(r.setup(), c, o)
}

func (r *Record) setup() *setup {
	var u *setup
	if r.Small > 0 {
		u = smallWorlds()[r.Small-1].setup()
	} else {
		u = newSetup(r.Scenario, r.Seed, Override{Peers: r.Peers, Requests: r.Requests})
	}
	u.ops = r.Ops
	u.without = r.Without
	u.agents = slices.DeleteFunc(u.agents, func(a agentSetup) bool { return slices.Contains(r.Without, a.name) })
	return u
}

// agents are the names of the agents that take part.
func (r *Record) agents() []string {
	var names []string
	for _, a := range r.setup().agents {
		names = append(names, a.name)
	}
	return names
}
