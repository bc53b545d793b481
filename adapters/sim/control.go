package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kvbounce/kvbounce/ports"
)

// Defaults of ControlConfig.
const (
	defaultQueueFrames = 1000     // as ZMQ's high-water mark
	defaultFrameLimit  = 16 << 20 // the setting MAX_FRAME_SIZE
)

// endpointScheme begins every endpoint of this kind.
const endpointScheme = "memory:"

// ControlConfig is how a Control is made.
type ControlConfig struct {
	// Identity is whom the trace and the Chooser name as the sender of its frames.
	Identity ports.Identity
	// Endpoint is where it listens: "memory:" and 1 to 200 printable ASCII characters. "" makes one up. One that was closed can be used again, and gets what is
	// still under way to it.
	Endpoint string
	// QueueFrames is how many frames to one peer may wait until that peer takes them. 0 means 1000.
	QueueFrames int
	// FrameLimit is the longest frame, in bytes, that comes out. 0 means 16 MiB.
	FrameLimit int
	// Wake, unless nil, is called when a frame arrived. It must not block.
	Wake func()
}

// Control is a ports.ControlChannel within a World.
type Control struct {
	w        *World
	id       ports.Identity
	endpoint string
	queue    int
	limit    int
	bell     bell
	box      *mailbox // nil once closed
	links    map[ports.Identity]*link
}

var _ ports.ControlChannel = (*Control)(nil)

// mailbox is what arrived at an endpoint, whether or not a channel listens there now.
type mailbox struct {
	endpoint string
	owner    *Control // nil: nobody listens
	links    int      // that lead here
	waiting  []*frame
}

// link is a sender's way to one peer.
type link struct {
	from   *Control
	peer   ports.Identity
	box    *mailbox
	queued int  // frames sent and not yet taken by Recv
	cut    bool // the sender gave it up
}

// frame is one frame under way, as many times as it is queued.
type frame struct {
	id    uint64
	link  *link
	bytes []byte
}

// NewControl opens a channel.
func NewControl(w *World, cfg ControlConfig) (*Control, error) {
	w.mu.Lock()
	defer w.leave()
	c := &Control{w: w, id: cfg.Identity, endpoint: cfg.Endpoint, queue: cfg.QueueFrames, limit: cfg.FrameLimit, links: make(map[ports.Identity]*link)}
	c.bell.wake = cfg.Wake
	if c.queue == 0 {
		c.queue = defaultQueueFrames
	}
	if c.limit == 0 {
		c.limit = defaultFrameLimit
	}
	if c.endpoint == "" {
		w.endpoints++
		c.endpoint = fmt.Sprintf("%s%d", endpointScheme, w.endpoints)
	}
	switch {
	case c.queue < 0:
		return nil, fmt.Errorf("memory control: QueueFrames is %d, want at least 1, or 0 for the default", cfg.QueueFrames)
	case c.limit < 0:
		return nil, fmt.Errorf("memory control: FrameLimit is %d, want at least 1, or 0 for the default", cfg.FrameLimit)
	}
	if err := checkEndpoint(c.endpoint); err != nil {
		return nil, err
	}
	box := w.openBox(c.endpoint)
	if box.owner != nil {
		return nil, fmt.Errorf("memory control: %s listens at %s already", box.owner.id, c.endpoint)
	}
	c.box, box.owner = box, c
	if len(box.waiting) > 0 {
		w.ring(&c.bell)
	}
	return c, nil
}

func checkEndpoint(endpoint string) error {
	name, ok := strings.CutPrefix(endpoint, endpointScheme)
	printable := strings.IndexFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
	if !ok || name == "" || len(name) > 200 || !printable {
		return fmt.Errorf("memory control: endpoint %.80q: want %s and 1 to 200 printable ASCII characters", endpoint, endpointScheme)
	}
	return nil
}

// openBox is the mailbox of an endpoint. w.mu is held.
func (w *World) openBox(endpoint string) *mailbox {
	box := w.boxes[endpoint]
	if box == nil {
		box = &mailbox{endpoint: endpoint}
		w.boxes[endpoint] = box
	}
	return box
}

// dropBox forgets a mailbox that nobody knows. w.mu is held.
func (w *World) dropBox(box *mailbox) {
	if box.owner == nil && box.links == 0 {
		delete(w.boxes, box.endpoint)
	}
}

// Kind is ports.ControlMemory.
func (c *Control) Kind() ports.ControlKind { return ports.ControlMemory }

// Endpoint is where this channel listens.
func (c *Control) Endpoint() []byte { return []byte(c.endpoint) }

// Connect understands the endpoints of this kind.
func (c *Control) Connect(peer ports.Identity, endpoint []byte) error {
	if err := checkEndpoint(string(endpoint)); err != nil {
		return err
	}
	c.w.mu.Lock()
	defer c.w.leave()
	if c.box == nil {
		return ports.ErrClosed
	}
	if l := c.links[peer]; l != nil {
		if l.box.endpoint == string(endpoint) {
			return nil
		}
		c.cut(l)
	}
	box := c.w.openBox(string(endpoint))
	box.links++
	c.links[peer] = &link{from: c, peer: peer, box: box}
	return nil
}

// Disconnect takes back what nobody listens for. Frames that a listener can take already, or that are on their way, may still arrive.
func (c *Control) Disconnect(peer ports.Identity) {
	c.w.mu.Lock()
	defer c.w.leave()
	if l := c.links[peer]; l != nil {
		c.cut(l)
	}
}

// cut gives a link up. w.mu is held.
func (c *Control) cut(l *link) {
	delete(c.links, l.peer)
	l.cut = true
	if l.box.owner == nil {
		kept := l.box.waiting[:0]
		for _, f := range l.box.waiting {
			if f.link == l {
				c.w.trace(f.event(FrameDropped))
			} else {
				kept = append(kept, f)
			}
		}
		clear(l.box.waiting[len(kept):])
		l.box.waiting = kept
	}
	l.box.links--
	c.w.dropBox(l.box)
}

// Send queues a copy.
func (c *Control) Send(peer ports.Identity, bytes []byte) ports.SendResult {
	w := c.w
	w.mu.Lock()
	defer w.leave()
	l := c.links[peer]
	if l == nil || l.queued >= c.queue {
		result := ports.NoPeer
		if l != nil {
			result = ports.Full
		}
		w.toldByte(c.id, 's', byte(result))
		w.trace(Event{Kind: FrameNotTaken, Detail: uint8(result), Agent: c.id, Peer: peer, Bytes: uint64(len(bytes)), Data: bytes})
		return result
	}
	fate := FrameFate(w.fate(Point{Kind: SendFrame, Agent: c.id, Peer: peer, Frame: bytes}))
	f := &frame{id: w.newID(), link: l}
	w.trace(Event{Kind: FrameSent, Detail: uint8(fate), Agent: c.id, Peer: peer, ID: f.id, Bytes: uint64(len(bytes)), Data: bytes})
	w.toldByte(c.id, 's', yes(fate == FrameRefused))
	if fate == FrameRefused {
		return ports.Full
	}
	if fate == FrameLost {
		return ports.Accepted
	}
	f.bytes = append([]byte(nil), bytes...)
	way := w.cfg.Timing.Frame.Base + w.cfg.Timing.Frame.bytes(uint64(len(bytes)))
	if fate != FrameLate {
		l.queued++
		w.after(way, f)
	}
	if fate == FrameLate || fate == FrameTwice {
		l.queued++
		w.after(way+w.lateness(w.cfg.Timing.Frame), f)
	}
	w.drive()
	return ports.Accepted
}

// happen is the frame's arrival.
func (f *frame) happen(w *World) {
	box := f.link.box
	if len(f.bytes) > f.link.from.limitAt(box) || f.link.cut && box.owner == nil {
		f.link.queued--
		w.trace(f.event(FrameDropped))
		return
	}
	w.trace(f.event(FrameDelivered))
	box.waiting = append(box.waiting, f)
	if box.owner != nil {
		w.ring(&box.owner.bell)
	}
}

// limitAt is the frame limit where a frame arrives: the listener's, or, while nobody listens, the sender's.
func (c *Control) limitAt(box *mailbox) int {
	if box.owner != nil {
		return box.owner.limit
	}
	return c.limit
}

func (f *frame) event(kind EventKind) Event {
	e := Event{Kind: kind, Peer: f.link.from.id, Agent: f.link.peer, ID: f.id, Bytes: uint64(len(f.bytes))}
	if owner := f.link.box.owner; owner != nil {
		e.Agent = owner.id
	}
	return e
}

// Recv takes the frame that arrived first. This kind does not authenticate.
func (c *Control) Recv(buf []byte) (frame []byte, key string, ok bool) {
	w := c.w
	w.mu.Lock()
	defer w.leave()
	w.drive()
	if c.box == nil {
		return nil, "", false
	}
	for len(c.box.waiting) > 0 {
		f := c.box.waiting[0]
		c.box.waiting[0] = nil
		c.box.waiting = c.box.waiting[1:]
		f.link.queued--
		if len(f.bytes) <= c.limit {
			w.told(c.id, 'r', f.bytes)
			return append(buf[:0], f.bytes...), "", true
		}
		w.trace(f.event(FrameDropped)) // it waited for a successor whose limit is lower
	}
	return nil, "", false
}

// WaitFD is -1: Wake tells of frames.
func (c *Control) WaitFD() int { return -1 }

// Close drops what arrived and was not taken. What arrives later waits for a successor at the endpoint, as long as its sender is connected.
func (c *Control) Close() error {
	w := c.w
	w.mu.Lock()
	defer w.leave()
	if c.box == nil {
		return nil
	}
	w.trace(Event{Kind: PortClosed, Agent: c.id})
	for _, f := range c.box.waiting {
		f.link.queued--
		w.trace(f.event(FrameDropped))
	}
	c.box.waiting, c.box.owner = nil, nil
	for _, peer := range slices.Sorted(maps.Keys(c.links)) { // in an order that does not depend on the map's
		c.cut(c.links[peer])
	}
	w.dropBox(c.box)
	c.box = nil
	return nil
}
