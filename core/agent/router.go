package agent

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/ports"
)

// Reason is why a request took its path.
type Reason int

// The reasons. Bounced is the only one of the bounce path.
const (
	Bounced Reason = iota
	DirectForced
	DirectBounceOff     // here
	DirectNotAWrite     // reads go directly
	DirectPeerHandshake // the peer's handshake rules bounce out
	DirectMixedPlaces   // several devices on one side
	DirectTooManyChunks // by the peer's chunk limit
	DirectSourcePlace   // the source is not of the arena's device
	DirectDestination   // the destination is not of the kind of the peer's arena
	DirectFewPieces
	DirectLargePieces
	DirectRetained // it would bounce, but too much of the arena is in doubt
	reasons
)

var reasonNames = [reasons]string{
	"bounced", "direct_forced", "direct_bounce_off", "direct_not_a_write", "direct_peer_handshake", "direct_mixed_places", "direct_too_many_chunks", "direct_source_place",
	"direct_destination_kind", "direct_few_pieces", "direct_large_pieces", "direct_retained",
}

var reasonTexts = [reasons]string{
	"", "the direct path was asked for", "bounce is off here", "only writes can bounce", "the peer's handshake does not allow it", "one side has memory of several devices", "it needs too many chunks",
	"the source is not memory of the arena's device", "the destination is not memory of the kind of the peer's arena", "it has too few pieces", "its pieces are too large",
	"too much of the arena is in doubt",
}

// String is the reason's name in JSON and metrics.
func (r Reason) String() string { return reasonNames[r] }

// ErrNoBounce: a request that must bounce can't.
var ErrNoBounce = errors.New("the request can't take the bounce path")

// router chooses paths and counts why.
type router struct{ count [reasons]atomic.Uint64 }

// choose picks the path of a request that has bytes. unplanned is why it has no plan, which only the direct path can do without.
func (rt *router) choose(a *Agent, v *peerView, r Request, s plan.Summary, unplanned error) (Reason, error) {
	reason := a.reason(v, r, s, unplanned)
	must := r.Route == ForceBounce || r.Token != 0 || a.ownership.Load()
	if must && (reason == DirectFewPieces || reason == DirectLargePieces) {
		// These two are about speed; a request that must bounce may be slow.
		reason = Bounced
	}
	if a.ownership.Load() && v.reason == "" && !v.capable {
		return 0, fmt.Errorf("%w: the peer %s is not ownership-capable", ErrNoBounce, r.Peer)
	}
	retained := a.transport.BounceRefusal()
	if reason == Bounced && retained != nil {
		reason = DirectRetained
	}
	switch {
	case reason == Bounced:
	case reason == DirectRetained && (must || v.needsToken):
		return 0, fmt.Errorf("%w: %w", ErrNoBounce, retained)
	case must && r.Token != 0 && r.Route == ForceDirect:
		return 0, fmt.Errorf("%w: a request with a receive token can't go directly", ErrNoBounce)
	case must:
		text := reasonTexts[reason]
		switch reason {
		case DirectPeerHandshake:
			text = v.reason
		case DirectTooManyChunks:
			text = unplanned.Error()
		}
		return 0, fmt.Errorf("%w: %s", ErrNoBounce, text)
	case v.needsToken:
		return 0, fmt.Errorf("%w: the peer %s requires receive tokens: nothing goes directly to or from it", ErrNoBounce, r.Peer)
	}
	rt.count[reason].Add(1)
	return reason, nil
}

// reason applies the rules of protocol.md, 9, in their order.
func (a *Agent) reason(v *peerView, r Request, s plan.Summary, unplanned error) Reason {
	switch {
	case r.Route == ForceDirect:
		return DirectForced
	case a.arena == nil:
		return DirectBounceOff
	case r.Op != Write:
		return DirectNotAWrite
	case v.reason != "":
		return DirectPeerHandshake
	case errors.Is(unplanned, plan.ErrPlaces):
		return DirectMixedPlaces
	case unplanned != nil:
		return DirectTooManyChunks
	case placeOf(r.Local) != a.arena.memory.Place:
		return DirectSourcePlace
	case placeOf(r.Remote).Kind != v.arena:
		return DirectDestination
	case s.Pieces < a.cfg.MinDescriptorCount:
		return DirectFewPieces
	case (s.Bytes-1)/uint64(s.Pieces)+1 > a.cfg.MaxAverageDescriptorSize: // rounded up
		return DirectLargePieces
	}
	return Bounced
}

// placeOf is the place of a list's first descriptor that has bytes.
func placeOf(list []ports.Descriptor) ports.Place {
	for _, d := range list {
		if d.Bytes > 0 {
			return d.Place
		}
	}
	return ports.Place{}
}
