// Package wiring puts kvbounce's core and its adapters together: New for those who want an agent in a few lines, and the modules Host,
// Memory and CUDA for applications built with go.uber.org/fx.
//
// It also runs the reactor: a goroutine, locked to its thread, that calls the agent's Poll, spins for a moment while things move, and else sleeps until
// the control channel, an adapter or a timer has something.
package wiring
