// Package simulation runs the production core in virtual time, with every fault that hardware and networks have, and checks it from outside.
//
// A run is made of a Scenario (a text file: how many agents, what they do, what goes wrong and how often) and a seed, from which everything else is
// drawn. World puts real agents (core/agent) on the simulated ports of adapters/sim: one queue of events, one generator, no goroutine. After a phase with faults they stop,
// and what is left must settle within a stated time.
//
// The oracle (oracle*.go) is told of every event before memory is touched, and believes nothing that the core's own books say: it knows what was
// submitted, what handles told their owners, what stood in frames, and what engines and copy devices were asked for and answered. A violation ends
// the run, and what was drawn can be written to a file (Record) that replays it, whole or shrunk.
//
// Nothing in a run depends on the machine: the same scenario and seed have the same digest everywhere.
package simulation
