package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/wiring/simulation"
)

func runSim(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(append([]string{"sim"}, args...), streams{in: strings.NewReader(""), out: &stdout, err: &stderr})
	return code, stdout.String(), stderr.String()
}

func TestSimJSON(t *testing.T) {
	code, out, _ := runSim(t, "--scenario", "loss", "--seeds", "1..4", "--json")
	require.Equal(t, exitOK, code, out)
	var r map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	for _, key := range []string{"seed", "runs", "scenario", "steps", "requests", "faults", "violations", "virtual_us", "wall_ms", "events", "digest"} {
		require.Contains(t, r, key)
	}
	require.EqualValues(t, 4, r["runs"])
	require.Len(t, r["digest"], 64)
	require.Equal(t, []any{}, r["violations"])
	q := r["requests"].(map[string]any)
	require.Equal(t, q["submitted"], q["succeeded"].(float64)+q["failed"].(float64)+q["cancelled"].(float64))
	for _, key := range []string{"lost", "duplicated", "reordered", "late_writes", "crashes"} {
		require.Contains(t, r["faults"], key)
	}
	_, again, _ := runSim(t, "--scenario", "loss", "--seeds", "1..4", "--json")
	var other map[string]any
	require.NoError(t, json.Unmarshal([]byte(again), &other))
	require.Equal(t, r["digest"], other["digest"])

	code, out, _ = runSim(t, "--scenario", "loss", "--seed", "2", "--json")
	require.Equal(t, exitOK, code)
	r = nil
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.EqualValues(t, 2, r["seed"])
	require.NotContains(t, r, "runs")
}

func TestSimTable(t *testing.T) {
	code, out, errs := runSim(t, "--scenario", "baseline", "--seed", "3")
	require.Equal(t, exitOK, code, errs)
	for _, word := range []string{"scenario", "baseline", "requests", "succeeded", "digest", "violations"} {
		require.Contains(t, out, word)
	}
	require.Empty(t, errs, "no progress bar where there is no terminal")
}

// TestSimViolation breaks a scenario that can't hold: it exits 1, writes a file, and the file replays and shrinks.
func TestSimViolation(t *testing.T) {
	dir := t.TempDir()
	scenario, file := filepath.Join(dir, "broken.txt"), filepath.Join(dir, "found.txt")
	require.NoError(t, os.WriteFile(scenario, []byte("must_succeed 1\nfault write nothing-posted 300000 20\n"), 0o644))
	code, out, errs := runSim(t, "--scenario", scenario, "--seeds", "1..3", "--json", "--output", file)
	require.Equal(t, exitFailed, code)
	require.Empty(t, errs)
	var r struct {
		Violations []struct {
			Seed   uint64
			Step   uint64
			Rule   string
			Text   string
			Replay string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.NotEmpty(t, r.Violations)
	require.Equal(t, "lost-request", r.Violations[0].Rule)
	require.Equal(t, file, r.Violations[0].Replay)

	code, out, errs = runSim(t, "--replay", file)
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, "WANT request=1")
	require.Contains(t, out, "VIOLATION lost-request")
	require.Contains(t, errs, "broke lost-request")

	code, out, errs = runSim(t, "--shrink", file)
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "3 of 16 operations and 1 of 1 faults are left")
	small, err := os.ReadFile(filepath.Join(dir, "found-small.txt"))
	require.NoError(t, err)
	require.Contains(t, string(small), "fault write nothing-posted")
}

// A violation is told even where its replay file can't be written.
func TestSimViolationWithoutAFile(t *testing.T) {
	dir := t.TempDir()
	scenario := filepath.Join(dir, "broken.txt")
	require.NoError(t, os.WriteFile(scenario, []byte("must_succeed 1\nfault write nothing-posted 300000 20\n"), 0o644))
	args := []string{"--scenario", scenario, "--seeds", "1..3", "--output", filepath.Join(dir, "missing", "found.txt")}
	code, out, errs := runSim(t, args...)
	require.Equal(t, exitFailed, code)
	require.Empty(t, out)
	require.Regexp(t, `^kvbounce: seed \d+ broke lost-request at step \d+: .*; its replay file can't be written: .*missing.*; run the seed again with another --output\n$`, errs)
	code, out, errs = runSim(t, append(args, "--json")...)
	require.Equal(t, exitFailed, code)
	require.Empty(t, errs)
	field, message := failure(t, out)
	require.Equal(t, "output", field)
	require.Contains(t, message, "broke lost-request")
}

const exampleReplay = "../../wiring/simulation/testdata/replays/late-write.txt"

// The example of a replay file does what its comment says, to the digest in it. That changes with every change of the core or of the simulator that changes what happens; then KVBOUNCE_REWRITE=1 puts the new one in.
func TestSimExampleReplay(t *testing.T) {
	text, err := os.ReadFile(exampleReplay)
	require.NoError(t, err)
	digest := regexp.MustCompile(`(?m)^# digest [0-9a-f]{64}$`)
	said := digest.FindString(string(text))
	require.NotEmpty(t, said)
	var last string
	for range 2 {
		code, out, errs := runSim(t, "--replay", exampleReplay, "--json")
		require.Equal(t, exitOK, code)
		require.Contains(t, errs, "WANT request=1", "the steps")
		var r simulation.Result
		require.NoError(t, json.Unmarshal([]byte(out), &r))
		require.Equal(t, simulation.Requests{Submitted: 3, Succeeded: 1, Failed: 2, Quiesced: 3}, r.Requests)
		require.Equal(t, []int{1, 2, 1}, []int{r.Faults.Lost, r.Faults.BadWrites, r.Faults.LateWrites})
		require.Empty(t, r.Violations)
		require.True(t, last == "" || last == r.Digest, "two replays differ")
		last = r.Digest
	}
	if os.Getenv("KVBOUNCE_REWRITE") != "" {
		require.NoError(t, os.WriteFile(exampleReplay, digest.ReplaceAll(text, []byte("# digest "+last)), 0o644))
		return
	}
	require.Equal(t, said, "# digest "+last, "run the test with KVBOUNCE_REWRITE=1 if what happens was changed knowingly")

	code, _, errs := runSim(t, "--shrink", exampleReplay)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "breaks no rule")
}

func TestSimBadUsage(t *testing.T) {
	for _, args := range [][]string{
		{"--seeds", "5"}, {"--seeds", "5..4"}, {"--seeds", "1..99999999999"}, {"--seed", "1", "--seeds", "1..2"}, {"--scenario", "nothing"}, {"--scenario", ""},
		{"--seeds", ""}, {"--seeds", "5..5", "--exhaustive"}, {"--replay", "x.txt", "--seed", "1"}, {"--replay", "x.txt", "--scenario", "loss"}, {"--shrink", "x.txt", "--peers", "2"}, {"--peers", "-1"}, {"extra"}, {"--exhaustive", "--seed", "1"},
	} {
		code, out, errs := runSim(t, args...)
		require.Equal(t, exitUsage, code, args)
		require.Empty(t, out, args)
		require.Equal(t, 1, strings.Count(errs, "\n"), errs)
	}
}
