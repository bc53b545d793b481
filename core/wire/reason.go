package wire

// Reason is why a NACK refuses. 0 is no reason and never on the wire. Numbers above ReasonExpired may come from a newer peer: they decode, and count as a failure.
type Reason uint32

// The reasons of wire 3.
const (
	ReasonMalformed     Reason = 1  // malformed, or contradicts an earlier frame
	ReasonUnknownFlow   Reason = 2  // the receiver does not know the request
	ReasonOutsideChunk  Reason = 3  // a run leaves the chunk, or the region is not the chunk's
	ReasonUnregistered  Reason = 4  // a destination outside registered memory
	ReasonReceiveWindow Reason = 5  // a destination that the request's receive token does not open
	ReasonTooLarge      Reason = 6  // a chunk above the receiver's limit
	ReasonScatterFailed Reason = 7  // the device failed
	ReasonRefused       Reason = 8  // shutting down, or the sender is superseded
	ReasonOverloaded    Reason = 9  // a limit of the receiver is reached; trying again later is right
	ReasonExpired       Reason = 10 // the receiver's lease of the request ran out
)

var reasonNames = [...]string{
	ReasonMalformed: "malformed", ReasonUnknownFlow: "unknown_flow", ReasonOutsideChunk: "outside_chunk", ReasonUnregistered: "unregistered", ReasonReceiveWindow: "receive_window",
	ReasonTooLarge: "too_large", ReasonScatterFailed: "scatter_failed", ReasonRefused: "refused", ReasonOverloaded: "overloaded", ReasonExpired: "expired",
}

// String is the reason_name of the command's JSON; "unknown" for a number that wire 3 does not define.
func (r Reason) String() string {
	if r == 0 || uint64(r) >= uint64(len(reasonNames)) {
		return "unknown"
	}
	return reasonNames[r]
}
