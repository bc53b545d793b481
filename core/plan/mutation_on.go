//go:build mutations

package plan

// mutation is the deliberate bug that is switched on, "" none: see core/transport. No other build has any of it.
type mutation struct{ name string }

// Mutations are the bugs that there are; each is guarded by a call of mutated with its name.
func Mutations() []string {
	return []string{
		"shift an index table by one entry",
		"scatter a cut piece's rest over its beginning",
		"gather at a wrong step",
		"put a piece over the one before it",
		"skip the overlap check",
	}
}

// Mutate switches one of Mutations on.
func (p *Planner) Mutate(name string) {
	p.gather.runs.mutation.name, p.scatter.runs.mutation.name = name, name
}

func (s *runBuilder) mutated(name string) bool { return s.mutation.name == name }
