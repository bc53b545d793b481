package sim

import "github.com/kvbounce/kvbounce/ports"

// action is what an event does. The World's lock is held.
type action interface{ happen(w *World) }

// entry is an event that has not happened yet.
type entry struct {
	at  ports.Instant
	seq uint64 // entries of one instant happen in the order in which they were pushed
	do  action
}

func (e entry) before(o entry) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// queue is a heap of entries.
type queue struct {
	heap    []entry
	seq     uint64
	tied    []entry // scratch of pop
	sweepAt int     // entries at which stale ones are looked for, 0 for sweepFirst
}

// sweepFirst is how many entries there may be before stale ones among them are worth a look.
const sweepFirst = 256

// stale reports that the entry is an alarm that was set anew, or stopped, since.
func (e entry) stale() bool {
	a, ok := e.do.(*Alarm)
	return ok && a.seq != e.seq
}

func (q *queue) nextAt() ports.Instant {
	for len(q.heap) > 0 && q.heap[0].stale() {
		q.removeFirst()
	}
	if len(q.heap) == 0 {
		return ports.Never
	}
	return q.heap[0].at
}

// push returns the entry's number.
func (q *queue) push(at ports.Instant, do action) uint64 {
	if len(q.heap) >= max(q.sweepAt, sweepFirst) {
		q.sweep()
	}
	q.seq++
	q.insert(entry{at: at, seq: q.seq, do: do})
	return q.seq
}

// sweep removes stale entries. An alarm that is set again and again for far off, as a timeout is, would leave one each time.
func (q *queue) sweep() {
	all := q.heap
	q.heap = q.heap[:0]
	for _, e := range all {
		if !e.stale() {
			q.insert(e)
		}
	}
	clear(all[len(q.heap):])
	q.sweepAt = 2 * len(q.heap)
}

// pop removes the earliest entry. Where several are of that instant, choose, unless it is nil, says which, by a number below how many there are, in the order in
// which they were pushed. Entries for Never stay for ever.
func (q *queue) pop(choose func(n int) int) (do action, at ports.Instant, ok bool) {
	if q.nextAt() == ports.Never {
		return nil, 0, false
	}
	first := q.removeFirst()
	if choose == nil || q.nextAt() != first.at {
		return first.do, first.at, true
	}
	tied := append(q.tied[:0], first)
	for q.nextAt() == first.at {
		tied = append(tied, q.removeFirst())
	}
	q.tied = tied // still queued, for who looks now
	chosen := choose(len(tied))
	do = tied[chosen].do
	for i, e := range tied {
		if i != chosen {
			q.insert(e)
		}
	}
	clear(tied)
	q.tied = tied[:0]
	return do, first.at, true
}

func (q *queue) insert(e entry) {
	q.heap = append(q.heap, e)
	h, i := q.heap, len(q.heap)-1
	for parent := (i - 1) / 2; i > 0 && h[i].before(h[parent]); parent = (i - 1) / 2 {
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func (q *queue) removeFirst() entry {
	h := q.heap
	first, last := h[0], len(h)-1
	h[0] = h[last]
	h[last] = entry{}
	h = h[:last]
	q.heap = h
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].before(h[least]) {
				least = child
			}
		}
		if least == i {
			return first
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
