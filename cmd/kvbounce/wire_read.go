package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// encodeWire makes the bytes of what the JSON says. What the JSON's shape does not rule out, package wire checks.
func encodeWire(text []byte) ([]byte, error) {
	f, err := readFields("input", "json", "", text)
	if err != nil {
		return nil, err
	}
	switch f.word("kind", kindMessage, kindFrame, kindHandshake) {
	case kindMessage:
		m, err := readMessage(f)
		if err != nil {
			return nil, err
		}
		return m.Append(nil), nil
	case kindFrame:
		return encodeFrame(f)
	case kindHandshake:
		return encodeHandshake(f)
	}
	return nil, f.err
}

func encodeFrame(f *fields) ([]byte, error) {
	f.what = kindFrame
	frame := wire.Frame{From: ports.Identity(f.text("from")), To: ports.Identity(f.text("to"))}
	inner := f.take("message")
	if err := f.done(); err != nil {
		return nil, err
	}
	m, err := readFields(kindFrame, "message", "", inner)
	if err != nil {
		return nil, err
	}
	m.word("kind", kindMessage)
	if frame.Message, err = readMessage(m); err != nil {
		return nil, err
	}
	if err := frame.Check(); err != nil {
		return nil, err
	}
	return frame.Append(nil), nil
}

var (
	messageTypes = []wire.Type{wire.TypeWant, wire.TypeGrant, wire.TypeData, wire.TypeAck, wire.TypeNack, wire.TypeDrain, wire.TypeDrainAck}
	controls     = []ports.ControlKind{ports.ControlZMQ, ports.ControlNotify, ports.ControlMemory}
)

// oneOf reads the name of one of the values.
func oneOf[T fmt.Stringer](f *fields, name string, values []T) (found T) {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = v.String()
	}
	word := f.word(name, names...)
	for i, v := range values {
		if names[i] == word {
			return v
		}
	}
	return found
}

// readMessage reads an object of kind message. The message has passed Check.
func readMessage(f *fields) (wire.Message, error) {
	f.what = kindMessage
	f.number("version", wire.Version)
	t := oneOf(f, "type", messageTypes)
	if f.err != nil {
		return nil, f.err
	}
	f.what = t.String()
	m := messageOf(t, f)
	if err := f.done(); err != nil {
		return nil, err
	}
	return m, m.Check()
}

// messageOf reads the fields of one type of message.
func messageOf(t wire.Type, f *fields) wire.Message {
	request := f.u64("request")
	switch t {
	case wire.TypeWant:
		f.number("region", 0)
		f.number("chunk", 0)
		w := &wire.Want{Request: request, Oldest: f.u64("oldest"), Token: f.u64("token"), Endpoint: f.endpoint(), ChunkBytes: f.u32s("chunk_bytes")}
		if n := f.u32("chunks"); n != uint32(len(w.ChunkBytes)) {
			f.wrong("chunks", fmt.Sprintf("%d, the number of chunk_bytes", len(w.ChunkBytes)))
		}
		return w
	case wire.TypeGrant:
		f.number("region", 0)
		f.number("chunk", 0)
		g := &wire.Grant{Request: request, Chunks: f.u32("chunks")}
		f.objects("credits", func(c *fields) {
			g.Credits = append(g.Credits, wire.Credit{Addr: c.u64("addr"), Length: c.u32("length"), Device: c.u32("device"), Region: c.u64("region"), Chunk: c.u32("chunk")})
		})
		return g
	case wire.TypeData:
		d := &wire.Data{Request: request, Region: f.u64("region"), Chunk: f.u32("chunk"), Chunks: f.u32("chunks")}
		f.objects("runs", func(r *fields) { d.Runs.Runs = append(d.Runs.Runs, r.run()) })
		d.Runs.Index = f.u32s("indices")
		return d
	case wire.TypeAck:
		return &wire.Ack{Request: request, Region: f.u64("region"), Chunk: f.u32("chunk"), Chunks: f.u32("chunks")}
	case wire.TypeNack:
		n := &wire.Nack{Request: request, Region: f.u64("region"), Chunk: f.u32("chunk"), Chunks: f.u32("chunks"), Reason: wire.Reason(f.u32("reason")), Text: f.text("text")}
		switch {
		case !f.has("reason_name"):
		case n.Reason == 0: // what is wrong is the reason
			_ = f.text("reason_name")
		default:
			f.word("reason_name", n.Reason.String())
		}
		return n
	case wire.TypeDrain:
		f.number("region", 0)
		f.number("chunk", 0)
		f.number("chunks", 0)
		return &wire.Drain{Request: request, Endpoint: f.endpoint()}
	case wire.TypeDrainAck:
		f.number("region", 0)
		f.number("chunk", 0)
		f.number("chunks", 0)
		return &wire.DrainAck{Request: request}
	}
	panic("kvbounce: no message of " + t.String())
}

func (f *fields) run() ports.Run {
	r := ports.Run{
		Offset: f.u64("offset"), Addr: f.u64("addr"), Stride: f.i64("stride"), Piece: f.u32("piece"), Pieces: f.u32("pieces"), Step: f.u32("step"), Table: ports.NoTable,
	}
	if string(f.take("table")) != "null" {
		n, err := strconv.ParseUint(string(f.values["table"]), 10, 32)
		if r.Table = uint32(n); err != nil || n == ports.NoTable {
			f.wrong("table", fmt.Sprintf("null or a whole number from 0 to %d", uint32(math.MaxUint32-1)))
		}
	}
	return r
}

// endpoint is the field "endpoint", or "endpoint_hex" in its place.
func (f *fields) endpoint() []byte {
	if !f.has("endpoint_hex") {
		return []byte(f.text("endpoint"))
	}
	if f.has("endpoint") {
		f.fail(&fieldError{"endpoint_hex", fmt.Errorf("%s: endpoint_hex and endpoint are both there, want one of them", f.what)})
	}
	b, err := hex.DecodeString(f.text("endpoint_hex"))
	if err != nil {
		f.wrong("endpoint_hex", "two hexadecimal digits for each byte")
	}
	return b
}

func encodeHandshake(f *fields) ([]byte, error) {
	f.what = kindHandshake
	f.number("format", handshakeFormat)
	h := wire.Handshake{
		Wire: f.u16("wire"), Control: f.control(), Ownership: f.boolean("ownership"), TokenRequired: f.boolean("token_required"),
		DeviceArena: oneOf(f, "memory", []ports.MemoryKind{ports.Host, ports.Device}) == ports.Device,
		Incarnation: f.u64("incarnation"), ArenaUsable: f.u64("arena_usable_bytes"), MaxChunk: f.u64("max_chunk_bytes"),
		RequestTimeout: time.Duration(f.u32("request_timeout_ms")) * time.Millisecond, Endpoint: f.endpoint(),
	}
	if err := f.done(); err != nil {
		return nil, err
	}
	if err := h.Check(); err != nil {
		return nil, err
	}
	return h.Append(nil), nil
}

// control is a name, or the number of a control channel that has none.
func (f *fields) control() ports.ControlKind {
	value := f.take("control")
	var n uint8
	switch {
	case value == nil:
	case value[0] == '"':
		return oneOf(f, "control", controls)
	case value[0] == 'n' || json.Unmarshal(value, &n) != nil: // null would leave n alone
		f.wrong("control", `"zmq", "nixl", "memory" or a number from 0 to 255`)
	}
	return ports.ControlKind(n)
}
