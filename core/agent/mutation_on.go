//go:build mutations

package agent

// Mutate switches a deliberate bug of core/transport on, for the test of the simulator. No other build has it.
func (a *Agent) Mutate(name string) { a.transport.Mutate(name) }
