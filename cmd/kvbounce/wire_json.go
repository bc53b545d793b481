package main

import (
	"encoding/hex"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// The JSON of cli.md for what package wire encodes. u64 are written as whole numbers, which many readers of JSON round above 2^53.

// Values of "kind".
const (
	kindMessage   = "message"
	kindFrame     = "frame"
	kindHandshake = "handshake"
)

type frameJSON struct {
	Kind    string         `json:"kind"`
	From    ports.Identity `json:"from"`
	To      ports.Identity `json:"to"`
	Message any            `json:"message"`
}

// headerJSON is what all messages have.
type headerJSON struct {
	Kind    string `json:"kind"`
	Version uint16 `json:"version"`
	Type    string `json:"type"`
	Request uint64 `json:"request"`
	Region  uint64 `json:"region"`
	Chunk   uint32 `json:"chunk"`
	Chunks  uint32 `json:"chunks"`
}

func newHeaderJSON(t wire.Type, request, region uint64, chunk, chunks uint32) headerJSON {
	return headerJSON{Kind: kindMessage, Version: wire.Version, Type: t.String(), Request: request, Region: region, Chunk: chunk, Chunks: chunks}
}

// endpointJSON has one of its two fields.
type endpointJSON struct {
	Text *string `json:"endpoint,omitempty"`
	Hex  *string `json:"endpoint_hex,omitempty"`
}

func newEndpointJSON(endpoint []byte) endpointJSON {
	if utf8.Valid(endpoint) {
		text := string(endpoint)
		return endpointJSON{Text: &text}
	}
	text := hex.EncodeToString(endpoint)
	return endpointJSON{Hex: &text}
}

type (
	wantJSON struct {
		headerJSON
		Oldest uint64 `json:"oldest"`
		Token  uint64 `json:"token"`
		endpointJSON
		ChunkBytes []uint32 `json:"chunk_bytes"`
	}
	grantJSON struct {
		headerJSON
		Credits []creditJSON `json:"credits"`
	}
	creditJSON struct {
		Addr   uint64 `json:"addr"`
		Length uint32 `json:"length"`
		Device uint32 `json:"device"`
		Region uint64 `json:"region"`
		Chunk  uint32 `json:"chunk"`
	}
	dataJSON struct {
		headerJSON
		Runs    []runJSON `json:"runs"`
		Indices []uint32  `json:"indices"`
	}
	runJSON struct {
		Offset uint64  `json:"offset"`
		Addr   uint64  `json:"addr"`
		Stride int64   `json:"stride"`
		Piece  uint32  `json:"piece"`
		Pieces uint32  `json:"pieces"`
		Step   uint32  `json:"step"`
		Table  *uint32 `json:"table"` // null: the run has a stride and no table
	}
	nackJSON struct {
		headerJSON
		Reason     uint32 `json:"reason"`
		ReasonName string `json:"reason_name"`
		Text       string `json:"text"`
	}
	drainJSON struct {
		headerJSON
		endpointJSON
	}
)

func newMessageJSON(m wire.Message) any {
	switch m := m.(type) {
	case *wire.Want:
		n := uint32(len(m.ChunkBytes))
		return wantJSON{newHeaderJSON(wire.TypeWant, m.Request, 0, 0, n), m.Oldest, m.Token, newEndpointJSON(m.Endpoint), m.ChunkBytes}
	case *wire.Grant:
		j := grantJSON{newHeaderJSON(wire.TypeGrant, m.Request, 0, 0, m.Chunks), make([]creditJSON, len(m.Credits))}
		for i, c := range m.Credits {
			j.Credits[i] = creditJSON(c)
		}
		return j
	case *wire.Data:
		return dataJSON{newHeaderJSON(wire.TypeData, m.Request, m.Region, m.Chunk, m.Chunks), newRunsJSON(m.Runs.Runs), listJSON(m.Runs.Index)}
	case *wire.Ack:
		return newHeaderJSON(wire.TypeAck, m.Request, m.Region, m.Chunk, m.Chunks)
	case *wire.Nack:
		return nackJSON{newHeaderJSON(wire.TypeNack, m.Request, m.Region, m.Chunk, m.Chunks), uint32(m.Reason), m.Reason.String(), m.Text}
	case *wire.Drain:
		return drainJSON{newHeaderJSON(wire.TypeDrain, m.Request, 0, 0, 0), newEndpointJSON(m.Endpoint)}
	case *wire.DrainAck:
		return newHeaderJSON(wire.TypeDrainAck, m.Request, 0, 0, 0)
	}
	panic("kvbounce: a type of message without JSON")
}

func newRunsJSON(runs []ports.Run) []runJSON {
	out := make([]runJSON, len(runs))
	for i := range runs {
		r := &runs[i]
		out[i] = runJSON{Offset: r.Offset, Addr: r.Addr, Stride: r.Stride, Piece: r.Piece, Pieces: r.Pieces, Step: r.Step}
		if table := r.Table; table != ports.NoTable { // a copy: a planner's runs are overwritten
			out[i].Table = &table
		}
	}
	return out
}

// listJSON is [] where a nil list would be null.
func listJSON(list []uint32) []uint32 {
	if list == nil {
		return []uint32{}
	}
	return list
}

type handshakeJSON struct {
	Kind             string `json:"kind"`
	Format           uint16 `json:"format"`
	Wire             uint16 `json:"wire"`
	Control          any    `json:"control"` // its name, or the number of one that wire 3 does not know
	Ownership        bool   `json:"ownership"`
	TokenRequired    bool   `json:"token_required"`
	Memory           string `json:"memory"` // the arena's kind
	Incarnation      uint64 `json:"incarnation"`
	ArenaUsableBytes uint64 `json:"arena_usable_bytes"`
	MaxChunkBytes    uint64 `json:"max_chunk_bytes"`
	RequestTimeoutMS uint32 `json:"request_timeout_ms"`
	endpointJSON
}

// handshakeFormat is the only format that package wire decodes.
const handshakeFormat = 1

func newHandshakeJSON(h *wire.Handshake) handshakeJSON {
	j := handshakeJSON{
		Kind: kindHandshake, Format: handshakeFormat, Wire: h.Wire, Control: uint8(h.Control), Ownership: h.Ownership, TokenRequired: h.TokenRequired,
		Memory: ports.Host.String(), Incarnation: h.Incarnation, ArenaUsableBytes: h.ArenaUsable, MaxChunkBytes: h.MaxChunk,
		RequestTimeoutMS: uint32(h.RequestTimeout / time.Millisecond), endpointJSON: newEndpointJSON(h.Endpoint),
	}
	if slices.Contains(controls, h.Control) {
		j.Control = h.Control.String()
	}
	if h.DeviceArena {
		j.Memory = ports.Device.String()
	}
	return j
}
