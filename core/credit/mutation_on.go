//go:build mutations

package credit

// mutation is the deliberate bug that is switched on, "" none: see core/transport. No other build has any of it.
type mutation struct{ name string }

// Mutations are the bugs that there are; each is guarded by a call of mutated with its name.
func Mutations() []string {
	return []string{
		"grant beyond the window",
		"forget a window's returned place",
		"grant in the reserve of staging",
		"never hold a block for a chunk that was passed over",
		"place others in a held block",
	}
}

// Mutate switches one of Mutations on for the arena and its scheduler. Before the first flow.
func (a *Arena) Mutate(name string) { a.mutation.name = name }

func (a *Arena) mutated(name string) bool { return a.mutation.name == name }
