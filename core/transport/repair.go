package transport

import (
	"time"
)

// Repair (protocol.md, 7): a lost message costs a retry, not the request.
const (
	second = time.Second

	repeatFirst  = 20 * time.Millisecond // WANT and DATA
	drainFirst   = 50 * time.Millisecond
	repeatMost   = 2 * second
	trickleEvery = 2 * second
	// maxUnanswered is how many frames may be sent to a peer since its last one before they only trickle.
	maxUnanswered = 1024
)

// jitter spreads a wait by up to a quarter both ways, so that many requests do not repeat in step.
func (t *Transport) jitter(d time.Duration) time.Duration {
	quarter := uint64(d / 4)
	if quarter == 0 {
		return d
	}
	return d - time.Duration(quarter) + time.Duration(t.rand.Uint64()%(2*quarter+1))
}

// progress notes that a request came on: its timeout starts anew, and so do its repeats.
func (t *Transport) progress(r *request) {
	r.last = t.now
	r.backoff = repeatFirst
	t.timers.arm(&r.repeat, t.now.Add(t.jitter(r.backoff)))
	t.dirty = true
}

// fire is a request's timers.
func (r *request) fire(t *Transport, kind timerKind) {
	switch {
	case kind == timerProgress:
		deadline := r.last.Add(r.peer.info.RequestTimeout)
		if t.now.Before(deadline) {
			t.timers.arm(&r.progress, deadline)
			return
		}
		t.fail(r, &Failure{Kind: ErrTimeout, Text: "none in " + r.peer.info.RequestTimeout.String()})
	case r.state == requestActive:
		t.repeatActive(r)
	case r.state == requestDraining:
		t.repeatDrain(r)
	}
}

// mayRepeat arms the request's next repeat and reports whether this one may go. Towards a peer that has been silent since the last repeat, whichever
// request's that was, one frame a step goes, and steps double.
func (t *Transport) mayRepeat(r *request, backoff time.Duration) bool {
	p := r.peer
	if p.silent {
		if turn := p.lastRepeat.Add(p.silentStep); t.now.Before(turn) {
			t.timers.arm(&r.repeat, turn.Add(t.jitter(repeatFirst)))
			return false
		}
		p.silentStep = min(2*p.silentStep, repeatMost)
	}
	t.repeated(r)
	r.backoff = min(backoff, repeatMost)
	t.timers.arm(&r.repeat, t.now.Add(t.jitter(r.backoff)))
	return true
}

func (t *Transport) repeated(r *request) {
	r.peer.silent, r.peer.lastRepeat = true, t.now
	t.counters.Add(Repeats, 1)
}

// repeatActive sends again what a request in progress has no answer to: WANT while a credit is missing, and DATA of written chunks. To a silent peer
// it sends one of them.
func (t *Transport) repeatActive(r *request) {
	silent := r.peer.silent
	if !t.mayRepeat(r, 2*r.backoff) {
		return
	}
	wants := r.credits < len(r.chunks) && !t.mutated("never repeat WANT")
	if t.mutated("never repeat DATA") {
		if wants {
			t.sendWant(r)
		}
		return
	}
	if !silent {
		if wants {
			t.sendWant(r)
		}
		for i := range r.chunks {
			if r.chunks[i].state == chunkWritten {
				t.sendData(&r.chunks[i])
			}
		}
		return
	}
	// Slots: WANT, then each chunk; the next one that has something to say goes.
	slots := len(r.chunks) + 1
	for range slots {
		slot := r.resend % slots
		r.resend++
		if slot == 0 && wants {
			t.sendWant(r)
			return
		}
		if slot > 0 && r.chunks[slot-1].state == chunkWritten {
			t.sendData(&r.chunks[slot-1])
			return
		}
	}
}
