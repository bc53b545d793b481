//go:build !mutations

package session

// mutation is nothing in every build but the one that tests the simulator (mutation_on.go).
type mutation struct{}

// mutated reports whether a deliberate bug is switched on. Here it never is, and the compiler drops what it guards.
func (m *Manager) mutated(string) bool { return m.mutation != (mutation{}) }
