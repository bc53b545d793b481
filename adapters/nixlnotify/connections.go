package nixlnotify

import (
	"bytes"
	"log/slog"
	"time"

	"github.com/kvbounce/kvbounce/ports"
)

// connections knows which of the two users, the agent and the channel, have the engine connected to which peer. A peer that neither has is in no map and not connected. Reactor.
type connections struct {
	engine ports.TransferEngine
	log    *slog.Logger
	agent  map[ports.Identity]bool // peers whose metadata the agent loaded
	ways   map[ports.Identity]*way // peers that the channel sends to
}

// way is the channel's way to one peer.
type way struct {
	endpoint []byte // the channel's own copy
	metadata []byte // within endpoint
	// What was sent since anything last came from the peer.
	unansweredFrames int
	unansweredBytes  int
	lastSent         time.Time
}

// connectAgent loads a peer's metadata for the agent. An endpoint's connection is dropped before: it may have come in a frame that only claimed to be the peer's, and
// NIXL can't replace a connection in place (nixl.md, 6).
func (c *connections) connectAgent(peer ports.Identity, metadata []byte) error {
	w := c.ways[peer]
	replaces := w != nil && !c.agent[peer]
	if replaces {
		c.engine.Disconnect(peer)
	}
	err := c.engine.Connect(peer, metadata)
	switch {
	case err == nil:
		c.agent[peer] = true
	case replaces:
		c.restore(peer, w)
	}
	return err
}

// disconnectAgent forgets what the agent loaded of a peer, and nothing of a peer that it does not know.
func (c *connections) disconnectAgent(peer ports.Identity) {
	if !c.agent[peer] {
		return
	}
	delete(c.agent, peer)
	c.engine.Disconnect(peer)
	if w := c.ways[peer]; w != nil {
		c.restore(peer, w)
	}
}

// restore connects the engine by the peer's endpoint, for the channel alone.
func (c *connections) restore(peer ports.Identity, w *way) {
	if err := c.engine.Connect(peer, w.metadata); err != nil {
		c.log.Warn("a peer's endpoint can't be used, so it is sent no frames any more", "peer", string(peer), "error", err)
		delete(c.ways, peer)
	}
}

// connectChannel makes a way to a peer. It loads nothing where the agent's metadata is loaded, which holds the connection too.
func (c *connections) connectChannel(peer ports.Identity, endpoint []byte) error {
	known := c.ways[peer]
	if known != nil && bytes.Equal(known.endpoint, endpoint) {
		return nil
	}
	endpoint = bytes.Clone(endpoint)
	metadata, err := parseEndpoint(endpoint)
	if err != nil {
		return err
	}
	if !c.agent[peer] {
		// The engine looks at the name inside first, and changes nothing if it is wrong.
		if err := c.engine.Connect(peer, metadata); err != nil {
			return err
		}
		if known != nil {
			c.renew(peer, metadata)
		}
	}
	c.ways[peer] = &way{endpoint: endpoint, metadata: metadata}
	return nil
}

// renew drops the engine's connection to a peer and makes another one.
func (c *connections) renew(peer ports.Identity, metadata []byte) {
	c.engine.Disconnect(peer)
	if err := c.engine.Connect(peer, metadata); err != nil {
		c.log.Warn("a peer could not be connected again", "peer", string(peer), "error", err)
	}
}

func (c *connections) disconnectChannel(peer ports.Identity) {
	if c.ways[peer] == nil {
		return
	}
	delete(c.ways, peer)
	if !c.agent[peer] {
		c.engine.Disconnect(peer)
	}
}

// heardFrom notes that the peer, or someone in its name, sent something.
func (c *connections) heardFrom(peer ports.Identity) {
	if w := c.ways[peer]; w != nil {
		w.unansweredFrames, w.unansweredBytes = 0, 0
	}
}
