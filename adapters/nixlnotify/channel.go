package nixlnotify

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kvbounce/kvbounce/ports"
)

// DefaultQueueFrames is Config.QueueFrames when that is 0. It leaves room above the 1024 frames that the core sends to a silent peer before it slows down (protocol.md, 7, Repair).
const DefaultQueueFrames = 2048

const (
	// maxUnansweredBytes bounds the frames to one peer as QueueFrames does: NIXL accepts whatever it is given and keeps it for as long as the peer does not take it (nixl.md, 4). A single longer
	// frame is taken when nothing is unanswered.
	maxUnansweredBytes = 64 << 20
	// renewAfter is how long nothing is sent to a peer that left too much unanswered. Then its connection is made anew if the channel alone uses it, since a broken one looks the same, and one more
	// frame goes out. It is far longer than a step of the core's repair (at most 2 s, protocol.md, 7), so that a dead peer costs next to nothing.
	renewAfter = 30 * time.Second
)

// Config is what a Channel is made from.
type Config struct {
	// MaxFrame is the longest frame in bytes, at least 1. The setting MAX_FRAME_SIZE.
	MaxFrame int
	// QueueFrames is how many frames go to one peer without anything coming from it before Send answers Full. 0 means DefaultQueueFrames.
	QueueFrames int
	// Logger takes the few things that an operator should know. nil discards them.
	Logger *slog.Logger
}

// Channel is a ports.ControlChannel over an engine's notifications. Stats may be called from any goroutine.
type Channel struct {
	engine      ports.TransferEngine
	connections *connections
	inbox       *inbox
	endpoint    []byte
	queueFrames int
	renewAfter  time.Duration

	counters  *counters
	closeOnce sync.Once
}

var _ ports.ControlChannel = (*Channel)(nil)

// New shares an engine between an agent, which must use the Engine alone from now on, and its channel. Closing the Engine closes the one below; closing the Channel does not.
func New(engine Underlying, cfg Config) (*Engine, *Channel, error) {
	if cfg.MaxFrame < 1 {
		return nil, nil, fmt.Errorf("MAX_FRAME_SIZE %d: want at least 1 byte", cfg.MaxFrame)
	}
	if cfg.QueueFrames < 0 {
		return nil, nil, fmt.Errorf("the control channel's queue of %d frames: want at least 1, or 0 for %d", cfg.QueueFrames, DefaultQueueFrames)
	}
	if cfg.QueueFrames == 0 {
		cfg.QueueFrames = DefaultQueueFrames
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	metadata, err := engine.ConnectionMetadata()
	if err != nil {
		return nil, nil, fmt.Errorf("the engine's connection metadata: %w", err)
	}
	endpoint := appendEndpoint(nil, metadata)
	if len(endpoint) > ports.MaxEndpointBytes {
		return nil, nil, fmt.Errorf("the engine's connection metadata has %d bytes, and an endpoint holds at most %d: use CONTROL=zmq", len(metadata), ports.MaxEndpointBytes-checksumBytes)
	}
	links := &connections{engine: engine, log: cfg.Logger, agent: make(map[ports.Identity]bool), ways: make(map[ports.Identity]*way)}
	counts := &counters{}
	in := &inbox{
		engine: engine, maxFrame: cfg.MaxFrame, heard: links.heardFrom, counters: counts,
		frames: queue{limit: maxWaitingFrameBytes}, messages: queue{limit: maxWaitingMessageBytes},
	}
	c := &Channel{
		engine: engine, connections: links, inbox: in, endpoint: endpoint, queueFrames: cfg.QueueFrames, renewAfter: renewAfter, counters: counts,
	}
	return &Engine{TransferEngine: engine, connections: links, inbox: in}, c, nil
}

// Kind is ports.ControlNotify.
func (c *Channel) Kind() ports.ControlKind { return ports.ControlNotify }

// Endpoint is a checksum and the engine's metadata of its connection alone. The caller owns the bytes.
func (c *Channel) Endpoint() []byte { return append([]byte(nil), c.endpoint...) }

// WaitFD is -1: the engine's own wake tells of frames, and only while it is driven.
func (c *Channel) WaitFD() int { return -1 }

// Connect implements ports.ControlChannel. While the agent has the peer's metadata loaded, that is what frames go by, and the endpoint counts when the agent lets go of the peer.
func (c *Channel) Connect(peer ports.Identity, endpoint []byte) error {
	if c.inbox.closed {
		return fmt.Errorf("control channel: %w", ports.ErrClosed)
	}
	if err := c.connections.connectChannel(peer, endpoint); err != nil {
		return fmt.Errorf("control endpoint of %q: %w", peer, err)
	}
	return nil
}

// Disconnect implements ports.ControlChannel. Frames that the engine accepted over a connection that the agent uses too may still arrive.
func (c *Channel) Disconnect(peer ports.Identity) { c.connections.disconnectChannel(peer) }

// Send implements ports.ControlChannel. A frame that the far end would not take, longer than Config.MaxFrame or without ports.FrameMagic, is dropped and counted.
func (c *Channel) Send(peer ports.Identity, frame []byte) ports.SendResult {
	w := c.connections.ways[peer]
	switch {
	case w == nil:
		return ports.NoPeer
	case len(frame) > c.inbox.maxFrame || !ports.IsFrame(frame):
		c.counters.droppedOversize.Add(1)
		return ports.Accepted
	}
	now := time.Now()
	if !c.mayTake(peer, w, len(frame), now) || c.engine.Notify(peer, frame) != nil {
		c.counters.full.Add(1)
		return ports.Full
	}
	w.unansweredFrames++
	w.unansweredBytes += len(frame)
	w.lastSent = now
	c.counters.sent.Add(1)
	return ports.Accepted
}

// mayTake reports whether a peer may be sent another frame.
func (c *Channel) mayTake(peer ports.Identity, w *way, bytes int, now time.Time) bool {
	if w.unansweredFrames == 0 || w.unansweredFrames < c.queueFrames && w.unansweredBytes+bytes <= maxUnansweredBytes {
		return true
	}
	if now.Sub(w.lastSent) < c.renewAfter {
		return false
	}
	if !c.connections.agent[peer] {
		c.connections.renew(peer, w.metadata)
		c.counters.renewed.Add(1)
	}
	return true
}

// Recv implements ports.ControlChannel. The key is always "": nobody is authenticated.
func (c *Channel) Recv(buf []byte) (frame []byte, key string, ok bool) {
	if c.inbox.closed {
		return buf[:0], "", false
	}
	m, ok := c.inbox.next(true)
	if !ok {
		return buf[:0], "", false
	}
	c.counters.received.Add(1)
	if cap(buf) < len(m.bytes) {
		return m.bytes, "", true // it was made for this call, so it can be given away
	}
	return append(buf[:0], m.bytes...), "", true
}

// Close lets go of the peers that only the channel knows. Frames that come later are dropped.
func (c *Channel) Close() error {
	c.closeOnce.Do(func() {
		c.inbox.closed = true
		c.inbox.frames = queue{limit: maxWaitingFrameBytes}
		for peer := range c.connections.ways {
			c.connections.disconnectChannel(peer)
		}
	})
	return nil
}
