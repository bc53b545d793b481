package transport

import "github.com/kvbounce/kvbounce/ports"

// timed is what a timer fires on. kind tells the timers of one owner apart.
type timed interface {
	fire(t *Transport, kind timerKind)
}

type timerKind uint8

const (
	timerRepeat   timerKind = iota // a request's next re-send of WANT, DATA or DRAIN
	timerProgress                  // a request's no-progress timeout
	timerLease                     // a flow's lease, then its repeated NACK 10
	timerIdle                      // a peer entry that nothing holds any more
)

// timer is one entry of the heap. The zero value is unarmed.
type timer struct {
	at    ports.Instant
	slot  int // 1 + index in the heap; 0: not armed
	kind  timerKind
	owner timed
}

// timers is a binary heap of armed timers, earliest first. Equal instants fire in an order that depends on the history of calls alone.
type timers []*timer

func (h timers) next() ports.Instant {
	if len(h) == 0 {
		return ports.Never
	}
	return h[0].at
}

// arm sets tm to fire at an instant, whether it was armed or not.
func (h *timers) arm(tm *timer, at ports.Instant) {
	if tm.slot == 0 {
		*h = append(*h, tm)
		tm.slot = len(*h)
	}
	tm.at = at
	h.down(h.up(tm.slot - 1))
}

func (h *timers) stop(tm *timer) {
	if tm.slot == 0 {
		return
	}
	i, last := tm.slot-1, len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	tm.slot = 0
	if i < last {
		h.down(h.up(i))
	}
}

// pop takes the first timer that is due.
func (h *timers) pop(now ports.Instant) *timer {
	if len(*h) == 0 || now.Before((*h)[0].at) {
		return nil
	}
	tm := (*h)[0]
	h.stop(tm)
	return tm
}

func (h timers) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i+1, j+1
}

func (h timers) up(i int) int {
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].at.Before(h[parent].at) {
			break
		}
		h.swap(i, parent)
		i = parent
	}
	return i
}

func (h timers) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if right := child + 1; right < len(h) && h[right].at.Before(h[child].at) {
			child = right
		}
		if !h[child].at.Before(h[i].at) {
			return
		}
		h.swap(i, child)
		i = child
	}
}
