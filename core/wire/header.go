package wire

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/kvbounce/kvbounce/ports"
)

// Numbers of wire 3 (protocol.md, 3).
const (
	// Version is the wire version, in every message header and in the handshake.
	Version = 3
	// WholeRequest is the chunk number that means the whole request.
	WholeRequest = 0xFFFFFFFF
	// HeaderBytes is the size of a message header.
	HeaderBytes = 40
	// NoTable is Run.Table of a run with a constant stride.
	NoTable = ports.NoTable

	messageMagic = "KVBN"
)

var le = binary.LittleEndian

// Header is a message header. A Header that DecodeHeader returned has a known Type and a Request; nothing else in it is checked.
type Header struct {
	Type    Type
	Request uint64 // at least 1
	Region  uint64 // 0 when none
	Chunk   uint32 // or WholeRequest
	Chunks  uint32 // chunks in the request
	Count   uint32 // records in the payload
	Length  uint32 // payload bytes
}

// DecodeHeader reads the header of the message b. It succeeds as soon as magic, version, type and request are right, even if the rest of the header or the payload is
// not: such a message has a request that a NACK can name. The typed Decode checks the rest.
func DecodeHeader(b []byte) (Header, error) {
	const message = "message"
	if len(b) < HeaderBytes {
		return Header{}, wrong(message, "header", byteCount(len(b)), byteCount(HeaderBytes))
	}
	if string(b[:4]) != messageMagic {
		return Header{}, wrong(message, "magic", fmt.Sprintf("%q", b[:4]), fmt.Sprintf("%q", messageMagic))
	}
	if v := le.Uint16(b[4:]); v != Version {
		return Header{}, wrong(message, "version", v, fmt.Sprint(Version))
	}
	h := Header{
		Type:    Type(le.Uint16(b[6:])),
		Request: le.Uint64(b[8:]),
		Region:  le.Uint64(b[16:]),
		Chunk:   le.Uint32(b[24:]),
		Chunks:  le.Uint32(b[28:]),
		Count:   le.Uint32(b[32:]),
		Length:  le.Uint32(b[36:]),
	}
	if !h.Type.known() {
		return Header{}, wrong(message, "type", uint16(h.Type), fmt.Sprintf("%d to %d", TypeWant, TypeDrainAck))
	}
	if err := checkRequest(h.Type, h.Request); err != nil {
		return Header{}, err
	}
	return h, nil
}

func appendHeader(dst []byte, h Header) []byte {
	dst = append(dst, messageMagic...)
	dst = le.AppendUint16(dst, Version)
	dst = le.AppendUint16(dst, uint16(h.Type))
	dst = le.AppendUint64(dst, h.Request)
	dst = le.AppendUint64(dst, h.Region)
	dst = le.AppendUint32(dst, h.Chunk)
	dst = le.AppendUint32(dst, h.Chunks)
	dst = le.AppendUint32(dst, h.Count)
	return le.AppendUint32(dst, h.Length)
}

// open reads the header of b, which must be of type t, and returns the payload, whose size it checked.
func open(b []byte, t Type) (Header, []byte, error) {
	h, err := DecodeHeader(b)
	if err != nil {
		return Header{}, nil, err
	}
	if h.Type != t {
		return Header{}, nil, wrong("message", "type", h.Type, t.String())
	}
	payload := b[HeaderBytes:]
	if uint64(h.Length) != uint64(len(payload)) {
		return Header{}, nil, wrong(t.String(), "length", h.Length, fmt.Sprintf("%d, the bytes that follow the header", len(payload)))
	}
	return h, payload, nil
}

// needPayload checks that the payload holds at least its fixed fields.
func needPayload(t Type, payload []byte, atLeast int) error {
	if len(payload) < atLeast {
		return wrong(t.String(), "length", len(payload), fmt.Sprintf("at least %d", atLeast))
	}
	return nil
}

// checkCount checks that there are records, and that they fill exactly the rest of the payload.
func (h Header) checkCount(rest []byte, recordBytes uint64) error {
	need := uint64(h.Count) * recordBytes
	switch held := uint64(len(rest)) / recordBytes; {
	case h.Count == 0:
		return wrong(h.Type.String(), "count", 0, "at least 1")
	case need > uint64(len(rest)):
		return wrong(h.Type.String(), "count", h.Count, fmt.Sprintf("at most the %d records that the payload holds", held))
	case held*recordBytes == uint64(len(rest)) && uint64(h.Count) < held:
		return wrong(h.Type.String(), "count", h.Count, fmt.Sprintf("%d, the records that the payload holds", held))
	case need < uint64(len(rest)):
		return h.leftOver(uint64(len(rest)) - need)
	}
	return nil
}

func (h Header) leftOver(bytes uint64) error {
	return wrong(h.Type.String(), "length", h.Length, fmt.Sprintf("%d: bytes are left over", uint64(h.Length)-bytes))
}

// zero checks that a field that the type does not use is 0.
func (h Header) zero(field string, value uint64) error {
	if value != 0 {
		return wrong(h.Type.String(), field, value, "0")
	}
	return nil
}

func (h Header) checkNoPlace() error {
	return cmp.Or(h.zero("region", h.Region), h.zero("chunk", uint64(h.Chunk)))
}

func (h Header) checkNoCount() error { return h.zero("count", uint64(h.Count)) }

func (h Header) checkNoPayload() error { return h.zero("length", uint64(h.Length)) }

func (h Header) checkOnlyRequest() error {
	return cmp.Or(h.checkNoPlace(), h.zero("chunks", uint64(h.Chunks)), h.checkNoCount())
}

func checkRequest(t Type, request uint64) error {
	if request == 0 {
		return wrong(t.String(), "request", 0, "at least 1")
	}
	return nil
}

// checkPlace checks the region and chunk of a message about one chunk.
func checkPlace(t Type, region uint64, chunk, chunks uint32) error {
	if chunk >= chunks {
		return wrong(t.String(), "chunk", chunk, fmt.Sprintf("below the request's %d chunks", chunks))
	}
	if region == 0 {
		return wrong(t.String(), "region", 0, "at least 1 for one chunk")
	}
	return nil
}

// checkWholeOrPlace is checkPlace for a message that may also be about the whole request.
func checkWholeOrPlace(t Type, region uint64, chunk, chunks uint32) error {
	if chunk != WholeRequest {
		return checkPlace(t, region, chunk, chunks)
	}
	if region != 0 {
		return wrong(t.String(), "region", region, "0 for the whole request")
	}
	return nil
}

// checkLength checks that a payload's size fits the header. list is the field that makes it large.
func checkLength(t Type, list string, payloadBytes uint64) error {
	if payloadBytes > math.MaxUint32 {
		return wrong(t.String(), list, fmt.Sprintf("a payload of %d bytes", payloadBytes), fmt.Sprintf("at most %d", uint32(math.MaxUint32)))
	}
	return nil
}
