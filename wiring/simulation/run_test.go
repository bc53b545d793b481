package simulation

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The digests of a few seeds are the same on every machine. They change with every change of the core or of the simulator that changes what happens; then
// this file is made anew with KVBOUNCE_REWRITE=1.
const digestsFile = "testdata/digests.txt"

// digestSeeds are the seeds of each scenario in digestsFile.
const digestSeeds = 2

func TestDigests(t *testing.T) {
	var now strings.Builder
	for _, name := range []string{"baseline", "both-ways", "all"} {
		s, err := Load(name)
		require.NoError(t, err)
		for seed := uint64(1); seed <= digestSeeds; seed++ {
			first, again := Run(s, seed, Options{}), Run(s, seed, Options{})
			require.Equal(t, first.Digest, again.Digest, "two runs of %s, seed %d", name, seed)
			require.Equal(t, first.Events, again.Events)
			fmt.Fprintf(&now, "%s %d %s\n", name, seed, first.Digest)
		}
	}
	if os.Getenv("KVBOUNCE_REWRITE") != "" {
		require.NoError(t, os.WriteFile(digestsFile, []byte(now.String()), 0o644))
	}
	committed, err := os.ReadFile(digestsFile)
	require.NoError(t, err)
	require.Equal(t, string(committed), now.String(), "run the test with KVBOUNCE_REWRITE=1 if what happens was changed knowingly")
}

// TestScenariosAreClean runs each scenario over some seeds, and sees that its faults happen.
func TestScenariosAreClean(t *testing.T) {
	covered := Coverage{}
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			s, err := Load(name)
			require.NoError(t, err)
			r := RunMany(s, 1, 8, Options{}, nil)
			require.Empty(t, r.Violations)
			for what, n := range r.Coverage {
				covered[what] += n
			}
			q := r.Requests
			require.Equal(t, q.Submitted, q.Succeeded+q.Failed+q.Cancelled)
			require.Equal(t, q.Submitted, q.Quiesced+q.InDoubt)
			require.NotZero(t, q.Succeeded)
			f, o := r.Faults, r.Ownership
			for _, fault := range map[string][]int{
				"loss": {f.Lost, f.Refused}, "reorder": {f.Lost, f.Duplicated, f.Reordered}, "cancel-storm": {q.Cancelled, o.Deregisters}, "late-writes": {f.LateWrites, f.BadWrites, q.InDoubt, o.Fences},
				"sessions": {o.Sessions, o.Released, q.Cancelled, f.Crashes}, "retain": {o.Retained, o.Rerouted, o.Regained, o.Fences},
				"peer-death": {f.Crashes, q.InDoubt, o.Fences}, "restart": {f.Crashes, f.Reordered, o.Fences, o.LateFrames}, "fail-stop": {o.FailStops, f.BadWrites, q.InDoubt}, "windows": {o.Windows, f.Crashes, o.Deregisters, q.Failed}, "multi-writer": {o.Windows, f.Lost, q.Failed}, "slow-copies": {f.BadCopies},
				"all": {f.Lost, f.Duplicated, f.Reordered, f.LateWrites, f.BadCopies, f.Crashes, q.Cancelled, o.Fences, o.Windows},
			}[name] {
				require.NotZero(t, fault)
			}
		})
	}
	if t.Failed() {
		return
	}
	var never []string
	for _, what := range evidences {
		if covered[what] == 0 {
			never = append(never, what)
		}
	}
	for fault := range faultNames {
		if covered[fault] == 0 {
			never = append(never, fault)
		}
	}
	require.Empty(t, never, "what the scenarios never make happen")
	for what := range covered {
		_, fault := faultNames[what]
		require.True(t, fault || slices.Contains(evidences, what), "%s is counted, and no list has it", what)
	}
}

// TestSeedsAreSummedInOrder holds a sum over seeds against its parts.
func TestSeedsAreSummedInOrder(t *testing.T) {
	s, err := Load("reorder")
	require.NoError(t, err)
	all, again := RunMany(s, 3, 8, Options{}, nil), RunMany(s, 3, 8, Options{}, nil)
	require.Equal(t, all.Digest, again.Digest)
	require.Equal(t, 6, all.Runs)
	submitted := 0
	for seed := uint64(3); seed <= 8; seed++ {
		submitted += Run(s, seed, Options{}).Requests.Submitted
	}
	require.Equal(t, submitted, all.Requests.Submitted)
}

// TestScale runs many senders, each with several requests at once: all are served, and about alike.
func TestScale(t *testing.T) {
	s, err := Load("scale")
	require.NoError(t, err)
	r := Run(s, 1, Options{Override: Override{Peers: 100}})
	require.Empty(t, r.Violations)
	require.Equal(t, 400, r.Requests.Succeeded)
	require.Equal(t, 100, r.Fairness.Senders)
	require.Less(t, r.Fairness.GoodputMaxToMin, 20.0)
}

// broken is a scenario that asks for what can't be: every request succeeds although writes fail.
const broken = "must_succeed 1\nfault write nothing-posted 200000 20\nfault frame late 100000 20\n"

// TestReplayAndShrink writes a violation down, replays it from the text, and shrinks it to one request and one fault.
func TestReplayAndShrink(t *testing.T) {
	s, err := ParseScenario("broken", broken)
	require.NoError(t, err)
	find := func(string) (*Scenario, error) { return s, nil }
	r := RunMany(s, 1, 4, Options{}, nil)
	require.NotEmpty(t, r.Violations)
	require.Equal(t, "lost-request", r.Violations[0].Rule)

	record, err := ParseRecord(r.Record.String(), find)
	require.NoError(t, err)
	require.Equal(t, r.Record.Ops, record.Ops)
	require.Equal(t, r.Record.Choices, record.Choices)
	lines := 0
	once := Run(s, record.Seed, Options{})
	again := record.Replay(Options{Log: func(string, ...any) { lines++ }})
	require.Equal(t, once.Digest, again.Digest, "a replay is the run that was written down")
	require.Equal(t, once.Violations, again.Violations)
	require.NotZero(t, lines)

	small := record.Shrink(Options{}, nil)
	require.NotNil(t, small)
	require.Equal(t, "lost-request", small.Rule)
	require.Len(t, small.Ops, 2, "%s", small) // the introduction and the request
	require.Len(t, small.Choices, 1, "%s", small)
	text, err := ParseRecord(small.String(), find)
	require.NoError(t, err)
	require.Equal(t, "lost-request", text.Replay(Options{}).Violations[0].Rule)

	s, err = Load("baseline")
	require.NoError(t, err)
	require.Nil(t, (&Record{Scenario: s, Seed: 1}).Shrink(Options{}, nil), "nothing is broken")
}

func TestBadFilesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"sender 1":              "known key",
		"senders":               "known key",
		"senders 3..1":          "LOW..HIGH",
		"senders x":             "whole number",
		"fault frame eaten 1 1": "no fault",
		"fault frame lost 1":    "want fault",
		"lease 100":             "above 100",
		"receivers 0":           "a receiver",
		"granule 0":             "granule must be at least 1",
	} {
		_, err := ParseScenario("x", text)
		require.ErrorContains(t, err, want, text)
	}
	for text, want := range map[string]string{
		"":                                          "does not begin",
		recordHeader + "\nseed 1":                   "no scenario",
		recordHeader + "\nscenario nothing":         "no scenario",
		recordHeader + "\nnonsense 1":               "want scenario",
		recordHeader + "\nop 1ms dance":             "no verb",
		recordHeader + "\nop soon submit":           "want a time",
		recordHeader + "\nop 1ms submit path=air":   "bounce, direct",
		recordHeader + "\nop 1ms submit pages=9999": "1 to 4096",
		recordHeader + "\nop 1ms submit wings=2":    "no such key",
		recordHeader + "\nfault frame eaten n=1":    "no fault",
		recordHeader + "\nfault frame lost n=0":     "from 1",
		recordHeader + "\nfault frame lost n=5x":    `line 2: "n=5x": want a number from 1`,
		recordHeader + "\norder n=0 option=1":       "at least 1",
		recordHeader + "\norder n=1 option=1x":      "line 2: want order n=N option=M",
		recordHeader + "\norder n=1 option=1 n=2":   "line 2: want order n=N option=M",
		recordHeader + "\nexhaustive 99":            "exhaustive 1 to",
		recordHeader + "\nexhaustive 1x":            `line 2: "exhaustive 1x": want exhaustive 1 to`,
		recordHeader + "\nscenario loss":            "no seed is given: want a line seed N",
		recordHeader + "\nseed 5x":                  `line 2: "seed 5x": want seed 0 to 18446744073709551615`,
		recordHeader + "\nseed -1":                  `line 2: "seed -1": want seed 0 to`,
		recordHeader + "\n\npeers -4":               `line 3: "peers -4": want peers 1 to 100000`,
		recordHeader + "\npeers 3x":                 `line 2: "peers 3x": want peers 1 to`,
		recordHeader + "\npeers 100001":             `line 2: "peers 100001": want peers 1 to`,
		recordHeader + "\nrequests 0":               `line 2: "requests 0": want requests 1 to 10000000`,
		recordHeader + "\nrequests 2.5":             `line 2: "requests 2.5": want requests 1 to`,
	} {
		_, err := ParseRecord(text, Load)
		require.ErrorContains(t, err, want, text)
	}
	for _, good := range []string{"scenario loss\nseed 0", "seed 18446744073709551615\nscenario loss\npeers 100000\nrequests 10000000", "exhaustive 1\norder n=1 option=2"} {
		_, err := ParseRecord(recordHeader+"\n"+good, Load)
		require.NoError(t, err, good)
	}
	_, err := Load("nothing")
	require.ErrorContains(t, err, "baseline")
}

// TestStoryErrorsNameTheLine sees that a story that goes wrong says where.
func TestStoryErrorsNameTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"fly a b":                           "line 1: fly a b: there is no verb",
		"add s1 r1\ntick":                   "line 2",
		"add s1 r1\nset granule 64":         "before all else",
		"tick 1ms\nsubmit 1 s1 r1 bounce 2": "refused", // they do not know each other
		"deliver WANT s1 r1":                "no such frame",
		"expect request 1 succeeded":        "no request 1",
		"expect blocks r1 7":                "holds 0",
		"expect sent WANT s1 r1 1":          "sent 0",
		"expect rain":                       "want request",
		"transfer s1 flies":                 "no fate",
		"add s1 r1\ntick 1ms\nsubmit 1 s1 r1 bounce 2\nexpect request 1 succeeded": "it is in progress",
	} {
		require.ErrorContains(t, PlayStory(text, Options{}), want, text)
	}
}

// BenchmarkRun measures events a second on one core.
func BenchmarkRun(b *testing.B) {
	for _, name := range []string{"all", "both-ways", "scale"} {
		b.Run(name, func(b *testing.B) {
			s, err := Load(name)
			require.NoError(b, err)
			var events, seed uint64
			for b.Loop() {
				seed++
				events += Run(s, seed, Options{}).Events
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// TestCancelStorm cancels most of some thousand requests, each at a random moment of its life, with messages lost and late. More of them: kvbounce sim --scenario cancel-storm --requests 100000.
func TestCancelStorm(t *testing.T) {
	s, err := Load("cancel-storm")
	require.NoError(t, err)
	r := Run(s, 3, Options{Override: Override{Requests: 2000}})
	require.Empty(t, r.Violations)
	require.Equal(t, 2000, r.Requests.Submitted)
	require.Greater(t, r.Requests.Cancelled, 500)
	require.Equal(t, 2000, r.Requests.Quiesced)
	for _, at := range []string{"gathering", "writing", "scattering"} {
		require.NotZero(t, r.Coverage["cancelled while "+at], at)
	}
}
