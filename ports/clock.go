package ports

import (
	"math"
	"time"
)

// Instant is a reading of a monotonic clock, in nanoseconds. Only differences and order mean something; it survives neither the process nor a
// change of clock. The core never reads a clock: instants come in as arguments.
type Instant int64

// Never is later than every instant a clock returns.
const Never Instant = math.MaxInt64

// Add is the instant d later. It saturates at Never.
func (t Instant) Add(d time.Duration) Instant {
	if d > 0 && t > Never-Instant(d) {
		return Never
	}
	return t + Instant(d)
}

// Sub is the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Before reports whether t is earlier than u.
func (t Instant) Before(u Instant) bool { return t < u }

// Clock tells monotonic time. Any goroutine.
type Clock interface {
	// Now never decreases.
	Now() Instant
}

// Randomness gives the 64-bit numbers from which incarnations, tokens and jitter are made. A production source is unpredictable
// (crypto/rand), since a guessed token opens a receive window; a simulator's is seeded. Any goroutine.
type Randomness interface {
	Uint64() uint64
}
