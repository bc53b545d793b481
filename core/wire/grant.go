package wire

import (
	"cmp"
	"fmt"
	"slices"
)

// CreditBytes is the size of a credit on the wire.
const CreditBytes = 32

// Credit is a region of the receiver's arena, granted to one chunk.
type Credit struct {
	Addr   uint64 // address in the receiver's arena, at least 1
	Length uint32 // bytes, at least 1
	Device uint32 // device ordinal at the receiver; the memory's kind is the arena's (handshake)
	Region uint64 // handle, at least 1
	Chunk  uint32 // below the GRANT's Chunks
}

// Grant gives credits to a request.
type Grant struct {
	Request uint64 // at least 1
	Chunks  uint32 // chunks in the request
	Credits []Credit
}

// Check implements Message.
func (g *Grant) Check() error {
	const t = TypeGrant
	if err := checkRequest(t, g.Request); err != nil {
		return err
	}
	if len(g.Credits) == 0 {
		return wrong(t.String(), "credits", "empty", "at least one credit")
	}
	if err := checkLength(t, "credits", g.payloadBytes()); err != nil {
		return err
	}
	for i := range g.Credits {
		c := &g.Credits[i]
		switch {
		case c.Addr == 0:
			return wrong(t.String(), element("credits", i, "addr"), 0, "at least 1")
		case c.Length == 0:
			return wrong(t.String(), element("credits", i, "length"), 0, "at least 1")
		case c.Region == 0:
			return wrong(t.String(), element("credits", i, "region"), 0, "at least 1")
		case c.Chunk >= g.Chunks:
			return wrong(t.String(), element("credits", i, "chunk"), c.Chunk, fmt.Sprintf("below the request's %d chunks", g.Chunks))
		}
	}
	return nil
}

func (g *Grant) payloadBytes() uint64 { return CreditBytes * uint64(len(g.Credits)) }

// Append implements Message.
func (g *Grant) Append(dst []byte) []byte {
	length := g.payloadBytes()
	dst = slices.Grow(dst, HeaderBytes+int(length))
	dst = appendHeader(dst, Header{Type: TypeGrant, Request: g.Request, Chunks: g.Chunks, Count: uint32(len(g.Credits)), Length: uint32(length)})
	for i := range g.Credits {
		c := &g.Credits[i]
		dst = le.AppendUint64(dst, c.Addr)
		dst = le.AppendUint32(dst, c.Length)
		dst = le.AppendUint32(dst, c.Device)
		dst = le.AppendUint64(dst, c.Region)
		dst = le.AppendUint32(dst, c.Chunk)
		dst = le.AppendUint32(dst, 0) // reserved
	}
	return dst
}

// Decode implements Message.
func (g *Grant) Decode(b []byte) error {
	const t = TypeGrant
	h, payload, err := open(b, t)
	if err != nil {
		return err
	}
	if err := cmp.Or(h.checkNoPlace(), h.checkCount(payload, CreditBytes)); err != nil {
		return err
	}
	g.Request = h.Request
	g.Chunks = h.Chunks
	g.Credits = resize(g.Credits, int(h.Count))
	for i := range g.Credits {
		p := payload[i*CreditBytes:][:CreditBytes]
		if reserved := le.Uint32(p[28:]); reserved != 0 {
			return wrong(t.String(), element("credits", i, "reserved"), reserved, "0")
		}
		g.Credits[i] = Credit{
			Addr:   le.Uint64(p),
			Length: le.Uint32(p[8:]),
			Device: le.Uint32(p[12:]),
			Region: le.Uint64(p[16:]),
			Chunk:  le.Uint32(p[24:]),
		}
	}
	return g.Check()
}
