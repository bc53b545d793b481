package ports

import "errors"

// Errors of a TransferEngine. Adapters wrap them, keeping the engine's own code and text.
var (
	// ErrNothingPosted says, as proof, that no byte was or will be moved by the transfer that failed with it.
	ErrNothingPosted = errors.New("nothing was posted")
	// ErrUnknownPeer: the peer was not connected, or was disconnected.
	ErrUnknownPeer = errors.New("unknown peer")
	// ErrNotRegistered: a range is not covered by one registration.
	ErrNotRegistered = errors.New("memory is not registered with the engine")
	// ErrBadMetadata: a peer's metadata is damaged, or names another agent.
	ErrBadMetadata = errors.New("bad engine metadata")
	// ErrClosed: the port was closed.
	ErrClosed = errors.New("closed")
)

// TransferStatus is what is known of a transfer.
type TransferStatus uint8

// The statuses of a transfer. Success, FailedNothingPosted and FailedEnded are final: once seen they never change. FailedUnknown is final but
// for one case: an engine that later learns of the success may say Success.
const (
	// Pending: the transfer may be running, or is queued.
	Pending TransferStatus = iota
	// Success: every byte is placed at its destination and nothing of this transfer will touch memory again. It is evidence.
	Success
	// FailedNothingPosted: no piece was handed over and none will be. It is evidence.
	FailedNothingPosted
	// FailedEnded: some pieces were posted, each of those succeeded, and no other will be posted. It is evidence.
	FailedEnded
	// FailedUnknown: the transfer failed and may still read its source and write its destination, now or much later. It proves nothing.
	FailedUnknown
)

// Ended reports whether the status proves that the transfer no longer touches memory.
func (s TransferStatus) Ended() bool {
	return s == Success || s == FailedNothingPosted || s == FailedEnded
}

// String names the status as logs and traces print it.
func (s TransferStatus) String() string {
	switch s {
	case Pending:
		return "pending"
	case Success:
		return "success"
	case FailedNothingPosted:
		return "failed-nothing-posted"
	case FailedEnded:
		return "failed-ended"
	case FailedUnknown:
		return "failed-unknown"
	}
	return "unknown transfer status"
}

// Transfer is one one-sided read or write that was handed to an engine. Reactor.
type Transfer interface {
	// Status never blocks. What it answers is evidence as TransferStatus says. After Release it goes on answering what it last answered.
	Status() TransferStatus
	// Err is nil unless Status is one of the failures; then it is the reason. It wraps ErrNothingPosted exactly if Status is FailedNothingPosted.
	Err() error
	// Release gives the handle back. It stops nothing and proves nothing: a transfer that was pending may run on. Calling it again does nothing.
	Release()
}

// Registration is an engine's handle on memory that it was told of. Only that engine looks inside.
type Registration any

// EngineInfo says which engine this is.
type EngineInfo struct {
	Name    string // "nixl", "memory", "sim"
	Version string // the engine's own version, or "" when it has none
	Real    bool   // whether it moves bytes between processes; a simulator's and an in-process engine's is false
}

// Rester is a TransferEngine that can drive itself while nothing happens, which costs less than being woken for it.
type Rester interface {
	// Rest makes the engine drive itself some 200 times a second until Progress is called next, and call the reactor's wake when something arrived. It reports false when it can't: then the reactor has
	// to go on calling Progress. Reactor.
	Rest() bool
}

// TurnCounter is a TransferEngine whose Progress may return before the engine was driven, since another thread does it.
type TurnCounter interface {
	// Turns is how often the engine has been driven to the end. Reactor.
	Turns() uint64
}

// Revoker is a TransferEngine that can end a peer's access, and prove it (protocol.md, 7).
type Revoker interface {
	// Revoke ends all access between this agent's memory and a peer's: transfers of either that are under way, and what either may still post by the metadata that it has. It hands over and returns, and may be
	// called again. The peer is disconnected; each side needs the other's metadata anew. Reactor.
	Revoke(peer Identity)
	// Revoked reports whether that is done: no such transfer reads or writes memory any more. It is evidence, for all that was posted before Revoke; that of transfers with FailedUnknown too. Reactor.
	Revoked(peer Identity) bool
}

// TransferEngine moves bytes between registered memory of this agent and of its peers, one-sidedly.
//
// Register, Deregister, Metadata, Info and Close may be called from any goroutine and may block (pinning memory takes time). All other methods are
// the reactor's and never block: they hand work over and return.
//
// The engine and its Transfers belong to one agent, whose identity was given at construction.
type TransferEngine interface {
	Info() EngineInfo

	// Register makes the ranges available to transfers: as local memory of this agent's transfers, and, through Metadata taken afterwards, as remote
	// memory of its peers'. The ranges must stay mapped until Deregister returned and every peer that may hold the metadata has confirmed that it ended.
	// All or nothing. The engine copies the slice.
	Register(ranges []Descriptor) (Registration, error)
	// Deregister takes memory back. The caller must hold evidence that no transfer touches it any more: the engine does not check. A second call is an error.
	Deregister(Registration) error
	// Metadata is what a peer needs to reach this agent and all that is registered now. The caller owns the bytes. It protects itself
	// against damage: Connect of a damaged copy fails, and harms nothing.
	Metadata() ([]byte, error)

	// Connect loads a peer's metadata, replacing what was known of that peer (a newer copy of the same incarnation's metadata adds registrations). It hands over
	// and returns; transfers may be posted at once and wait for it. An error that can be seen at once (wrong name inside, damage: ErrBadMetadata) is returned and
	// changes nothing; one that comes later fails the transfers that wait for it with FailedNothingPosted. The engine copies the bytes.
	Connect(peer Identity, metadata []byte) error
	// Disconnect forgets a peer. Transfers to it that are under way go on, and their status may never become final: it proves nothing. Posts afterwards fail
	// with ErrUnknownPeer. Unknown peers are ignored.
	Disconnect(peer Identity)

	// PostWrite copies local ranges of this agent to remote ranges of the peer: local[i] to remote[i], which must have equal bytes. PostRead copies the
	// other way. It always returns a Transfer, which may already be final. The engine copies the slices before it returns.
	// One transfer's pieces have no order. Each range must lie within one registered range; if not, the transfer fails (FailedNothingPosted with ErrNotRegistered if the engine can tell).
	PostWrite(peer Identity, local, remote []Descriptor) Transfer
	PostRead(peer Identity, local, remote []Descriptor) Transfer

	// Notify sends a message to a peer, apart from transfers: unordered, may be lost, never damaged. nil means that it was accepted, not that it arrived; an error
	// means that it was not accepted and may be tried again. It leaves while the engine is driven. The engine copies the bytes.
	Notify(peer Identity, message []byte) error
	// RecvNotify takes the next message that arrived, if any. from is the sender's claim. The caller owns the bytes.
	RecvNotify() (from Identity, message []byte, ok bool)

	// Progress drives the engine once: without it neither own transfers nor those of peers into this agent's memory need move. It reports whether something
	// happened since the last call (a transfer became final, a message arrived, a peer's bytes moved as far as the engine can tell).
	Progress() (moved bool)

	// Close ends the engine. Transfers that are pending may or may not run on; the caller must hold evidence, or keep the memory mapped for ever.
	// Calling it again does nothing.
	Close() error
}
