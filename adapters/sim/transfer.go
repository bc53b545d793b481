package sim

import (
	"errors"
	"fmt"

	"github.com/kvbounce/kvbounce/ports"
)

// transfer is one write or read. As an action it moves the next bytes.
type transfer struct {
	owner  *Engine
	peer   ports.Identity
	id     uint64
	read   bool
	pieces []piece

	// What moves next.
	index  int
	offset uint64
	left   uint64               // bytes that will still move
	atEnd  ports.TransferStatus // what is told once none is left; Pending: nothing
	orphan bool                 // its engine was closed, and it moves on

	status   ports.TransferStatus
	err      error
	released bool
	answered ports.TransferStatus // by Status; after Release it stays so
	reason   error                // of answered
}

// piece is a pair of ranges of equal bytes.
type piece struct{ local, remote ports.Descriptor }

// errInjected is the reason of the failures that a Chooser chose.
var errInjected = errors.New("the simulated engine failed")

func (e *Engine) post(peer ports.Identity, local, remote []ports.Descriptor, read bool) ports.Transfer {
	w := e.w
	w.mu.Lock()
	defer w.leave()
	t := &transfer{owner: e, peer: peer, id: w.newID(), read: read}
	if err := t.accept(local, remote); err != nil {
		t.status, t.err = ports.FailedNothingPosted, fmt.Errorf("%w: %w", ports.ErrNothingPosted, err)
		w.trace(Event{Kind: TransferRejected, Detail: uint8(t.status), Agent: e.id, Peer: peer, ID: t.id})
	} else {
		t.start(w, TransferFate(w.fate(Point{Kind: PostOne, Agent: e.id, Peer: peer})))
	}
	t.answered, t.reason = t.status, t.err
	w.live(t)
	return t
}

// accept checks all that can be known when a transfer is posted, and copies the ranges.
func (t *transfer) accept(local, remote []ports.Descriptor) error {
	e := t.owner
	known, ok := e.peers[t.peer]
	switch {
	case e.closed:
		return ports.ErrClosed
	case !ok:
		return fmt.Errorf("%w: %s", ports.ErrUnknownPeer, t.peer)
	case e.w.engines[t.peer] == nil:
		return fmt.Errorf("%w: %s has no engine in this process", ports.ErrUnknownPeer, t.peer)
	case len(local) != len(remote):
		return fmt.Errorf("%d local and %d remote ranges", len(local), len(remote))
	}
	t.pieces = make([]piece, len(local))
	for i, l := range local {
		r := remote[i]
		switch {
		case l.Bytes != r.Bytes:
			return fmt.Errorf("range %d has %d bytes here and %d there", i, l.Bytes, r.Bytes)
		case !e.local.covers(l):
			return fmt.Errorf("%w: local range %d, %d bytes at %#x of %s", ports.ErrNotRegistered, i, l.Bytes, l.Addr, l.Place)
		case !known.covers(r):
			return fmt.Errorf("%w: remote range %d, %d bytes at %#x of %s", ports.ErrNotRegistered, i, r.Bytes, r.Addr, r.Place)
		}
		t.pieces[i] = piece{local: l, remote: r}
		t.left += l.Bytes
	}
	return nil
}

// start plans what the fate says.
func (t *transfer) start(w *World, fate TransferFate) {
	if w.cfg.Trace != nil {
		for _, p := range t.pieces {
			w.trace(t.event(TransferRange, p.local, p.remote))
		}
	}
	w.trace(Event{Kind: TransferPosted, Detail: uint8(fate), Agent: t.owner.id, Peer: t.peer, ID: t.id, Bytes: t.left})
	cost := w.cfg.Timing.Transfer
	part := 1 + w.random.below(t.left)
	move := func(late bool, atEnd ports.TransferStatus) {
		t.atEnd = atEnd
		way := cost.Base + cost.bytes(min(t.left, w.cfg.MoveBytes))
		if late {
			way += w.lateness(cost)
		}
		w.after(way, t)
	}
	fail := func(status ports.TransferStatus) { w.after(cost.Base, &verdict{transfer: t, status: status}) }
	switch fate {
	case TransferSucceeds:
		move(false, ports.Success)
	case TransferSucceedsLate:
		move(true, ports.Success)
	case TransferNothingPosted:
		fail(ports.FailedNothingPosted)
	case TransferEndsPartly:
		t.left = min(t.left, part)
		move(false, ports.FailedEnded)
	case TransferFails:
		fail(ports.FailedUnknown)
	case TransferFailsMovesLate:
		fail(ports.FailedUnknown)
		move(true, ports.Pending)
	case TransferFailsMovesPart:
		fail(ports.FailedUnknown)
		t.left = min(t.left, part)
		move(true, ports.Pending)
	case TransferFailsSucceeds:
		fail(ports.FailedUnknown)
		move(true, ports.Success)
	case TransferHangs:
	case TransferHangsMovesLate:
		move(true, ports.Pending)
	case TransferPostFailsMovesLate:
		t.tell(w, ports.FailedUnknown, errInjected)
		move(true, ports.Pending)
	}
}

// verdict tells of a failure, apart from what moves.
type verdict struct {
	transfer *transfer
	status   ports.TransferStatus
}

func (v *verdict) happen(w *World) { v.transfer.tell(w, v.status, errInjected) }

// tell changes what Status answers. Evidence, once told, stays.
func (t *transfer) tell(w *World, status ports.TransferStatus, reason error) {
	if t.status.Ended() {
		return
	}
	switch status {
	case ports.Success:
		reason = nil
	case ports.FailedNothingPosted:
		reason = fmt.Errorf("%w: %w", ports.ErrNothingPosted, reason)
	}
	t.status, t.err = status, reason
	w.trace(Event{Kind: TransferTold, Detail: uint8(status), Agent: t.owner.id, Peer: t.peer, ID: t.id})
	if !t.owner.closed {
		t.owner.moved = true
		w.ring(&t.owner.bell)
	}
}

// happen moves at most Config.MoveBytes, and comes back for the rest. An orphan's bytes go as far as the peer's socket.
func (t *transfer) happen(w *World) {
	if t.owner.closed {
		if !t.orphan {
			if OrphanFate(w.fate(Point{Kind: OrphanMoves, Agent: t.owner.id, Peer: t.peer})) == OrphanStops {
				return
			}
			t.orphan = true
		}
		// What a dead process sent waits in its peer's own socket, and only so much fits on the way.
		if target := w.engines[t.peer]; !target.closed && !w.tooLate(t.owner) {
			target.socket = append(target.socket, t)
			target.awaitTurn()
		}
		return
	}
	t.advance(w)
}

// tooLate reports whether bytes of a closed engine are nowhere any more.
func (w *World) tooLate(e *Engine) bool {
	return w.cfg.OrphanMost > 0 && w.now.Sub(e.closedAt) > w.cfg.OrphanMost
}

// takeSocket lands what waits in the socket: a target over TCP moves such bytes itself, when it is driven.
func (e *Engine) takeSocket() {
	waiting := e.socket
	e.socket = nil
	for _, t := range waiting {
		t.advance(e.w)
	}
}

func (t *transfer) advance(w *World) {
	if err := t.move(w, w.cfg.MoveBytes); err != nil {
		// The engine can't know how far the hardware came: so it is no evidence.
		if t.atEnd != ports.Pending {
			t.tell(w, ports.FailedUnknown, err)
		}
		return
	}
	if t.left > 0 {
		w.after(w.cfg.Timing.Transfer.bytes(min(t.left, w.cfg.MoveBytes)), t)
		return
	}
	t.pieces = nil
	if t.atEnd != ports.Pending {
		t.tell(w, t.atEnd, errInjected)
	}
}

// move copies the next bytes, if both sides still have them registered.
func (t *transfer) move(w *World, most uint64) error {
	target := w.engines[t.peer]
	if target.closed {
		return fmt.Errorf("the engine of %s was closed", t.peer)
	}
	if t.isSevered(w) {
		return errors.New("the access was revoked")
	}
	for most > 0 && t.left > 0 {
		p := t.pieces[t.index]
		n := min(p.local.Bytes-t.offset, t.left, most)
		local := ports.Descriptor{Addr: p.local.Addr + t.offset, Bytes: n, Place: p.local.Place}
		remote := ports.Descriptor{Addr: p.remote.Addr + t.offset, Bytes: n, Place: p.remote.Place}
		if !target.local.covers(remote) || !t.owner.closed && !t.owner.local.covers(local) {
			return fmt.Errorf("%w any more", ports.ErrNotRegistered)
		}
		if n > 0 {
			if err := t.copy(w, local, remote); err != nil {
				return err
			}
			target.moved = true
		}
		t.left -= n
		most -= n
		t.offset += n
		if t.offset == p.local.Bytes {
			t.index, t.offset = t.index+1, 0
		}
	}
	return nil
}

// event is about bytes that are copied from one range to the other.
func (t *transfer) event(kind EventKind, local, remote ports.Descriptor) Event {
	if t.read {
		return Event{Kind: kind, Detail: 1, Agent: t.owner.id, Peer: t.peer, ID: t.id, From: remote.Addr, Addr: local.Addr, Bytes: local.Bytes}
	}
	return Event{Kind: kind, Agent: t.owner.id, Peer: t.peer, ID: t.id, From: local.Addr, Addr: remote.Addr, Bytes: local.Bytes}
}

func (t *transfer) copy(w *World, local, remote ports.Descriptor) error {
	e := t.event(TransferMoves, local, remote)
	source, err := w.memory.view(e.From, e.Bytes)
	if err != nil {
		return err
	}
	destination, err := w.memory.view(e.Addr, e.Bytes)
	if err != nil {
		return err
	}
	w.trace(e)
	copy(destination, source)
	w.moved += local.Bytes
	return nil
}

// Status does what is due in real time. In virtual time it only tells what happened.
func (t *transfer) Status() ports.TransferStatus {
	w := t.owner.w
	w.mu.Lock()
	defer w.leave()
	w.drive()
	t.answer()
	w.toldByte(t.owner.id, 't', byte(t.answered))
	return t.answered
}

// Err is the reason of the status.
func (t *transfer) Err() error {
	w := t.owner.w
	w.mu.Lock()
	defer w.leave()
	t.answer()
	return t.reason
}

func (t *transfer) answer() {
	if !t.released {
		t.answered, t.reason = t.status, t.err
	}
}

// Release stops nothing.
func (t *transfer) Release() {
	w := t.owner.w
	w.mu.Lock()
	defer w.leave()
	if !t.released {
		t.released = true
		w.trace(Event{Kind: TransferReleased, Agent: t.owner.id, Peer: t.peer, ID: t.id})
	}
}
