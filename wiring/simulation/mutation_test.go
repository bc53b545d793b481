//go:build mutations

package simulation

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/agent"
)

// seedsAtMost is how many seeds a deliberate bug may survive.
const seedsAtMost = 2000

// hunts says in which scenario each bug is looked for first, by a few words of its name; the others are looked for in "all".
var hunts = map[string]string{
	"release staging on a failed write":             "late-writes",
	"take a failed write for a success":             "late-writes",
	"tell quiesced when a direct transfer fails":    "late-writes",
	"drop staging under a running gather":           "cancel-storm",
	"tell source released while a gather runs":      "cancel-storm",
	"reuse a request number":                        "reorder",
	"never repeat WANT":                             "loss",
	"never repeat DATA":                             "loss",
	"forget a lost GRANT's credit":                  "loss",
	"take frames of a predecessor":                  "restart",
	"scatter a chunk again when DATA is repeated":   "reorder",
	"accept DATA for a region of another flow":      "hostile",
	"accept destinations outside registered memory": "hostile",
	"accept runs outside the chunk":                 "hostile",
	"free the regions of an expired flow":           "late-writes",
	"free the region of a failed scatter":           "slow-copies",
	"answer DRAIN before the scatter ends":          "slow-copies",
	"keep the regions of a drained flow":            "cancel-storm",
	"say nothing of an expired flow":                "cancel-storm",
	"state an oldest above requests in progress":    "baseline",

	"end a fence before the settle delay":                "peer-death",
	"forget direct writes when a peer is fenced":         "late-writes",
	"free a fenced peer's region while its scatter runs": "windows",
	"report nothing of the regions that a fence keeps":   "slow-copies",
	"take frames of a fenced peer, and answer them":      "restart",
	"skip the last look before a scatter is launched":    "windows",
	"quiesce a window while scatters run in it":          "windows",
	"take the token of a closed window":                  "windows",
	"let a token reach outside its window":               "windows",
	"forget that memory was in a receive window":         "windows",
	"fail-stop for arena blocks in doubt":                "fail-stop",
	"deregister memory under copies that run":            "cancel-storm",
	"tell quiesced when a direct transfer is cancelled":  "cancel-storm",
	"keep the staging of a write that was never posted":  "late-writes",

	"refuse bounce requests after all was given back":           "retain",
	"take bounce requests beyond the limit on what is retained": "retain",
	"tell quiesced when the peer is fenced and not settled":     "retain",
	"open a window over memory registered for direct use":       "windows",
	"open a window over another":                                "sessions",
	"register memory of a window for direct use":                "sessions",
	"retire a request while its window is in use":               "sessions",
	"retire a request when its first part is released":          "sessions",

	"take staging under a running gather":                    "both-ways",
	"keep gathered chunks' staging from those with a credit": "both-ways",
	"grant beyond the window":                                "baseline",
	"forget a window's returned place":                       "both-ways",
	"grant in the reserve of staging":                        "both-ways",
	"never hold a block for a chunk that was passed over":    "crowd",
	"place others in a held block":                           "crowd",
	"shift an index table by one entry":                      "baseline",
	"scatter a cut piece's rest over its beginning":          "baseline",
	"gather at a wrong step":                                 "baseline",
	"put a piece over the one before it":                     "baseline",
	"skip the overlap check":                                 "overlap",
}

// TestMutationsAreCaught switches on each deliberate bug of the core and counts the seeds until the oracle sees it. With KVBOUNCE_MUTATIONS_OUT set to a file name it writes the
// table there; with KVBOUNCE_MUTATIONS_ONLY set to some names it looks for those alone.
func TestMutationsAreCaught(t *testing.T) {
	var table strings.Builder
	for _, bug := range agent.Mutations() {
		if only := os.Getenv("KVBOUNCE_MUTATIONS_ONLY"); only != "" && !strings.Contains(only, bug) {
			continue
		}
		name := hunts[bug]
		if name == "" {
			name = "all"
		}
		s, err := Load(name)
		require.NoError(t, err)
		v, seeds := hunt(s, bug)
		if v == nil {
			t.Errorf("%q was not caught in %d seeds of %s", bug, seedsAtMost, name)
			continue
		}
		t.Logf("%-50s %-14s %4d seeds: %s: %s", bug, name, seeds, v.Rule, v.Text)
		fmt.Fprintf(&table, "| %s | `%s` | %d | %s |\n", bug, name, seeds, v.Rule)
	}
	if file := os.Getenv("KVBOUNCE_MUTATIONS_OUT"); file != "" {
		require.NoError(t, os.WriteFile(file, []byte(mutationsHead+table.String()), 0o644))
	}
}

// hunt runs seeds until one breaks a rule.
func hunt(s *Scenario, bug string) (v *Violation, seeds int) {
	for seed := range uint64(seedsAtMost) {
		r := Run(s, seed+1, Options{Mutate: func(a *agent.Agent) { a.Mutate(bug) }})
		if len(r.Violations) > 0 {
			return &r.Violations[0], int(seed) + 1
		}
	}
	return nil, 0
}

const mutationsHead = `# Mutations

Deliberate bugs in the core, switched on one by one, and how many seeds the simulator needed to catch each. Made by ` + "`make mutations`" + `; a bug that survives 2000 seeds fails it.
The bugs are compiled in with the build tag ` + "`mutations`" + ` only (mutation_on.go in core). What the rules say is in [simulator.md](simulator.md).

| bug | scenario | seeds until caught | rule |
|---|---|---|---|
`

// TestMutationsAreCaughtByExploration sees that the exhaustive search finds bugs too, without any luck with a seed.
func TestMutationsAreCaughtByExploration(t *testing.T) {
	for _, bug := range []string{"send DRAIN while a write has no evidence", "ACK before the scatter is done", "free the region of a failed scatter", "take a failed write for a success"} {
		x := smallWorlds()[0].explore(20_000, Options{Mutate: func(a *agent.Agent) { a.Mutate(bug) }}, func() {})
		require.NotEmpty(t, x.Violations, bug)
		record, err := ParseRecord(x.Record.String(), Load)
		require.NoError(t, err)
		again := record.Replay(Options{Mutate: func(a *agent.Agent) { a.Mutate(bug) }})
		require.NotEmpty(t, again.Violations, bug)
		require.Equal(t, x.Violations[0].Rule, again.Violations[0].Rule)
		t.Logf("%s: %d executions: %s", bug, x.Executions, x.Violations[0].Text)
	}
}
