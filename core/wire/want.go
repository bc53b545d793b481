package wire

import (
	"cmp"
	"fmt"
	"slices"
)

// wantFixedBytes is a WANT's payload before the endpoint: oldest, token, endpoint_len.
const wantFixedBytes = 8 + 8 + 4

// Want asks for a region for each chunk of a request.
type Want struct {
	Request uint64 // at least 1
	Oldest  uint64 // lowest request id that the sender still tracks towards this peer: 1 to Request
	Token   uint64 // receive token, 0 for none
	// Endpoint is the way back to the sender, at most ports.MaxEndpointBytes. May be empty on the wire; when it may be is core/transport's rule.
	Endpoint []byte
	// ChunkBytes has an upper bound in bytes for each chunk's DATA: at least one chunk, at least one byte each.
	ChunkBytes []uint32
}

// Check implements Message.
func (w *Want) Check() error {
	const t = TypeWant
	if err := checkRequest(t, w.Request); err != nil {
		return err
	}
	if w.Oldest == 0 || w.Oldest > w.Request {
		return wrong(t.String(), "oldest", w.Oldest, fmt.Sprintf("1 to the request, %d", w.Request))
	}
	if err := checkEndpoint(t.String(), w.Endpoint); err != nil {
		return err
	}
	if len(w.ChunkBytes) == 0 {
		return wrong(t.String(), "chunk_bytes", "empty", "at least one chunk")
	}
	if err := checkLength(t, "chunk_bytes", w.payloadBytes()); err != nil {
		return err
	}
	for i, n := range w.ChunkBytes {
		if n == 0 {
			return wrong(t.String(), element("chunk_bytes", i, ""), 0, "at least 1")
		}
	}
	return nil
}

func (w *Want) payloadBytes() uint64 {
	return wantFixedBytes + uint64(len(w.Endpoint)) + 4*uint64(len(w.ChunkBytes))
}

// Append implements Message.
func (w *Want) Append(dst []byte) []byte {
	length, count := w.payloadBytes(), uint32(len(w.ChunkBytes))
	dst = slices.Grow(dst, HeaderBytes+int(length))
	dst = appendHeader(dst, Header{Type: TypeWant, Request: w.Request, Chunks: count, Count: count, Length: uint32(length)})
	dst = le.AppendUint64(dst, w.Oldest)
	dst = le.AppendUint64(dst, w.Token)
	dst = le.AppendUint32(dst, uint32(len(w.Endpoint)))
	dst = append(dst, w.Endpoint...)
	return appendUint32s(dst, w.ChunkBytes)
}

// Decode implements Message.
func (w *Want) Decode(b []byte) error {
	const t = TypeWant
	h, payload, err := open(b, t)
	if err != nil {
		return err
	}
	if err := cmp.Or(h.checkNoPlace(), needPayload(t, payload, wantFixedBytes)); err != nil {
		return err
	}
	endpoint, rest, err := cutEndpoint(t.String(), le.Uint32(payload[16:]), payload[wantFixedBytes:])
	if err != nil {
		return err
	}
	if err := h.checkCount(rest, 4); err != nil {
		return err
	}
	if h.Chunks != h.Count {
		return wrong(t.String(), "chunks", h.Chunks, fmt.Sprintf("count, %d", h.Count))
	}
	w.Request = h.Request
	w.Oldest = le.Uint64(payload)
	w.Token = le.Uint64(payload[8:])
	w.Endpoint = endpoint
	w.ChunkBytes = resize(w.ChunkBytes, int(h.Count))
	readUint32s(w.ChunkBytes, rest)
	return w.Check()
}
