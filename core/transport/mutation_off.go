//go:build !mutations

package transport

import "github.com/kvbounce/kvbounce/core/wire"

// mutation is nothing in every build but the one that tests the simulator (mutation_on.go).
type mutation struct{}

// mutated reports whether a deliberate bug is switched on. Here it never is, and the compiler drops what it guards.
func (t *Transport) mutated(string) bool { return t.mutation != (mutation{}) }

func (g *Registry) mutated(string) bool { return g.mutation != (mutation{}) }

// endScatter is for one of the bugs.
func (t *Transport) endScatter(*regionChunk) {}

// endGather is for another.
func (t *Transport) endGather() *chunk { return nil }

// anyFlow is for a third.
func (t *Transport) anyFlow(f *flow, _ *wire.Data) *flow { return f }
