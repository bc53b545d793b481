package transport

import "github.com/kvbounce/kvbounce/core/drain"

// BeginClose refuses new requests and flows and fails the requests in progress; what runs goes on to its evidence. Any goroutine.
func (t *Transport) BeginClose() {
	_ = t.put(func(t *Transport) {
		if t.closing {
			return
		}
		t.closing = true
		for _, p := range t.order {
			t.setGate(p)
			t.failAll(p, ErrClosing, "")
			t.failDirects(p, ErrClosing, "")
		}
	}, true)
}

// Quiet reports whether nothing that this transport started or admitted is open any more: no request, no flow, no access. Reactor.
func (t *Transport) Quiet() bool {
	for _, p := range t.order {
		if p.tracked > 0 {
			return false
		}
	}
	return len(t.waiting)+len(t.directs)+len(t.leaving)+len(t.notices) == 0 && t.liveFlows == 0 && t.ledger.Totals() == (drain.Totals{})
}

// Totals are the ledger's sums. Reactor.
func (t *Transport) Totals() drain.Totals { return t.ledger.Totals() }

// CallerMemoryInDoubt reports whether memory of callers, not only arena blocks, may still be touched. Reactor.
func (t *Transport) CallerMemoryInDoubt() bool {
	return len(t.directs)+len(t.gathers)+len(t.scatters)+len(t.stuckGathers)+len(t.stuckScatters) > 0
}

// Stop ends the transport for good: commands that were not taken are dropped and every handle that is in progress ends. Nothing becomes free by it. Reactor, last call.
func (t *Transport) Stop() {
	t.closing = true
	for _, c := range t.inbox.close() {
		c(t)
	}
	for _, p := range t.order {
		t.setGate(p)
		t.failAll(p, ErrClosing, "")
		t.failDirects(p, ErrClosing, "")
	}
	t.pollDirects()
	t.settleLeaving()
}
