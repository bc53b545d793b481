package transport

import (
	"errors"
	"fmt"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// Why a request failed, for errors.Is on a *Failure.
var (
	ErrCancelled    = errors.New("cancelled")
	ErrTimeout      = errors.New("no progress within the request timeout")
	ErrRefused      = errors.New("the receiver refused the request")
	ErrWriteFailed  = errors.New("the engine's transfer failed")
	ErrGatherFailed = errors.New("the gather failed")
	ErrPeerGone     = errors.New("the peer was removed")
	ErrFenced       = errors.New("the peer was fenced")
	ErrRevoked      = errors.New("the peer's access was revoked")
	ErrPeerInDoubt  = errors.New("an earlier transfer to the peer has no evidence of its end")
	ErrRetained     = errors.New("too much of the arena is kept without evidence")
	ErrPlan         = errors.New("the descriptors can't be planned")
	ErrDeregistered = errors.New("source memory was deregistered")
	ErrClosing      = errors.New("the agent is closing")
	ErrUnknownPeer  = errors.New("the peer is not known")
)

// Failure is the error of a request that failed.
type Failure struct {
	Peer    ports.Identity
	Request uint64 // 0 for a direct request, and for one that was never sent
	Kind    error  // one of the Err values of this package
	Reason  wire.Reason
	Text    string // detail: the engine's or the peer's words
	Cause   error  // the port's error, if one caused it
	Direct  string // why the request went directly; "" for one that bounced, or was to
}

// Error is one sentence that names the peer, the request and the reason.
func (f *Failure) Error() string {
	s := fmt.Sprintf("transfer with %s failed: %v", f.Peer, f.Kind)
	if f.Request != 0 {
		s = fmt.Sprintf("request %d to %s failed: %v", f.Request, f.Peer, f.Kind)
	}
	if f.Reason != 0 {
		s += fmt.Sprintf(" (%v)", f.Reason)
	}
	if f.Text != "" {
		s += ": " + f.Text
	}
	if f.Cause != nil {
		s += ": " + f.Cause.Error()
	}
	if f.Direct != "" {
		s += "; it went directly: " + f.Direct
		if errors.Is(f.Cause, ports.ErrNotRegistered) {
			s += "; register the memory for direct use on both sides, or submit it with a receive token or ForceBounce"
		}
	}
	return s
}

// Unwrap gives the kind and the cause to errors.Is and errors.As.
func (f *Failure) Unwrap() []error {
	if f.Cause == nil {
		return []error{f.Kind}
	}
	return []error{f.Kind, f.Cause}
}
