package transport

import (
	"fmt"
	"sync/atomic"

	"github.com/kvbounce/kvbounce/ports"
)

// Unproved is what is kept because of one peer: nothing proves that its transfers, or ours to it, ended.
type Unproved struct {
	Peer     ports.Identity
	Bytes    uint64        // of arena blocks
	Accesses int           // that failed without evidence, direct transfers included
	Since    ports.Instant // when the first of these came to be so, 0 if there is none
	Draining int           // failed requests to the peer that wait for their writes' evidence or its answer to DRAIN
}

// drainingEvery is how often the list is made anew because of requests that drain. Doubts are seen at once.
const drainingEvery = second

// retention is what is told of memory in doubt, and the limit on it (protocol.md, 8).
type retention struct {
	seen    uint64        // the ledger's changes that were looked at
	drained int           // and the requests that drained
	next    ports.Instant // when those are looked at again
	refusal atomic.Pointer[Failure]
	list    atomic.Pointer[[]Unproved]
}

// Unproved lists what has no evidence, peer by peer in order of their appearance; requests that drain are counted once a second. Any goroutine.
func (t *Transport) Unproved() []Unproved {
	if list := t.retention.list.Load(); list != nil {
		return *list
	}
	return nil
}

// BounceRefusal is why no bounce request may be started, or nil: more of the arena is in doubt than RETAIN_LIMIT, or so that no room is certain. It names the peer with the most. Any goroutine.
func (t *Transport) BounceRefusal() *Failure { return t.retention.refusal.Load() }

// watchRetained looks at what is in doubt after it changed, and says so once.
func (t *Transport) watchRetained() {
	r := &t.retention
	if r.seen == t.ledger.Changes() && (r.drained == t.draining || t.now.Before(r.next)) {
		return
	}
	r.seen, r.drained, r.next = t.ledger.Changes(), t.draining, t.now.Add(drainingEvery)
	var list []Unproved
	var worst Unproved
	for _, p := range t.order {
		totals := p.party.Totals()
		u := Unproved{Peer: p.id, Bytes: totals.DoubtfulBytes, Accesses: totals.Doubts, Draining: p.draining}
		doubt := u.Bytes > 0 || u.Accesses > 0
		if doubt {
			u.Since = p.party.Since()
		}
		switch {
		case doubt && !p.unproved:
			what := "memory is kept without evidence that nothing touches it: fence the peer if its process can no longer run"
			if p.settling {
				what = "memory is kept until the peer's fence has settled"
			}
			t.log.Warn(what, "peer", p.id, "arena_bytes", u.Bytes, "accesses", u.Accesses)
		case !doubt && p.unproved:
			t.log.Info("nothing of the peer is in doubt any more", "peer", p.id)
		}
		p.unproved = doubt
		if doubt || u.Draining > 0 {
			list = append(list, u)
		}
		if u.Bytes > worst.Bytes {
			worst = u
		}
	}
	r.list.Store(&list)
	t.limitRetained(worst)
}

func (t *Transport) limitRetained(worst Unproved) {
	var f *Failure
	if t.credits != nil && (t.credits.RetainedBytes() > t.settings.RetainLimit || !t.credits.Room() || t.retention.refusal.Load() != nil && t.mutated("refuse bounce requests after all was given back")) && !t.mutated("take bounce requests beyond the limit on what is retained") {
		f = &Failure{Peer: worst.Peer, Kind: ErrRetained, Text: fmt.Sprintf("%d bytes in all, %d of them of %s: fence it if its process can no longer run", t.credits.RetainedBytes(), worst.Bytes, worst.Peer)}
	}
	if was := t.retention.refusal.Swap(f) != nil; was == (f != nil) {
		return
	}
	if f != nil {
		t.log.Error("no new bounce requests: "+f.Text, "limit", t.settings.RetainLimit)
	} else {
		t.log.Info("bounce requests are taken again")
	}
}
