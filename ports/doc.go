// Package ports holds what kvbounce's core needs from the outside world, and the value types both sides share.
//
// The core (core/...) depends on these interfaces and on nothing else outside itself; every adapter (adapters/...) implements one or more of
// them. The doc comment of each interface is its contract, and ports/porttest turns the sentences of those comments into tests
// that every adapter runs.
//
// # Threads
//
// An agent is driven by one goroutine, its reactor. Methods marked "reactor" are called by that goroutine alone, one at a time, and never
// block. Methods marked "any goroutine" may be called concurrently with everything else.
//
// # Evidence
//
// kvbounce reuses memory only on evidence that nothing can touch it any more. Which answers of a port are evidence, and of what, is part of its
// contract. When an adapter cannot tell, it says "unknown": a block that is kept too long costs memory, one that is reused too early
// costs somebody's data.
package ports
