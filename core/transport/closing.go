package transport

import (
	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/ports"
)

// BeginClose refuses new requests and flows and fails the requests in progress; what runs goes on to its evidence. Any goroutine.
func (t *Transport) BeginClose() {
	_ = t.put(func(t *Transport) {
		if t.closing {
			return
		}
		t.closing = true
		t.failEverything()
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

// Doubt is memory of the application that may still be touched.
type Doubt struct {
	Peer    ports.Identity // empty for a receive window
	Request uint64         // 0 for a direct request and a receive window
	Part    string         // what may touch it
	Bytes   uint64
	Since   ports.Instant // when that was started, or, of a request that ended, when it ended
}

// CallerDoubts lists the memory of callers, not arena blocks, that may still be touched. Reactor.
func (t *Transport) CallerDoubts() []Doubt { return t.mayTouch(false) }

// Stop ends the transport for good: commands that were not taken are dropped and every handle that is in progress ends. Nothing becomes free by it. Reactor, last call.
func (t *Transport) Stop() {
	t.closing = true
	for _, c := range t.inbox.close() {
		c(t)
	}
	t.failEverything()
	t.pollDirects()
	t.settleLeaving()
	for _, l := range t.leaving {
		l.done(ErrClosing)
	}
	t.leaving = nil
	for _, f := range t.fences {
		f.peer.settling = false
		for _, done := range f.done {
			done(FenceReport{Peer: f.peer.id})
		}
	}
	t.fences = nil
	for _, v := range t.revocations {
		for _, done := range v.done {
			done(false)
		}
	}
	t.revocations = nil
}

// failEverything fails every request, those of peers without an entry too.
func (t *Transport) failEverything() {
	for _, p := range t.order {
		t.setGate(p)
		t.failAll(p, ErrClosing, "")
	}
	for _, r := range t.waiting {
		t.fail(r, &Failure{Kind: ErrClosing})
	}
	for _, d := range t.directs {
		t.failDirect(d, &Failure{Kind: ErrClosing})
	}
}

// failUnstarted fails the requests to a peer that wait for their ready event.
func (t *Transport) failUnstarted(p *peer, kind error, text string) {
	for _, r := range t.waiting {
		if r.peer == p {
			t.fail(r, &Failure{Kind: kind, Text: text})
		}
	}
	for _, d := range t.directs {
		if d.peer == p && d.transfer == nil {
			t.failDirect(d, &Failure{Kind: kind, Text: text})
		}
	}
}
