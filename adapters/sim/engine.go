package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kvbounce/kvbounce/ports"
)

// Engine is a ports.TransferEngine within a World.
type Engine struct {
	w    *World
	id   ports.Identity
	bell bell

	registrations []*registration // in the order of Register
	local         coverage
	peers         map[ports.Identity]coverage // what their metadata says is registered
	inbox         []*notification
	socket        []*transfer // of dead processes, which move on when this engine is driven
	severed       map[ports.Identity]*severance
	moved         bool // something happened since Progress was last called
	resting       bool // Rest was called since
	turning       bool // a turn at rest is queued
	closed        bool
	closedAt      ports.Instant
}

var (
	_ ports.TransferEngine = (*Engine)(nil)
	_ ports.Rester         = (*Engine)(nil)
	_ ports.Revoker        = (*Engine)(nil)
)

type registration struct {
	engine *Engine
	ranges []ports.Descriptor
}

// NewEngine makes an agent's engine. wake, unless nil, is called when a transfer became final or a notification arrived; it must not block. An identity can be used
// again only once its engine was closed.
func NewEngine(w *World, id ports.Identity, wake func()) (*Engine, error) {
	if id == "" || len(id) > ports.MaxIdentityBytes {
		return nil, fmt.Errorf("sim engine: the identity has %d bytes, want 1 to %d", len(id), ports.MaxIdentityBytes)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if other := w.engines[id]; other != nil && !other.closed {
		return nil, fmt.Errorf("sim engine: %s has one already", id)
	}
	e := &Engine{w: w, id: id, bell: bell{wake: wake}, peers: make(map[ports.Identity]coverage), severed: make(map[ports.Identity]*severance)}
	w.engines[id] = e
	return e, nil
}

// Info is "sim" in virtual time and "memory" in real time.
func (e *Engine) Info() ports.EngineInfo {
	if e.w.clock == nil {
		return ports.EngineInfo{Name: "sim"}
	}
	return ports.EngineInfo{Name: "memory"}
}

// Register checks what can be checked: the arithmetic, and in virtual time that the memory is there.
func (e *Engine) Register(ranges []ports.Descriptor) (ports.Registration, error) {
	e.w.mu.Lock()
	defer e.w.leave()
	if e.closed {
		return nil, ports.ErrClosed
	}
	for i, r := range ranges {
		if _, ok := r.End(); !ok {
			return nil, fmt.Errorf("register: range %d: %d bytes at %#x do not fit 64 bits", i, r.Bytes, r.Addr)
		}
		if r.Bytes == 0 {
			continue
		}
		if err := e.w.memory.placed(r); err != nil {
			return nil, fmt.Errorf("register: range %d: %w", i, err)
		}
	}
	r := &registration{engine: e, ranges: slices.Clone(ranges)}
	e.registrations = append(e.registrations, r)
	e.local = newCoverage(e.registered())
	e.traceRanges(MemoryRegistered, r)
	return r, nil
}

// Deregister takes back one Registration of this engine.
func (e *Engine) Deregister(r ports.Registration) error {
	e.w.mu.Lock()
	defer e.w.leave()
	if e.closed {
		return ports.ErrClosed
	}
	own, ok := r.(*registration)
	at := slices.Index(e.registrations, own)
	if !ok || at < 0 {
		return errors.New("deregister: not a registration of this engine, or no longer")
	}
	e.registrations = slices.Delete(e.registrations, at, at+1)
	e.local = newCoverage(e.registered())
	e.traceRanges(MemoryDeregistered, own)
	return nil
}

func (e *Engine) traceRanges(kind EventKind, r *registration) {
	for _, d := range r.ranges {
		e.w.trace(Event{Kind: kind, Agent: e.id, Addr: d.Addr, Bytes: d.Bytes})
	}
}

// registered is all ranges of all registrations.
func (e *Engine) registered() []ports.Descriptor {
	var all []ports.Descriptor
	for _, r := range e.registrations {
		all = append(all, r.ranges...)
	}
	return all
}

// Metadata is the identity and all ranges, under a checksum.
func (e *Engine) Metadata() ([]byte, error) {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	if e.closed {
		return nil, ports.ErrClosed
	}
	return encodeMetadata(e.id, e.registered()), nil
}

// Connect knows the peer from now on as the metadata says. Whether such an engine exists in this World shows when something is posted.
func (e *Engine) Connect(peer ports.Identity, metadata []byte) error {
	id, ranges, err := decodeMetadata(metadata)
	if err != nil {
		return err
	}
	if id != peer {
		return fmt.Errorf("%w: it is of %q, not of %q", ports.ErrBadMetadata, id, peer)
	}
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	if e.closed {
		return ports.ErrClosed
	}
	e.peers[peer] = newCoverage(ranges)
	if other := e.w.engines[peer]; other != nil && other.severed[e.id] != nil {
		other.severed[e.id].barred = false
	}
	return nil
}

// Disconnect forgets the metadata. Transfers under way go on as if nothing had happened.
func (e *Engine) Disconnect(peer ports.Identity) {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	delete(e.peers, peer)
}

// PostWrite copies from this agent to the peer.
func (e *Engine) PostWrite(peer ports.Identity, local, remote []ports.Descriptor) ports.Transfer {
	return e.post(peer, local, remote, false)
}

// PostRead copies from the peer to this agent.
func (e *Engine) PostRead(peer ports.Identity, local, remote []ports.Descriptor) ports.Transfer {
	return e.post(peer, local, remote, true)
}

// Progress does what is due in real time. In virtual time it lands what dead peers left in the socket, and tells what happened.
func (e *Engine) Progress() (moved bool) {
	e.w.mu.Lock()
	defer e.w.leave()
	e.w.drive()
	e.resting = false
	e.takeSocket()
	moved, e.moved = e.moved, false
	e.w.toldByte(e.id, 'p', yes(moved))
	return moved
}

// restEvery is how often an engine at rest turns.
const restEvery = 5 * time.Millisecond

// Rest implements ports.Rester in virtual time, where a turn that would find nothing is not taken. In real time only Progress lets time pass.
func (e *Engine) Rest() bool {
	e.w.mu.Lock()
	defer e.w.leave()
	e.resting = e.w.clock == nil && !e.closed
	e.w.toldByte(e.id, 'r', yes(e.resting))
	e.awaitTurn()
	return e.resting
}

// awaitTurn queues the next turn at rest if there is something for it to do. w.mu is held.
func (e *Engine) awaitTurn() {
	if e.resting && !e.turning && len(e.socket) > 0 {
		e.turning = true
		e.w.after(restEvery, (*restTurn)(e))
	}
}

// restTurn is an engine's turn at rest.
type restTurn Engine

func (r *restTurn) happen(*World) {
	r.turning = false
	if r.resting {
		(*Engine)(r).takeSocket()
	}
}

// Close forgets peers, registrations and messages. Nothing is moved any more into or out of this agent's memory, except by its own transfers if the
// Chooser says so (OrphanMoves). Transfers stay as they are.
func (e *Engine) Close() error {
	e.w.mu.Lock()
	defer e.w.leave()
	if e.closed {
		return nil
	}
	e.closed, e.closedAt = true, e.w.now
	e.registrations, e.peers, e.inbox, e.socket, e.local, e.resting = nil, nil, nil, nil, coverage{}, false
	e.w.trace(Event{Kind: PortClosed, Agent: e.id})
	return nil
}

// notification is one message on its way.
type notification struct {
	id       uint64
	from, to ports.Identity
	bytes    []byte
}

// Notify needs a connected peer.
func (e *Engine) Notify(peer ports.Identity, message []byte) error {
	w := e.w
	w.mu.Lock()
	defer w.leave()
	if e.closed {
		return ports.ErrClosed
	}
	if _, ok := e.peers[peer]; !ok {
		return fmt.Errorf("notify %s: %w", peer, ports.ErrUnknownPeer)
	}
	fate := FrameFate(w.fate(Point{Kind: SendNotify, Agent: e.id, Peer: peer, Frame: message}))
	n := &notification{id: w.newID(), from: e.id, to: peer}
	w.trace(Event{Kind: NotifySent, Detail: uint8(fate), Agent: e.id, Peer: peer, ID: n.id, Bytes: uint64(len(message)), Data: message})
	way := w.cfg.Timing.Frame.Base + w.cfg.Timing.Frame.bytes(uint64(len(message)))
	switch fate {
	case FrameRefused:
		w.toldByte(e.id, 'n', 1)
		return fmt.Errorf("notify %s: the simulated engine refuses", peer)
	case FrameLost:
		return nil
	case FrameLate:
		way += w.lateness(w.cfg.Timing.Frame)
	}
	n.bytes = append([]byte(nil), message...)
	w.after(way, n)
	return nil
}

// happen is the notification's arrival.
func (n *notification) happen(w *World) {
	arrived := Event{Kind: NotifyDelivered, Agent: n.to, Peer: n.from, ID: n.id, Bytes: uint64(len(n.bytes))}
	to := w.engines[n.to]
	if to == nil || to.closed {
		arrived.Kind = NotifyDropped
		w.trace(arrived)
		return
	}
	w.trace(arrived)
	to.inbox = append(to.inbox, n)
	to.moved = true
	w.ring(&to.bell)
}

// RecvNotify takes the message that arrived first.
func (e *Engine) RecvNotify() (from ports.Identity, message []byte, ok bool) {
	e.w.mu.Lock()
	defer e.w.leave()
	e.w.drive()
	if len(e.inbox) == 0 {
		return "", nil, false
	}
	n := e.inbox[0]
	e.inbox[0] = nil
	e.inbox = e.inbox[1:]
	e.w.told(e.id, 'm', n.bytes)
	return n.from, n.bytes, true
}
