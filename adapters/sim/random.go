package sim

import (
	"math/bits"
	"sync/atomic"

	"github.com/kvbounce/kvbounce/ports"
)

// stream is a SplitMix64 generator (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). The caller holds a lock.
type stream struct{ state uint64 }

// newStream makes the stream of one user of a seed. Streams of different names have nothing to do with one another, so that what one user draws does not change
// what another gets.
func newStream(seed uint64, name string) stream {
	state := mix(seed + gamma)
	for _, c := range []byte(name) {
		state = mix(state ^ uint64(c) + gamma)
	}
	return stream{state: state}
}

const gamma = 0x9E3779B97F4A7C15

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

func (s *stream) next() uint64 {
	s.state += gamma
	return mix(s.state)
}

// below is less than n, which is at least 1. For the small n of a simulation the bias, at most n/2^64, does not matter.
func (s *stream) below(n uint64) uint64 {
	high, _ := bits.Mul64(s.next(), n)
	return high
}

// Randomness is the seeded stream of one agent. The same seed and name give the same numbers. It is predictable: only for a simulation.
func (w *World) Randomness(name string) ports.Randomness {
	s := newStream(w.cfg.Seed, "agent "+name)
	r := new(randomness)
	r.state.Store(s.state)
	return r
}

// NewRandomness is the stream that a World of this seed would give this name.
func NewRandomness(seed uint64, name string) ports.Randomness {
	return NewVirtual(Config{Seed: seed}).Randomness(name)
}

// randomness is a stream for any goroutine.
type randomness struct{ state atomic.Uint64 }

func (r *randomness) Uint64() uint64 { return mix(r.state.Add(gamma)) }
