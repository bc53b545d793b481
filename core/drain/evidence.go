package drain

import "github.com/kvbounce/kvbounce/ports"

// Access is a way in which a request or a flow may touch memory.
type Access uint8

// The accesses. Each names what it reads and writes.
const (
	// Gather reads the caller's source and writes staging.
	Gather Access = iota
	// Write is our one-sided write: it reads staging and writes the peer's region.
	Write
	// PeerWrite is the peer's one-sided write into a region that we granted.
	PeerWrite
	// Scatter reads a region and writes the caller's destination.
	Scatter
	// Direct is a transfer without a bounce: it touches the caller's memory on both sides.
	Direct
	accesses
)

var accessNames = [accesses]string{"gather", "write", "peer write", "scatter", "direct transfer"}

// String is the access's name in logs and reports.
func (a Access) String() string { return accessNames[a] }

// Evidence is something that was seen. Some of it proves that an access ended, some only looks like it.
type Evidence uint8

// What proves something about at least one kind of access.
const (
	// CopyCompleted: the gather's or scatter's event fired.
	CopyCompleted Evidence = iota
	// NeverStarted: the copy was refused before it was launched, or was dropped from our own queue.
	NeverStarted
	// EngineSuccess: the engine reported success, latched.
	EngineSuccess
	// NothingPosted: the engine proved that no piece was or will be handed over.
	NothingPosted
	// EndedShort: every piece that was posted succeeded, and no other will be posted (the engine's failed-ended).
	EndedShort
	// SenderLatched: the peer sent DATA, which a sender does only after the success of its write was latched.
	SenderLatched
	// SenderDrained: the peer stated, by DRAIN or by a higher `oldest`, that no write of the request can land any more.
	SenderDrained
	// NotGranted: the grant never left this process.
	NotGranted
	// FencedAndSettled: the peer's process can no longer run, and what its writes left on the way has landed.
	FencedAndSettled
	// Revoked: the engine ended all access of that peer, and proved it.
	Revoked

	// What follows proves nothing. It is named so that the table says so.

	// TimedOut: no progress for a while.
	TimedOut
	// ErrorStatus: the engine or the device reported an error.
	ErrorStatus
	// HandleReleased: the engine's handle was given back.
	HandleReleased
	// PeerInvalidated: the engine was told to forget the peer.
	PeerInvalidated
	// EscapedError: a post ended in an error or panic of its own.
	EscapedError
	// LeaseExpired: the peer has been silent for a lease.
	LeaseExpired
	evidences
)

var evidenceNames = [evidences]string{
	"copy completed", "never started", "engine success", "nothing posted", "ended short", "sender latched its write", "sender drained", "not granted",
	"fenced and settled", "revoked", "timed out", "error status", "handle released", "peer invalidated", "escaped error", "lease expired",
}

// String is the evidence's name in logs and reports.
func (e Evidence) String() string { return evidenceNames[e] }

// table is protocol.md's table of evidence (section 7), one row an access: what closes it. All that is not listed does not.
//
// EndedShort closes a direct transfer too: it is EngineSuccess for each piece that was posted and NothingPosted for the others.
var table = [accesses][evidences]bool{
	Gather:    {CopyCompleted: true, NeverStarted: true},
	Write:     {EngineSuccess: true, NothingPosted: true, EndedShort: true, FencedAndSettled: true, Revoked: true},
	PeerWrite: {SenderLatched: true, SenderDrained: true, NotGranted: true, FencedAndSettled: true, Revoked: true},
	Scatter:   {CopyCompleted: true, NeverStarted: true},
	Direct:    {EngineSuccess: true, NothingPosted: true, EndedShort: true, FencedAndSettled: true, Revoked: true},
}

// Closes reports whether e proves that an access of kind a ended.
func (e Evidence) Closes(a Access) bool { return table[a][e] }

// OfTransfer is what an engine's status says about the transfer. pending is true while it says nothing yet.
func OfTransfer(s ports.TransferStatus) (e Evidence, pending bool) {
	switch s {
	case ports.Pending:
		return 0, true
	case ports.Success:
		return EngineSuccess, false
	case ports.FailedNothingPosted:
		return NothingPosted, false
	case ports.FailedEnded:
		return EndedShort, false
	}
	return ErrorStatus, false
}

// OfCopy is what an event's status says about the copy. pending is true while it says nothing yet.
func OfCopy(s ports.CopyStatus) (e Evidence, pending bool) {
	switch s {
	case ports.CopyPending:
		return 0, true
	case ports.CopyDone:
		return CopyCompleted, false
	}
	return ErrorStatus, false
}
