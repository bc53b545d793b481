package simulation

import (
	"slices"
	"time"

	"github.com/kvbounce/kvbounce/core/transport"
)

// Fairness says how evenly senders were served: goodput is a sender's bytes that succeeded over the time from its first submit to its last success, the wait is that of a
// request from the arrival of its WANT to its first grant. Times are virtual.
type Fairness struct {
	Senders         int     `json:"senders"`
	GoodputMaxToMin float64 `json:"goodput_max_to_min"`
	GrantWaitP50US  float64 `json:"grant_wait_p50_us"`
	GrantWaitP99US  float64 `json:"grant_wait_p99_us"`
}

// fairness sums a run up; nil when nothing was granted.
func (w *World) fairness() *Fairness {
	waits := slices.Clone(w.oracle.waits)
	if len(waits) == 0 {
		return nil
	}
	slices.Sort(waits)
	rank := func(percent int) float64 {
		return float64(waits[(len(waits)*percent+99)/100-1]) / float64(time.Microsecond)
	}
	f := &Fairness{GrantWaitP50US: rank(50), GrantWaitP99US: rank(99)}
	type share struct {
		bytes       uint64
		first, last int64
	}
	shares := map[*life]*share{}
	for _, r := range w.requests {
		if r.h.Status() != transport.Succeeded {
			continue
		}
		s := shares[r.from]
		if s == nil {
			s = &share{first: int64(r.began)}
			shares[r.from] = s
		}
		s.bytes += r.h.Bytes()
		s.first, s.last = min(s.first, int64(r.began)), max(s.last, int64(r.ended))
	}
	low, high := 0.0, 0.0
	for _, s := range shares {
		if s.last <= s.first {
			continue
		}
		rate := float64(s.bytes) / float64(s.last-s.first)
		if low == 0 || rate < low {
			low = rate
		}
		high = max(high, rate)
	}
	f.Senders = len(shares)
	if low > 0 {
		f.GoodputMaxToMin = high / low
	}
	return f
}
