package sim

import "github.com/kvbounce/kvbounce/ports"

// severance is the access between an engine and a peer of which it was revoked.
type severance struct {
	done   bool   // what was posted before moves nothing any more
	before uint64 // transfers of lower numbers
	barred bool   // nor do the peer's own, until it connects anew
}

// Revoke implements ports.Revoker. It takes as long as a transfer.
func (e *Engine) Revoke(peer ports.Identity) {
	e.w.mu.Lock()
	defer e.w.leave()
	if e.closed {
		return
	}
	delete(e.peers, peer)
	e.severed[peer] = new(severance)
	e.w.after(e.w.cfg.Timing.Transfer.Base, &revocation{e, peer, e.severed[peer]})
}

// Revoked implements ports.Revoker.
func (e *Engine) Revoked(peer ports.Identity) bool {
	e.w.mu.Lock()
	defer e.w.leave()
	e.w.drive()
	s := e.severed[peer]
	e.w.toldByte(e.id, 'v', yes(s != nil && s.done))
	return s != nil && s.done
}

// revocation is the end of a Revoke.
type revocation struct {
	engine *Engine
	peer   ports.Identity
	of     *severance
}

func (r *revocation) happen(w *World) {
	*r.of = severance{done: true, before: w.newID(), barred: true}
	w.trace(Event{Kind: AccessRevoked, Agent: r.engine.id, Peer: r.peer})
	r.engine.moved = true
	w.ring(&r.engine.bell)
}

func (r *revocation) describe(dst []byte) []byte { return append(append(dst, 'v'), r.peer...) }

// isSevered reports whether one of a transfer's two sides had the access revoked that it moves by.
func (t *transfer) isSevered(w *World) bool {
	own, target := t.owner.severed[t.peer], w.engines[t.peer].severed[t.owner.id]
	return own != nil && own.done && t.id < own.before || target != nil && target.done && (t.id < target.before || target.barred)
}
