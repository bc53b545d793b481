package simulation

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/kvbounce/kvbounce/adapters/sim"
	"github.com/kvbounce/kvbounce/ports"
)

// draw is a seeded source of what a run is made of.
type draw struct{ r ports.Randomness }

func newDraw(seed uint64, name string) draw { return draw{sim.NewRandomness(seed, name)} }

// below is less than n, or 0.
func (d draw) below(n uint64) uint64 {
	high, _ := bits.Mul64(d.r.Uint64(), n)
	return high
}

func (d draw) index(n int) int { return int(d.below(uint64(n))) }

// percent is true so many times in a hundred.
func (d draw) percent(p int) bool { return d.index(100) < p }

// span is a range of numbers, both ends included; durations are in nanoseconds.
type span struct{ low, high int64 }

func (s span) draw(d draw) int64 {
	return s.low + int64(d.below(uint64(s.high-s.low)+1))
}

func (s span) count(d draw) int              { return int(s.draw(d)) }
func (s span) duration(d draw) time.Duration { return time.Duration(s.draw(d)) }

// parseSpan reads LOW..HIGH or one number. Numbers may be durations.
func parseSpan(text string) (span, error) {
	low, high, isRange := strings.Cut(text, "..")
	if !isRange {
		high = low
	}
	var s span
	var err error
	if s.low, err = parseNumber(low); err != nil {
		return s, err
	}
	if s.high, err = parseNumber(high); err != nil {
		return s, err
	}
	if s.low < 0 || s.low > s.high {
		return s, fmt.Errorf("%q: want LOW..HIGH with 0 <= LOW <= HIGH", text)
	}
	return s, nil
}

func parseNumber(text string) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q: want a whole number or a duration", text)
	}
	return int64(d), nil
}

// power picks a power of two between both ends.
func (s span) power(d draw) uint64 {
	low, high := bits.Len64(uint64(s.low))-1, bits.Len64(uint64(s.high))-1
	return 1 << (low + d.index(high-low+1))
}
