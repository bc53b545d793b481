package simulation

import (
	"math"
	"time"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// hostile is a peer that speaks frames by hand: malformed, stale, foreign and contradictory ones, and some that are right. It speaks under its own name, or under names
// that nobody has: without CURVE a claim of another's name is believed (protocol.md, 11), so that is not an attack that the core can stand.
type hostile struct {
	life *life
	w    *World
	base uint64 // memory that its engine registered

	heard []heardFrame // what honest agents sent to it
	sent  []sentFrame  // what it sent, to be sent again
}

type heardFrame struct {
	from    ports.Identity
	message wire.Message
}

type sentFrame struct {
	to    ports.Identity
	bytes []byte
}

const hostileBytes = 4096

// beHostile makes this life a hostile peer.
func (l *life) beHostile() {
	w := l.node.w
	h := &hostile{life: l, w: w}
	var err error
	h.base, err = w.sim.Allocate(hostileBytes, ports.Place{})
	must(err)
	w.oracle.addArea(h.base, area{life: l})
	_, err = l.engine.Register([]ports.Descriptor{{Addr: h.base, Bytes: hostileBytes}})
	must(err)
	metadata, err := l.engine.Metadata()
	must(err)
	shake := wire.Handshake{Wire: wire.Version, Control: ports.ControlMemory, Ownership: true, Incarnation: l.id.Incarnation(), ArenaUsable: hostileBytes, MaxChunk: 1024,
		RequestTimeout: time.Second, Endpoint: l.control.Endpoint()}
	l.desc = agent.AgentDesc{Identity: l.id, StartedUnixNS: 1, Engine: l.engine.Info().Name, Metadata: metadata, Bounce: shake.Append(nil)}
	l.hostile = h
	pages := w.setup.pages[l.node.setup.name] + sparePages
	l.src, l.dst = newPool(w, l, pages), newPool(w, l, pages)
	_, err = l.engine.Register([]ports.Descriptor{l.src.whole(), l.dst.whole()})
	must(err)
	l.desc.Metadata, err = l.engine.Metadata()
	must(err)
}

// act takes in what came and does one hostile thing.
func (h *hostile) act(d draw) {
	if h.life.dead {
		return
	}
	h.listen()
	to := h.victim(d)
	if to == nil {
		return
	}
	must(h.life.control.Connect(to.id, to.control.Endpoint()))
	from := h.life.id
	if d.percent(5) {
		from, _ = ports.NewIdentity("nobody", d.r.Uint64())
	}
	addressee := to.id
	if d.percent(5) {
		addressee, _ = ports.NewIdentity(to.node.setup.name, d.r.Uint64())
	}
	switch d.index(10) {
	case 0:
		h.send(to.id, h.noise(d))
	case 1:
		if n := len(h.sent); n > 0 {
			again := h.sent[d.index(n)]
			h.send(again.to, again.bytes)
		}
	case 2, 3:
		h.send(to.id, h.bend(d, h.message(d, to).Append(wire.AppendEnvelope(nil, from, addressee))))
	default:
		h.send(to.id, h.message(d, to).Append(wire.AppendEnvelope(nil, from, addressee)))
	}
}

func (h *hostile) victim(d draw) *life {
	n := h.w.nodes[d.index(len(h.w.nodes))].now
	if n == nil || n.hostile != nil {
		return nil
	}
	return n
}

// listen takes what honest agents sent.
func (h *hostile) listen() {
	for {
		frame, _, ok := h.life.control.Recv(nil)
		if !ok {
			return
		}
		if f, err := wire.DecodeFrame(frame); err == nil {
			h.heard = append(h.heard, heardFrame{from: f.From, message: f.Message})
		}
	}
}

// send sends bytes, unless they happen to claim an honest agent's name or to aim at an application's pages, which a peer that everybody trusts may write.
func (h *hostile) send(to ports.Identity, b []byte) {
	if f, err := wire.DecodeFrame(b); err == nil {
		if h.w.oracle.isHonest(f.From) {
			return
		}
		if data, ok := f.Message.(*wire.Data); ok && h.aimsAtPages(data.Runs) {
			return
		}
	}
	h.sent = append(h.sent, sentFrame{to: to, bytes: b})
	h.life.control.Send(to, b)
}

func (h *hostile) aimsAtPages(runs ports.Runs) bool {
	hit := false
	for _, r := range runs.Runs {
		if uint64(r.Pieces) > 1<<16 {
			return true // too many to look at
		}
	}
	eachPiece(runs.Runs, runs.Index, func(addr, bytes uint64) {
		for _, at := range []uint64{addr, addr + bytes - 1} {
			hit = hit || h.w.oracle.areaOf(at).pool != nil
		}
	})
	return hit
}

func (h *hostile) noise(d draw) []byte {
	b := make([]byte, d.index(200))
	for i := range b {
		b[i] = byte(d.r.Uint64())
	}
	if len(b) > 4 && d.percent(50) {
		copy(b, ports.FrameMagic)
	}
	return b
}

// bend changes, cuts or lengthens a frame.
func (h *hostile) bend(d draw, b []byte) []byte {
	switch d.index(4) {
	case 0:
		return b[:d.index(len(b))]
	case 1:
		return append(b, byte(d.r.Uint64()))
	}
	for range 1 + d.index(4) {
		b[d.index(len(b))] ^= 1 << d.index(8)
	}
	return b
}

// message makes a well-formed message: half of them answer what was heard, rightly or wrongly.
func (h *hostile) message(d draw, to *life) wire.Message {
	id, region, chunk, chunks := 1+d.below(4), 1+d.below(6), uint32(d.index(3)), uint32(1+d.index(4))
	if d.percent(10) {
		id = d.r.Uint64() | 1
	}
	for i := len(h.heard) - 1; i >= 0 && d.percent(80); i-- {
		if h.heard[i].from != to.id {
			continue
		}
		switch m := h.heard[i].message.(type) {
		case *wire.Want:
			id, chunks = m.Request, uint32(len(m.ChunkBytes))
		case *wire.Grant:
			c := m.Credits[d.index(len(m.Credits))]
			id, chunks, region, chunk = m.Request, m.Chunks, c.Region, c.Chunk
		case *wire.Data:
			id, chunks, region, chunk = m.Request, m.Chunks, m.Region, m.Chunk
		}
		break
	}
	chunk = min(chunk, chunks-1)
	switch d.index(9) {
	case 0, 1:
		return h.wantMessage(d, id)
	case 2:
		g := &wire.Grant{Request: id, Chunks: chunks}
		for range 1 + d.index(3) {
			g.Credits = append(g.Credits, wire.Credit{Addr: h.target(d, to), Length: uint32(1 + d.index(1024)), Region: region, Chunk: uint32(d.index(int(chunks)))})
		}
		return g
	case 3, 4:
		return h.dataMessage(d, to, &wire.Data{Request: id, Region: region, Chunk: chunk, Chunks: chunks})
	case 5:
		return &wire.Ack{Request: id, Region: region, Chunk: chunk, Chunks: chunks}
	case 6:
		return &wire.Nack{Request: id, Chunk: wire.WholeRequest, Chunks: chunks, Reason: wire.Reason(1 + d.index(12)), Text: "no"}
	case 7:
		return &wire.Drain{Request: id, Endpoint: h.endpoint(d)}
	}
	return &wire.DrainAck{Request: id}
}

func (h *hostile) endpoint(d draw) []byte {
	switch d.index(6) {
	case 0:
		return nil
	case 1:
		return []byte("nowhere")
	}
	return h.life.control.Endpoint()
}

func (h *hostile) wantMessage(d draw, id uint64) *wire.Want {
	w := &wire.Want{Request: id, Oldest: 1 + d.below(id), Endpoint: h.endpoint(d), ChunkBytes: make([]uint32, 1+d.index(4))}
	if d.percent(70) {
		w.Oldest = 1
	}
	if d.percent(10) {
		w.Token = d.r.Uint64()
	}
	for i := range w.ChunkBytes {
		w.ChunkBytes[i] = uint32(1 + d.index(512))
		if d.percent(5) {
			w.ChunkBytes[i] = math.MaxUint32
		}
	}
	return w
}

// target is an address that a hostile peer may name: its own memory, the victim's playground, its arena, or nothing at all.
func (h *hostile) target(d draw, to *life) uint64 {
	switch d.index(5) {
	case 0:
		return h.base + d.below(hostileBytes)
	case 1:
		return to.books.base + d.below(to.books.bytes)
	case 2:
		return d.r.Uint64() | 1
	}
	return to.books.play + d.below(playBytes)
}

func (h *hostile) dataMessage(d draw, to *life, m *wire.Data) *wire.Data {
	for range 1 + d.index(3) {
		r := ports.Run{Offset: d.below(256), Addr: h.target(d, to), Stride: int64(d.below(128)), Piece: uint32(1 + d.index(64)), Pieces: uint32(1 + d.index(4)), Step: uint32(d.index(80)), Table: ports.NoTable}
		if d.percent(20) {
			r.Stride = int64(d.r.Uint64())
		}
		if d.percent(20) {
			r.Table = 0
			r.Pieces = 2
			m.Runs.Index = []uint32{uint32(d.index(4)), uint32(d.r.Uint64())}
		}
		m.Runs.Runs = append(m.Runs.Runs, r)
	}
	if m.Check() != nil {
		m.Runs = ports.Runs{Runs: []ports.Run{{Addr: to.books.play, Piece: 8, Pieces: 1, Table: ports.NoTable}}}
	}
	return m
}
