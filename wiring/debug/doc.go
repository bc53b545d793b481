// Package debug shows what an agent holds, read-only and over HTTP on a Unix socket or a loopback address: what nothing proves to have ended and because of which peer, so that an operator knows
// which one to fence; peers, flows, the use of the arena, counters. docs/operate.md describes the object and the metrics.
package debug
