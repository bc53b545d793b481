package nixlnotify

import (
	"errors"
	"fmt"

	"github.com/kvbounce/kvbounce/ports"
)

// Underlying is what the package needs of an engine.
type Underlying interface {
	ports.TransferEngine
	// ConnectionMetadata is the engine's Metadata without registrations: enough for a peer to send notifications. It is the same for the engine's whole life. Any goroutine.
	ConnectionMetadata() ([]byte, error)
}

// Engine is the agent's view of an engine that it shares with a Channel. It is a ports.TransferEngine that neither gives the channel's frames to the application nor takes the channel's connections away.
type Engine struct {
	ports.TransferEngine
	connections *connections
	inbox       *inbox
	turns       uint64
}

var (
	_ ports.TransferEngine = (*Engine)(nil)
	_ ports.Rester         = (*Engine)(nil)
	_ ports.TurnCounter    = (*Engine)(nil)
)

// errReserved: the receiver would take the message for a frame.
var errReserved = fmt.Errorf("a notification may not begin with %q", ports.FrameMagic)

// Connect implements ports.TransferEngine.
func (e *Engine) Connect(peer ports.Identity, metadata []byte) error {
	return e.connections.connectAgent(peer, metadata)
}

// Disconnect implements ports.TransferEngine. A peer that only the channel knows stays connected.
func (e *Engine) Disconnect(peer ports.Identity) { e.connections.disconnectAgent(peer) }

// PostWrite implements ports.TransferEngine.
func (e *Engine) PostWrite(peer ports.Identity, local, remote []ports.Descriptor) ports.Transfer {
	if !e.connections.agent[peer] {
		return refusedTo(peer)
	}
	return e.TransferEngine.PostWrite(peer, local, remote)
}

// PostRead implements ports.TransferEngine.
func (e *Engine) PostRead(peer ports.Identity, local, remote []ports.Descriptor) ports.Transfer {
	if !e.connections.agent[peer] {
		return refusedTo(peer)
	}
	return e.TransferEngine.PostRead(peer, local, remote)
}

// Notify implements ports.TransferEngine. It refuses messages that begin with ports.FrameMagic.
func (e *Engine) Notify(peer ports.Identity, message []byte) error {
	switch {
	case ports.IsFrame(message):
		return errReserved
	case !e.connections.agent[peer]:
		return fmt.Errorf("%w %s", ports.ErrUnknownPeer, peer)
	}
	return e.TransferEngine.Notify(peer, message)
}

// Rest implements ports.Rester where the engine below does.
func (e *Engine) Rest() bool {
	below, ok := e.TransferEngine.(ports.Rester)
	return ok && below.Rest()
}

// Turns implements ports.TurnCounter where the engine below does. Where it does not, its Progress drives it, and every question comes after a turn.
func (e *Engine) Turns() uint64 {
	if below, ok := e.TransferEngine.(ports.TurnCounter); ok {
		return below.Turns()
	}
	e.turns++
	return e.turns
}

// RecvNotify implements ports.TransferEngine. It passes over frames.
func (e *Engine) RecvNotify() (from ports.Identity, message []byte, ok bool) {
	m, ok := e.inbox.next(false)
	return m.from, m.bytes, ok
}

// refused is a transfer to a peer that the agent did not connect, though the channel may have.
type refused struct{ err error }

func refusedTo(peer ports.Identity) *refused {
	return &refused{errors.Join(ports.ErrNothingPosted, fmt.Errorf("%w %s", ports.ErrUnknownPeer, peer))}
}

func (r *refused) Status() ports.TransferStatus { return ports.FailedNothingPosted }
func (r *refused) Err() error                   { return r.err }
func (r *refused) Release()                     {}
