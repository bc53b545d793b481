//go:build mutations

package session

// mutation is the deliberate bug that is switched on, "" none: see core/transport. No other build has any of it.
type mutation struct{ name string }

// Mutations are the bugs that there are; each is guarded by a call of mutated with its name.
func Mutations() []string {
	return []string{
		"retire a request while its window is in use",
		"retire a request when its first part is released",
	}
}

// Mutate switches one of Mutations on. Before the first request.
func (m *Manager) Mutate(name string) { m.mutation.name = name }

func (m *Manager) mutated(name string) bool { return m.mutation.name == name }
