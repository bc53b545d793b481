package ports

// FrameMagic begins every kvbounce frame ("KVBE"). It tells our frames from other messages on a shared channel.
const FrameMagic = "KVBE"

// IsFrame reports whether b begins as a frame does.
func IsFrame(b []byte) bool {
	return len(b) >= len(FrameMagic) && string(b[:len(FrameMagic)]) == FrameMagic
}

// MaxEndpointBytes is the longest endpoint that a frame can carry.
const MaxEndpointBytes = 65536

// ControlKind is a kind of control channel. The numbers are wire 3's handshake (protocol.md, 4).
type ControlKind uint8

// The kinds of control channel.
const (
	ControlZMQ    ControlKind = 1
	ControlNotify ControlKind = 2 // notifications of the transfer engine
	ControlMemory ControlKind = 3 // within one process
)

// String is the word of the settings and of the command's JSON.
func (k ControlKind) String() string {
	switch k {
	case ControlZMQ:
		return "zmq"
	case ControlNotify:
		return "nixl"
	case ControlMemory:
		return "memory"
	}
	return "unknown control channel"
}

// SendResult is what became of a frame.
type SendResult uint8

// The results of ControlChannel.Send. None of them says that the frame arrived.
const (
	// Accepted: the channel will try to deliver it.
	Accepted SendResult = iota
	// Full: the queue to that peer is full; the frame was not taken. Trying again later is right.
	Full
	// NoPeer: the peer is not connected; the frame was not taken.
	NoPeer
)

// ControlChannel carries frames between agents and knows nothing of their content: who a frame is from and for stands in its envelope
// (core/wire).
//
// It may lose, delay, duplicate and reorder frames. It never damages or invents one, and never delivers a part. Frames that were queued for one incarnation of a peer
// may reach a successor on the same endpoint: the envelope tells them apart.
//
// Kind, Endpoint and Close may be called from any goroutine (Close after the reactor ended). All other methods are the reactor's and never block.
type ControlChannel interface {
	Kind() ControlKind
	// Endpoint is where peers reach this channel: at most MaxEndpointBytes, and constant.
	Endpoint() []byte
	// Connect makes Send to this peer possible. The same identity and endpoint again does nothing. A different endpoint for a known identity replaces it. An endpoint that can't be
	// understood is an error and changes nothing; one that nobody answers is not an error. The channel copies the bytes.
	Connect(peer Identity, endpoint []byte) error
	// Disconnect ends sending to this peer at once and gives everything that the channel held for it back, queued frames included. Unknown peers are ignored.
	Disconnect(peer Identity)
	// Send hands one whole frame over. It copies the bytes before it returns.
	Send(peer Identity, frame []byte) SendResult
	// Recv takes the next frame, appended to buf[:0]; ok is false when none waits. An empty frame stands for messages that the channel dropped, so that a flood of them can't keep Recv from returning. A frame above the channel's frame limit never comes out. key names the authenticated key
	// that sent it, "" where the channel does not authenticate.
	Recv(buf []byte) (frame []byte, key string, ok bool)
	// WaitFD is a file descriptor that becomes readable when Recv may have a frame, or -1 when the channel has none (it must be polled then). It may be waited on only after
	// Recv answered that none waits, with no Send since: it may be edge-triggered.
	WaitFD() int
	// Close gives everything back without waiting for queued frames. Calling it again does nothing.
	Close() error
}
