// Package agent is the face of kvbounce's core: register memory, exchange descriptions with peers, submit transfers, and know when
// memory may be reused.
//
// An Agent routes each request: over the bounce path (gather, one write, scatter) where that pays, directly through the engine where not (protocol.md, 9).
// It starts no goroutine: something outside, package wiring in production and the simulator in tests, calls Poll in one goroutine.
// All other methods may be called from any goroutine unless their comment says otherwise.
package agent
