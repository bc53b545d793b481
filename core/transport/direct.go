package transport

import (
	"slices"

	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/ports"
)

// DirectSubmission is what a submitter hands over to start a direct transfer.
type DirectSubmission struct {
	Peer   ports.Identity
	Read   bool
	Local  []ports.Descriptor // the transport keeps both slices
	Remote []ports.Descriptor
	Bytes  uint64
	Ready  ports.Event
	Notify []byte
	Why    string // it does not bounce, for the text of a failure
}

// direct is a direct transfer, owned by the reactor. It is in the list until there is evidence of its end.
type direct struct {
	h        *Handle
	peer     *peer
	sub      DirectSubmission
	transfer ports.Transfer // nil while it waits for the ready event
	hold     *drain.Hold
	account  drain.Account
	began    ports.Instant
	doubted  bool
	over     bool // logically
}

// StartDirect hands a direct transfer to the reactor. Any goroutine.
func (t *Transport) StartDirect(s DirectSubmission) (*Handle, error) {
	h := &Handle{path: PathDirect, peer: s.Peer, bytes: s.Bytes, transport: t}
	h.direct = &direct{h: h, sub: s}
	if err := t.do(func(t *Transport) { t.startDirect(h.direct) }); err != nil {
		return nil, err
	}
	t.counters.Add(DirectSubmits, 1)
	return h, nil
}

func (t *Transport) startDirect(d *direct) {
	p := t.peers[d.sub.Peer]
	d.began = t.now
	f := &Failure{Kind: ErrUnknownPeer}
	if p != nil {
		f = t.refusal(p)
	}
	if f != nil {
		t.failDirect(d, f)
		d.h.quiesce()
		return
	}
	d.peer = p
	d.account.Party = &p.party
	t.directs = append(t.directs, d)
	if d.sub.Ready == nil {
		t.postDirect(d)
	}
}

func (t *Transport) postDirect(d *direct) {
	d.began = t.now
	d.hold = t.ledger.HoldDirect(&d.account)
	d.hold.Open(drain.Direct)
	post := t.engine.PostWrite
	if d.sub.Read {
		post = t.engine.PostRead
	}
	d.transfer = post(d.peer.id, d.sub.Local, d.sub.Remote)
	d.peer.pending++
	t.dirty = true
}

// failDirect ends a direct transfer logically, unless it has ended. Physically it ends by evidence alone.
func (t *Transport) failDirect(d *direct, f *Failure) {
	if d.over {
		return
	}
	d.over = true
	f.Peer, f.Direct = d.sub.Peer, d.sub.Why
	t.counters.Add(DirectFailed, 1)
	if f.Kind == ErrCancelled && t.mutated("tell quiesced when a direct transfer is cancelled") {
		d.h.quiesce()
	}
	d.h.end(f, Stages{Total: t.now.Sub(d.began)})
}

func (t *Transport) pollDirects() {
	t.directs = slices.DeleteFunc(t.directs, t.pollDirect)
	t.lingering = slices.DeleteFunc(t.lingering, func(d *direct) bool {
		_, pending := drain.OfTransfer(d.transfer.Status())
		if !pending {
			d.transfer.Release()
			t.dirty = true
		}
		return !pending
	})
}

// pollDirect looks at one direct transfer and reports whether it is physically over.
func (t *Transport) pollDirect(d *direct) bool {
	if d.transfer == nil {
		return t.pollUnposted(d)
	}
	e, pending := t.evidenceOf(d.peer, d.transfer)
	switch {
	case pending:
		if !d.over && !t.now.Before(d.began.Add(d.peer.info.RequestTimeout)) {
			t.failDirect(d, &Failure{Kind: ErrTimeout, Text: "the transfer took longer than " + d.peer.info.RequestTimeout.String()})
		}
		return false
	case !e.Closes(drain.Direct):
		if !d.doubted {
			d.doubted = true
			d.peer.pending--
			d.hold.Doubt(drain.Direct)
			t.dirty = true
			if t.mutated("tell quiesced when a direct transfer fails") {
				d.h.quiesce()
			}
			cause := d.transfer.Err()
			t.failDirect(d, &Failure{Kind: ErrWriteFailed, Cause: cause})
			t.doubt(d.peer, cause)
		}
		return false
	}
	t.dirty = true
	err := d.transfer.Err()
	switch {
	case d.over:
	case e == drain.EngineSuccess:
		d.over = true
		t.counters.Add(DirectSucceeded, 1)
		t.counters.Add(DirectBytes, d.sub.Bytes)
		d.h.end(nil, Stages{Total: t.now.Sub(d.began)})
		if len(d.sub.Notify) > 0 {
			t.notice(d.peer.id, d.sub.Notify)
		}
	default:
		t.failDirect(d, &Failure{Kind: ErrWriteFailed, Cause: err})
	}
	t.endDirect(d, e)
	return true
}

// endDirect ends a direct transfer physically. One that is pending all the same is to a fenced peer: its memory may be used again, since nobody is there to read what is sent, but the engine may
// touch it until it gives the transfer up, so it must not be unmapped before (leaving.go).
func (t *Transport) endDirect(d *direct, e drain.Evidence) {
	if !d.doubted {
		d.peer.pending--
	}
	if _, pending := drain.OfTransfer(d.transfer.Status()); pending && e != drain.Revoked {
		t.lingering = append(t.lingering, d)
	} else {
		d.transfer.Release()
	}
	d.hold.Close(drain.Direct, e)
	d.hold.Drop()
	d.h.quiesce()
	t.release(d.peer)
}

// pollUnposted looks at a transfer that waits for its ready event.
func (t *Transport) pollUnposted(d *direct) bool {
	if !d.over {
		switch d.sub.Ready.Status() {
		case ports.CopyPending:
			return false
		case ports.CopyFailed:
			t.failDirect(d, &Failure{Kind: ErrGatherFailed, Text: "the caller's ready event failed", Cause: d.sub.Ready.Err()})
		default:
			if f := t.refusal(d.peer); f != nil {
				t.failDirect(d, f)
			} else {
				t.postDirect(d)
				return false
			}
		}
	}
	d.h.quiesce()
	return true
}

// notice is an application's notification that waits for the engine to take it.
type notice struct {
	peer    ports.Identity
	message []byte
}

// Notify sends bytes to the peer's application, after everything that succeeded before. It is tried until the engine takes it; delivery is not promised. Any goroutine.
func (t *Transport) Notify(peer ports.Identity, message []byte) error {
	return t.do(func(t *Transport) { t.notice(peer, message) })
}

// maxNotices bounds the notifications that wait for the engine.
const maxNotices = 1 << 16

func (t *Transport) notice(peer ports.Identity, message []byte) {
	if len(t.notices) == maxNotices {
		t.counters.Add(NotifiesDropped, 1)
		return
	}
	t.notices = append(t.notices, &notice{peer: peer, message: message})
}

// sendNotices offers the waiting notifications to the engine; those to peers that it does not know are dropped.
func (t *Transport) sendNotices() {
	t.notices = slices.DeleteFunc(t.notices, func(x *notice) bool {
		p := t.peers[x.peer]
		if p == nil || !p.engine || p.fenced {
			t.counters.Add(NotifiesDropped, 1)
			return true
		}
		if err := t.engine.Notify(x.peer, x.message); err != nil {
			return false
		}
		t.counters.Add(NotifiesSent, 1)
		t.driver.notified(t.now)
		t.dirty = true
		return true
	})
}
