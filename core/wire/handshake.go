package wire

import (
	"fmt"
	"math"
	"time"

	"github.com/kvbounce/kvbounce/ports"
)

const (
	handshakeMagic      = "KVBH"
	handshakeFormat     = 1
	handshakeFixedBytes = 44

	flagOwnership     = 1 << 0
	flagTokenRequired = 1 << 1
	flagDeviceArena   = 1 << 2
	knownFlags        = flagOwnership | flagTokenRequired | flagDeviceArena

	maxHandshakeTimeout = math.MaxUint32 * time.Millisecond
)

// Handshake is an AgentDesc's bounce blob: what a peer must know of an agent to bounce to it (protocol.md, 4).
//
// A blob of another wire version or with an unknown control channel decodes: such peers are not compatible, which the agent reports.
type Handshake struct {
	Wire    uint16            // wire version; ours is Version
	Control ports.ControlKind // where Endpoint leads

	Ownership     bool // able to keep the ownership rules (protocol.md, 8)
	TokenRequired bool // refuses requests without a receive token
	DeviceArena   bool // the arena is device memory, else host memory

	Incarnation    uint64
	ArenaUsable    uint64        // bytes
	MaxChunk       uint64        // bytes
	RequestTimeout time.Duration // whole milliseconds, 0 to 2^32-1 of them
	Endpoint       []byte        // at most ports.MaxEndpointBytes
}

// IsHandshake reports whether b begins as a handshake does.
func IsHandshake(b []byte) bool {
	return len(b) >= len(handshakeMagic) && string(b[:len(handshakeMagic)]) == handshakeMagic
}

// Check returns a *FieldError when the handshake can't be encoded.
func (h *Handshake) Check() error {
	const message = "handshake"
	if t := h.RequestTimeout; t < 0 || t > maxHandshakeTimeout || t%time.Millisecond != 0 {
		return wrong(message, "request_timeout_ms", t, fmt.Sprintf("whole milliseconds, 0 to %d", uint32(math.MaxUint32)))
	}
	return checkEndpoint(message, h.Endpoint)
}

// Append encodes a handshake that passed Check onto dst, as append does.
func (h *Handshake) Append(dst []byte) []byte {
	dst = append(dst, handshakeMagic...)
	dst = le.AppendUint16(dst, handshakeFormat)
	dst = le.AppendUint16(dst, h.Wire)
	dst = append(dst, byte(h.Control), h.flags())
	dst = le.AppendUint16(dst, 0) // reserved
	dst = le.AppendUint64(dst, h.Incarnation)
	dst = le.AppendUint64(dst, h.ArenaUsable)
	dst = le.AppendUint64(dst, h.MaxChunk)
	dst = le.AppendUint32(dst, uint32(h.RequestTimeout/time.Millisecond))
	dst = le.AppendUint32(dst, uint32(len(h.Endpoint)))
	return append(dst, h.Endpoint...)
}

func (h *Handshake) flags() byte {
	var flags byte
	if h.Ownership {
		flags |= flagOwnership
	}
	if h.TokenRequired {
		flags |= flagTokenRequired
	}
	if h.DeviceArena {
		flags |= flagDeviceArena
	}
	return flags
}

// Decode reads the whole blob b. Endpoint aliases b. An error is a *FieldError and leaves h as it was.
func (h *Handshake) Decode(b []byte) error {
	const message = "handshake"
	if len(b) < handshakeFixedBytes {
		return wrong(message, "header", byteCount(len(b)), fmt.Sprintf("at least %d", handshakeFixedBytes))
	}
	if !IsHandshake(b) {
		return wrong(message, "magic", fmt.Sprintf("%q", b[:4]), fmt.Sprintf("%q", handshakeMagic))
	}
	if format := le.Uint16(b[4:]); format != handshakeFormat {
		return wrong(message, "format", format, fmt.Sprint(handshakeFormat))
	}
	flags := b[9]
	if unknown := flags &^ knownFlags; unknown != 0 {
		return wrong(message, "flags", fmt.Sprintf("%#02x", flags), fmt.Sprintf("only bits of %#02x", knownFlags))
	}
	if reserved := le.Uint16(b[10:]); reserved != 0 {
		return wrong(message, "reserved", reserved, "0")
	}
	endpoint, rest, err := cutEndpoint(message, le.Uint32(b[40:]), b[handshakeFixedBytes:])
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return wrong(message, "endpoint_len", len(endpoint), fmt.Sprintf("%d: bytes are left over", len(endpoint)+len(rest)))
	}
	*h = Handshake{
		Wire:           le.Uint16(b[6:]),
		Control:        ports.ControlKind(b[8]),
		Ownership:      flags&flagOwnership != 0,
		TokenRequired:  flags&flagTokenRequired != 0,
		DeviceArena:    flags&flagDeviceArena != 0,
		Incarnation:    le.Uint64(b[12:]),
		ArenaUsable:    le.Uint64(b[20:]),
		MaxChunk:       le.Uint64(b[28:]),
		RequestTimeout: time.Duration(le.Uint32(b[36:])) * time.Millisecond,
		Endpoint:       endpoint,
	}
	return nil
}
