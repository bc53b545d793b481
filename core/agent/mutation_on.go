//go:build mutations

package agent

import (
	"slices"

	"github.com/kvbounce/kvbounce/core/credit"
	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/core/session"
	"github.com/kvbounce/kvbounce/core/transport"
)

// Mutations are the deliberate bugs that there are (docs/mutations.md).
func Mutations() []string {
	return slices.Concat(transport.Mutations(), credit.Mutations(), plan.Mutations(), session.Mutations())
}

// Mutate switches one of Mutations on, for the test of the simulator. No other build has it. Before the first Submit.
func (a *Agent) Mutate(name string) {
	a.transport.Mutate(name)
	a.sessions.Mutate(name)
	if a.arena != nil {
		a.arena.credits.Mutate(name)
	}
	a.planners.New = func() any {
		p := new(planning)
		p.Mutate(name)
		return p
	}
}
