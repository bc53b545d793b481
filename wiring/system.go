package wiring

import (
	"crypto/rand"
	"encoding/binary"
	"time"

	"github.com/kvbounce/kvbounce/ports"
)

// systemClock is the process's monotonic clock. Its instants count from the clock's making, plus one, so that none is 0.
type systemClock struct{ start time.Time }

// NewClock makes a production clock.
func NewClock() ports.Clock { return systemClock{time.Now()} }

// Now is the time since the clock was made.
func (c systemClock) Now() ports.Instant { return ports.Instant(time.Since(c.start)) + 1 }

// systemRandom draws from the operating system.
type systemRandom struct{}

// NewRandom makes a production source of randomness.
func NewRandom() ports.Randomness { return systemRandom{} }

// Uint64 is unpredictable.
func (systemRandom) Uint64() uint64 {
	var b [8]byte
	// crypto/rand.Read never fails: it ends the process rather than give bad bytes.
	_, _ = rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])
}
