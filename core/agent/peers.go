package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// peerView is what submitters know of a peer.
type peerView struct {
	reason     string      // why its handshake rules bounce out; empty when it does not
	limits     plan.Limits // how requests to it are cut
	arena      ports.MemoryKind
	needsToken bool
	capable    bool // of ownership: it answers DRAIN
	gate       transport.Gate
}

// PeerReport says what AddPeer found.
type PeerReport struct {
	Bounce     bool   // requests to the peer may take the bounce path
	Reason     string // why not
	ChunkLimit uint64 // bytes; the smaller of both sides' limits
	Timeout    time.Duration
}

// AddPeer makes a peer known, or replaces what is known of the same incarnation, and supersedes every other incarnation of its name. A peer whose bounce handshake is
// not compatible is added all the same, for the direct path; the report says why. It returns ErrStale for an incarnation that was superseded, and for
// a description that started before the present one of the name, unless force is set. It waits for the reactor.
func (a *Agent) AddPeer(desc AgentDesc, force bool) (PeerReport, error) {
	type result struct {
		report PeerReport
		err    error
	}
	ch := make(chan result, 1)
	a.AddPeerAsync(desc, force, func(r PeerReport, err error) { ch <- result{r, err} })
	r := <-ch
	return r.report, r.err
}

// AddPeerAsync is AddPeer for callers that can't wait; done is called in the reactor, or at once when the description is refused.
func (a *Agent) AddPeerAsync(desc AgentDesc, force bool, done func(PeerReport, error)) {
	info, view, report, err := a.judge(desc, force)
	if err != nil {
		done(PeerReport{}, err)
		return
	}
	err = a.transport.AddPeer(info, func(err error) {
		var direct *transport.DirectOnlyError
		if errors.As(err, &direct) {
			view.reason = direct.Cause.Error()
			report.Bounce, report.Reason, err = false, view.reason, nil
		}
		if err != nil {
			done(PeerReport{}, err)
			return
		}
		a.adopt(desc.Identity, view)
		if report.Reason != "" {
			a.log.Info("peer added; bounce is off for it", "peer", desc.Identity, "reason", report.Reason)
		}
		done(report, nil)
	})
	if err != nil {
		done(PeerReport{}, err)
	}
}

// judge holds a description against ours.
func (a *Agent) judge(desc AgentDesc, force bool) (transport.PeerInfo, *peerView, PeerReport, error) {
	view := &peerView{}
	info := transport.PeerInfo{Identity: desc.Identity, EngineMetadata: desc.Metadata, RequestTimeout: a.cfg.RequestTimeout, StartedUnixNS: desc.StartedUnixNS, Force: force, Gate: &view.gate}
	refuse := func(err error) (transport.PeerInfo, *peerView, PeerReport, error) {
		return info, nil, PeerReport{}, err
	}
	if _, err := ports.ParseIdentity(string(desc.Identity)); err != nil {
		return refuse(fmt.Errorf("peer: %w", err))
	}
	if desc.Identity == a.opt.Identity {
		return refuse(fmt.Errorf("%s is this agent itself", desc.Identity))
	}
	if engine := a.opt.Engine.Info().Name; desc.Engine != engine {
		return refuse(fmt.Errorf("peer %s uses the engine %q, this agent %q: both must use the same", desc.Identity, desc.Engine, engine))
	}
	var h wire.Handshake
	if len(desc.Bounce) > 0 {
		if err := h.Decode(desc.Bounce); err != nil {
			return refuse(fmt.Errorf("peer %s: %w", desc.Identity, err))
		}
		if h.Incarnation != desc.Identity.Incarnation() {
			return refuse(fmt.Errorf("peer %s: handshake incarnation %016x is another's", desc.Identity, h.Incarnation))
		}
	}
	var chunkLimit uint64
	if view.reason = a.incompatible(len(desc.Bounce) > 0, &h); view.reason == "" {
		info.Endpoint, info.Arena = bytes.Clone(h.Endpoint), arenaKind(&h)
		if h.RequestTimeout > 0 {
			info.RequestTimeout = min(info.RequestTimeout, h.RequestTimeout)
		}
		chunkLimit, view.arena = min(a.cfg.MaxChunkSize, h.MaxChunk, h.ArenaUsable), info.Arena
	}
	view.needsToken, view.capable = h.TokenRequired, h.Ownership // whatever rules bounce out
	view.limits = Limits(a.cfg.ChunkTarget, chunkLimit, a.bothDevices(view))
	return info, view, PeerReport{Bounce: view.reason == "", Reason: view.reason, ChunkLimit: chunkLimit, Timeout: info.RequestTimeout}, nil
}

func arenaKind(h *wire.Handshake) ports.MemoryKind {
	if h.DeviceArena {
		return ports.Device
	}
	return ports.Host
}

// incompatible is why the handshake rules bounce out, or empty (protocol.md, 4).
func (a *Agent) incompatible(offered bool, h *wire.Handshake) string {
	switch {
	case a.arena == nil:
		return "bounce is off here"
	case !offered:
		return "bounce is off at the peer"
	case h.Wire != wire.Version:
		return fmt.Sprintf("the peer speaks wire %d, this agent %d", h.Wire, wire.Version)
	case h.Control != a.opt.Control.Kind():
		return fmt.Sprintf("the peer's control channel is %s, this agent's %s", h.Control, a.opt.Control.Kind())
	case h.MaxChunk == 0 || h.ArenaUsable == 0:
		return "the peer's chunk limit is 0"
	case len(h.Endpoint) == 0:
		return "the peer names no control endpoint"
	}
	return ""
}

// adopt makes an added peer visible to submitters, in place of every other incarnation of its name.
func (a *Agent) adopt(id ports.Identity, view *peerView) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old, ok := a.names[id.Name()]; ok && old != id {
		delete(a.peers, old)
	}
	a.names[id.Name()], a.peers[id] = id, view
}

// view finds what is known of a peer.
func (a *Agent) view(id ports.Identity) (*peerView, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, transport.ErrClosing
	}
	if v := a.peers[id]; v != nil {
		return v, nil
	}
	if now, ok := a.names[id.Name()]; ok {
		return nil, fmt.Errorf("%w: %s; the name is now %s", transport.ErrUnknownPeer, id, now)
	}
	return nil, fmt.Errorf("%w: %s; add it first", transport.ErrUnknownPeer, id)
}

// RemovePeer ends sending requests to a peer: those in progress fail, and drain as any failed request does. What has no evidence is kept. It waits for the reactor.
func (a *Agent) RemovePeer(id ports.Identity) error {
	done := make(chan struct{})
	if err := a.RemovePeerAsync(id, func() { close(done) }); err != nil {
		return err
	}
	<-done
	return nil
}

// RemovePeerAsync is RemovePeer for callers that can't wait; done is called in the reactor.
func (a *Agent) RemovePeerAsync(id ports.Identity, done func()) error {
	return a.transport.RemovePeer(id, func() {
		a.drop(id)
		done()
	})
}

// RevokePeer removes a peer, has the engine end all access between it and this agent, and waits for its proof: then no write to the peer or of the peer's can land any more, and what waited for that goes
// on. It says nothing of the peer's process. Both sides have to add each other again before anything is sent. transport.ErrNoRevoke: the engine can't, as NIXL. When the context ends first the
// revocation goes on; calling again waits for it.
func (a *Agent) RevokePeer(ctx context.Context, id ports.Identity) error {
	ended := make(chan bool, 1)
	if err := a.RevokePeerAsync(id, func(proven bool) { ended <- proven }); err != nil {
		return err
	}
	select {
	case proven := <-ended:
		if !proven {
			return fmt.Errorf("revoke %s: %w", id, transport.ErrClosing)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("revoke %s: it goes on: %w", id, ctx.Err())
	}
}

// RevokePeerAsync is RevokePeer for callers that can't wait; done is called in the reactor.
func (a *Agent) RevokePeerAsync(id ports.Identity, done func(proven bool)) error {
	if err := a.transport.RevokePeer(id, done); err != nil {
		return err
	}
	a.drop(id)
	return nil
}

// drop makes a peer unknown to submitters.
func (a *Agent) drop(id ports.Identity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.peers, id)
	if a.names[id.Name()] == id {
		delete(a.names, id.Name())
	}
}

// FenceReport says what a fence gave back.
type FenceReport = transport.FenceReport

// FencePeer is the caller's statement that this process can no longer run: it was killed and reaped, or its machine was switched off. That a process was seen to exit, a peer was removed or a new
// incarnation added is no such statement, and a wrong one lets memory be reused under a write. Everything of the peer is closed at once; after SETTLE_DELAY, counted while this side drives the engine, all
// that waited for it is given back and FencePeer returns. When the context ends first the fence goes on; calling again waits for it.
func (a *Agent) FencePeer(ctx context.Context, name string, incarnation uint64) (FenceReport, error) {
	id, err := ports.NewIdentity(name, incarnation)
	if err != nil {
		return FenceReport{}, err
	}
	settled := make(chan FenceReport, 1)
	if err := a.FencePeerAsync(id, func(r FenceReport) { settled <- r }); err != nil {
		return FenceReport{}, err
	}
	select {
	case r := <-settled:
		if !r.Settled {
			return r, fmt.Errorf("fence %s: %w", id, transport.ErrClosing)
		}
		return r, nil
	case <-ctx.Done():
		return FenceReport{}, fmt.Errorf("fence %s: the settle delay runs on: %w", id, ctx.Err())
	}
}

// FencePeerAsync is FencePeer for callers that can't wait; done is called in the reactor.
func (a *Agent) FencePeerAsync(id ports.Identity, done func(FenceReport)) error {
	if id == a.opt.Identity {
		return fmt.Errorf("fence %s: it is this agent itself", id)
	}
	a.drop(id)
	return a.transport.FencePeer(id, done)
}
