package transport

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/core/list"
	"github.com/kvbounce/kvbounce/ports"
)

// PeerInfo is what AddPeer tells the transport of a peer incarnation.
type PeerInfo struct {
	Identity       ports.Identity
	EngineMetadata []byte
	Endpoint       []byte // of its control channel; empty without bounce
	Arena          ports.MemoryKind
	RequestTimeout time.Duration // the smaller of both sides'
	StartedUnixNS  uint64        // wall clock at the peer's start: an older incarnation than the present one of the name is stale
	Force          bool          // not even then
	Gate           *Gate
}

// Gate tells submitters, in any goroutine, why a peer takes no new requests.
type Gate struct{ refusal atomic.Pointer[Failure] }

// Refusal is nil while requests may be submitted.
func (g *Gate) Refusal() *Failure { return g.refusal.Load() }

// peer is one incarnation of a peer: what this side sends to it and receives from it.
type peer struct {
	id         ports.Identity
	info       PeerInfo      // zero unless added
	added      bool          // by AddPeer: requests may be sent to it
	superseded bool          // another incarnation of the name was added, or this one fenced: nothing new
	fenced     bool          // its process can no longer run: nothing is sent to it or taken from it
	settling   bool          // what it held is not given back yet
	revoked    bool          // the engine has ended all access, and it was not added since
	moved      ports.Instant // when a frame last named another endpoint
	endpoint   []byte        // where its control channel is; empty: no way back
	engine     bool          // connected in the engine
	inDoubt    bool          // a transfer to it failed without evidence: nothing more is posted
	party      drain.Party
	unproved   bool // something of it was in doubt at the last look
	pending    int  // transfers to it whose status is pending

	// As the target of our requests.
	lastID   uint64
	requests map[uint64]*request
	reqs     list.List[request] // in order of number
	tracked  int
	draining int           // of them failed, their DRAIN not answered
	heard    bool          // it ever sent a frame
	heardAt  ports.Instant // when the last one came, real time

	// Repair towards a silent peer.
	silent      bool // no frame of it came since the last repeat
	lastRepeat  ports.Instant
	silentStep  time.Duration
	unanswered  int // frames sent since its last one
	nextTrickle ports.Instant

	// As the source of flows.
	flows         map[uint64]*flow
	flowList      list.List[flow] // in order of number
	live          int             // flows that are open or closed and waiting
	finished      int             // flows kept for re-ACK
	highestOldest uint64
	drained       drainedRequests

	idle timer
}

func (t *Transport) newPeer(id ports.Identity) *peer {
	p := &peer{id: id, requests: map[uint64]*request{}, flows: map[uint64]*flow{}, silentStep: repeatFirst, lastID: t.retired.lastID(id)}
	p.idle = timer{kind: timerIdle, owner: p}
	t.peers[id] = p
	t.order = append(t.order, p)
	return p
}

// DirectOnlyError is the result of an AddPeer that made the peer known, but whose control endpoint the channel refused: requests to it can't bounce.
type DirectOnlyError struct {
	Peer  ports.Identity
	Cause error
}

func (e *DirectOnlyError) Error() string { return fmt.Sprintf("peer %s: %v", e.Peer, e.Cause) }
func (e *DirectOnlyError) Unwrap() error { return e.Cause }

// AddPeer makes a peer known, or replaces what is known of the same incarnation; done is called in the reactor. An incarnation not yet added
// supersedes every other of its name. A different endpoint for an added incarnation is refused. After a DirectOnlyError the peer was added all the same.
func (t *Transport) AddPeer(info PeerInfo, done func(error)) error {
	return t.do(func(t *Transport) { done(t.addPeer(info)) })
}

func (t *Transport) addPeer(info PeerInfo) error {
	if t.closing {
		return ErrClosing
	}
	p := t.peers[info.Identity]
	if (p != nil && p.superseded) || t.retired.superseded(info.Identity) {
		return fmt.Errorf("%w: %s was superseded or fenced", ErrStale, info.Identity)
	}
	if err := t.isRevoking(info.Identity); err != nil {
		return err
	}
	if p != nil && p.added && len(p.info.Endpoint) > 0 && !bytes.Equal(p.info.Endpoint, info.Endpoint) {
		return fmt.Errorf("peer %s is known with endpoint %q; an incarnation can't move to %q", p.id, p.info.Endpoint, info.Endpoint)
	}
	for _, other := range t.order {
		if other != p && other.id.Name() == info.Identity.Name() && other.added && !other.superseded && !info.Force && info.StartedUnixNS < other.info.StartedUnixNS {
			return fmt.Errorf("%w: %s started before the present %s", ErrStale, info.Identity, other.id)
		}
	}
	if err := t.connectEngine(p, info); err != nil {
		return fmt.Errorf("peer %s: %w", info.Identity, err)
	}
	var refused error
	if t.control != nil && len(info.Endpoint) > 0 {
		if err := t.control.Connect(info.Identity, info.Endpoint); err != nil {
			// As with a handshake that is not compatible, the direct path still works (protocol.md, 4).
			refused = &DirectOnlyError{info.Identity, err}
			info.Endpoint = nil
		}
	}
	again := p != nil && p.added
	if p == nil {
		p = t.newPeer(info.Identity)
	} else if !again {
		t.strangers--
		t.timers.stop(&p.idle)
	}
	p.info, p.added, p.engine, p.revoked = info, true, true, false
	if len(info.Endpoint) > 0 {
		p.endpoint = bytes.Clone(info.Endpoint)
	}
	if p.inDoubt && p.pending == 0 {
		p.inDoubt = false
	}
	t.setGate(p)
	if again {
		return refused
	}
	for _, other := range slices.Clone(t.order) {
		if other != p && other.id.Name() == p.id.Name() && !other.superseded {
			t.supersede(other)
		}
	}
	return refused
}

// connectEngine loads the peer's metadata. Where a transfer failed without evidence and nothing is pending, the old connection is dropped first: a
// broken endpoint of NIXL's comes back only so (nixl.md, 2).
func (t *Transport) connectEngine(p *peer, info PeerInfo) error {
	if p != nil && p.inDoubt && p.pending == 0 && p.engine {
		t.engine.Disconnect(p.id)
		p.engine = false
	}
	return t.engine.Connect(info.Identity, info.EngineMetadata)
}

func (t *Transport) supersede(p *peer) {
	t.log.Info("peer superseded", "peer", p.id)
	p.superseded = true
	if !p.added {
		t.strangers--
	}
	t.setGate(p)
	t.failUnstarted(p, ErrPeerGone, "a newer incarnation of the name was added")
	if p.inUse() || len(p.flows) > 0 {
		t.release(p)
		return
	}
	t.forgetPeer(p)
}

// RemovePeer ends sending requests to a peer; done is called in the reactor. Its requests in progress fail and drain; flows that it sends here run to their end. What has no
// evidence is kept. Unknown peers are ignored.
func (t *Transport) RemovePeer(id ports.Identity, done func()) error {
	return t.do(func(t *Transport) {
		if p := t.peers[id]; p != nil {
			t.removePeer(p, ErrPeerGone)
		}
		done()
	})
}

func (t *Transport) removePeer(p *peer, why error) {
	if !p.added {
		return
	}
	t.failAll(p, why, "")
	p.added = false
	if !p.superseded {
		t.strangers++
	}
	t.setGate(p)
	t.release(p)
}

// setGate tells submitters whether the peer takes requests.
func (t *Transport) setGate(p *peer) {
	if p.info.Gate == nil {
		return
	}
	p.info.Gate.refusal.Store(t.refusal(p))
}

// refusal is why nothing new may be sent to p, or nil.
func (t *Transport) refusal(p *peer) *Failure {
	switch {
	case t.closing:
		return &Failure{Peer: p.id, Kind: ErrClosing}
	case p.fenced:
		return &Failure{Peer: p.id, Kind: ErrFenced}
	case !p.added:
		return &Failure{Peer: p.id, Kind: ErrPeerGone}
	case p.superseded:
		return &Failure{Peer: p.id, Kind: ErrPeerGone, Text: "a newer incarnation of the name was added"}
	case p.inDoubt:
		return &Failure{Peer: p.id, Kind: ErrPeerInDoubt, Text: "add the peer again when nothing is pending, or a new incarnation of it; fence it if its process can no longer run"}
	}
	return nil
}

// doubt is called when a transfer to p failed without evidence: one broken endpoint must not eat both arenas.
func (t *Transport) doubt(p *peer, cause error) {
	t.counters.Add(UnprovedWrites, 1)
	if p.inDoubt {
		return
	}
	p.inDoubt = true
	t.log.Warn("a transfer failed and nothing proves that it ended; its memory is kept and nothing more is posted to the peer", "peer", p.id, "cause", cause)
	t.setGate(p)
	t.failAll(p, ErrPeerInDoubt, "")
}

// heardFrom notes that a frame of the peer came.
func (t *Transport) heardFrom(p *peer) {
	p.heard, p.silent, p.heardAt = true, false, t.real
	p.unanswered, p.silentStep = 0, repeatFirst
}

// wayBackEvery is how often a peer's frames may move its endpoint.
const wayBackEvery = 2 * time.Second

// wayBack learns where a peer's control channel is from its WANT or DRAIN. AddPeer's word stands.
func (t *Transport) wayBack(p *peer, endpoint []byte) {
	if len(endpoint) == 0 || bytes.Equal(p.endpoint, endpoint) || (p.added && len(p.info.Endpoint) > 0) {
		return
	}
	if len(p.endpoint) > 0 && t.now.Before(p.moved.Add(wayBackEvery)) {
		// Each endpoint costs a connection, which goes only some time after it was given up.
		t.counters.Add(FramesNotDecoded, 1)
		return
	}
	p.moved = t.now
	if err := t.control.Connect(p.id, endpoint); err != nil {
		t.counters.Add(FramesNotDecoded, 1)
		t.log.Debug("a peer's endpoint can't be used", "peer", p.id, "err", err)
		return
	}
	p.endpoint = bytes.Clone(endpoint)
}

// release lets go of a peer entry that AddPeer no longer holds, a lease after its last open or closed flow and tracked request: until then the answer to its last message may have to be
// given again. Its engine connection goes only when no transfer is pending, since invalidating hides a completion (nixl.md, 2).
func (t *Transport) release(p *peer) {
	switch {
	case t.peers[p.id] != p || (p.added && !p.superseded):
	case p.settling:
	case p.inUse():
		t.timers.stop(&p.idle)
	case p.idle.slot == 0:
		t.timers.arm(&p.idle, t.now.Add(t.settings.ReceiverLease))
	}
}

// inUse reports whether something of the entry is open.
func (p *peer) inUse() bool {
	return p.live > 0 || p.tracked > 0 || p.pending > 0 || p.party.Totals() != (drain.Totals{})
}

// fire drops the entry when the lease after its last use has passed.
func (p *peer) fire(t *Transport, _ timerKind) {
	if !p.inUse() {
		t.forgetPeer(p)
	}
}

func (t *Transport) forgetPeer(p *peer) {
	t.timers.stop(&p.idle)
	t.retired.add(p.id, p.retire())
	if !p.superseded {
		t.strangers--
	}
	for f := range p.flowList.All {
		t.forgetFlow(f)
	}
	if t.control != nil {
		t.control.Disconnect(p.id)
	}
	if p.engine {
		t.engine.Disconnect(p.id)
	}
	delete(t.peers, p.id)
	for i, q := range t.order {
		if q == p {
			t.order = append(t.order[:i], t.order[i+1:]...)
			break
		}
	}
}
