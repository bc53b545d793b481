package transport

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// raw lets the bytes of a frame arrive.
func (h *harness) raw(frame []byte, key string) {
	h.channel.in = append(h.channel.in, inFrame{frame, key})
	h.turn()
}

func frameFor(to ports.Identity, m wire.Message) []byte {
	return m.Append(wire.AppendEnvelope(nil, peerA, to))
}

func TestFramesForOthers(t *testing.T) {
	h := withPeer(t)
	predecessor := must(ports.NewIdentity("self", 2))
	h.raw(frameFor(predecessor, want(5, twoChunks...)), "")
	h.silent()
	require.Nil(t, h.flow(5))
	require.EqualValues(t, 1, h.count(FramesForOthers))
	h.submit(8)
	h.sent()
	h.raw(frameFor(predecessor, nackWhole(1, wire.ReasonRefused)), "")
	require.Equal(t, InProgress, h.handles[0].Status())
	require.False(t, h.peer(peerA).heard)
}

func TestForgedFrames(t *testing.T) {
	h := withPeer(t)
	h.raw(frameFor(self, want(5, twoChunks...)), "mallory")
	h.silent()
	require.EqualValues(t, 1, h.count(FramesForged))
	h.raw(frameFor(self, want(5, twoChunks...)), "alpha")
	h.expect(wire.TypeGrant)
}

// patched is the frame of a message with a 32-bit field of its header changed.
func patched(m wire.Message, offset int, value uint32) []byte {
	f := frameFor(self, m)
	at := len(wire.AppendEnvelope(nil, peerA, self)) + offset
	binary.LittleEndian.PutUint32(f[at:], value)
	return f
}

func TestUndecodableFrames(t *testing.T) {
	whole := func(f []byte, cut int) []byte { return f[:len(f)-cut] }
	d := dataFor(5, wire.Credit{Region: 3, Chunk: 1, Length: 8}, 2)
	for name, c := range map[string]struct {
		frame []byte
		nack  bool
		chunk uint32
	}{
		"empty":                     {frame: nil},
		"no envelope":               {frame: []byte("hello")},
		"no message":                {frame: wire.AppendEnvelope(nil, peerA, self)},
		"half a header":             {frame: whole(frameFor(self, drained(1)), 1)},
		"wrong magic":               {frame: patched(want(5, 8), 0, 0)},
		"wrong version":             {frame: patched(want(5, 8), 4, 0x00010002)},
		"unknown type":              {frame: patched(want(5, 8), 4, 0x00090003)},
		"request 0":                 {frame: patched(want(5, 8), 8, 0)},
		"WANT cut short":            {whole(frameFor(self, want(5, 8)), 1), true, wire.WholeRequest},
		"WANT with bytes left over": {append(frameFor(self, want(5, 8)), 0), true, wire.WholeRequest},
		"WANT with a chunk of 0":    {patched(want(5, 8, 8), 40+20+len("mem:")+len(peerA), 0), true, wire.WholeRequest},
		"DATA cut short":            {whole(frameFor(self, d), 1), true, 1},
		"DATA with region 0":        {patched(d, 16, 0), true, wire.WholeRequest},
		"DRAIN with a count":        {patched(drainOf(5), 32, 1), true, wire.WholeRequest},
		"GRANT cut short":           {frame: whole(frameFor(self, grant(1, twoChunks, 0)), 1)},
		"ACK with a payload":        {frame: append(frameFor(self, ack(1, 2, 0)), 0)},
		"NACK with reason 0":        {frame: patched(nackWhole(1, 1), 40, 0)},
		"DRAIN_ACK with a chunk":    {frame: patched(drained(1), 24, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			h := withPeer(t)
			h.raw(c.frame, "")
			require.EqualValues(t, 1, h.count(FramesNotDecoded))
			if !c.nack {
				h.silent()
				return
			}
			n := h.expectNack(wire.ReasonMalformed)
			require.EqualValues(t, 5, n.Request)
			require.Equal(t, c.chunk, n.Chunk)
			require.NotEmpty(t, n.Text)
			require.Empty(t, h.peer(peerA).flows)
		})
	}
}

// A NACK 1 for a malformed message of an open flow leaves the flow and its regions as they are.
func TestMalformedMessageOfAnOpenFlow(t *testing.T) {
	h := withPeer(t)
	credits := openFlow(h)
	h.raw(append(frameFor(self, dataFor(5, credits[0], 2)), 0), "")
	n := h.expectNack(wire.ReasonMalformed)
	require.Equal(t, credits[0].Region, n.Region)
	h.deliver(dataFor(5, credits[0], 2))
	h.copied()
	h.expect(wire.TypeAck)
}

// Whatever a peer sends, in whatever order, nothing panics, the arena never runs over, and drains bring everything back.
func TestAnyFramesInAnyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := withPeer(t)
		sizes := []uint32{8 * kilo, 4 * kilo, 1}
		for range 3 {
			h.submit(sizes[:rapid.IntRange(1, 3).Draw(rt, "chunks")]...)
		}
		id := rapid.Uint64Range(1, 5)
		part := rapid.Uint32Range(0, 2)
		status := rapid.SampledFrom([]ports.TransferStatus{ports.Success, ports.FailedNothingPosted, ports.FailedEnded, ports.FailedUnknown})
		steps := rapid.IntRange(10, 60).Draw(rt, "steps")
		for range steps {
			var m wire.Message
			switch rapid.IntRange(0, 11).Draw(rt, "step") {
			case 0:
				n := id.Draw(rt, "id")
				m = wantOldest(n, rapid.Uint64Range(1, n).Draw(rt, "oldest"), sizes[:rapid.IntRange(1, 3).Draw(rt, "chunks")]...)
			case 1:
				m = grant(id.Draw(rt, "id"), sizes, part.Draw(rt, "chunk"))
			case 2:
				m = dataFor(id.Draw(rt, "id"), wire.Credit{Region: rapid.Uint64Range(1, 12).Draw(rt, "region"), Chunk: part.Draw(rt, "chunk"), Length: 1}, 3)
				if f := h.flow(m.(*wire.Data).Request); f != nil && f.state != flowFinished && f.chunks[0] != nil {
					m = dataFor(f.id, wire.Credit{Region: f.chunks[0].region, Length: f.sizes[0]}, uint32(len(f.chunks)))
				}
			case 3:
				m = ack(id.Draw(rt, "id"), 3, part.Draw(rt, "chunk"))
			case 4:
				m = &wire.Nack{Request: id.Draw(rt, "id"), Chunk: wire.WholeRequest, Reason: wire.Reason(rapid.Uint32Range(1, 11).Draw(rt, "reason"))}
			case 5:
				m = drainOf(id.Draw(rt, "id"))
			case 6:
				m = drained(id.Draw(rt, "id"))
			case 7:
				if list := h.pendingWrites(); len(list) > 0 {
					rapid.SampledFrom(list).Draw(rt, "write").end(status.Draw(rt, "status"))
				}
			case 8:
				if list := h.gpu.running(); len(list) > 0 {
					rapid.SampledFrom(list).Draw(rt, "copy").status = ports.CopyDone
				}
			case 9:
				h.handles[rapid.IntRange(0, 2).Draw(rt, "handle")].Cancel()
			case 10:
				h.tick(rapid.SampledFrom([]time.Duration{1, 30, 500, 5000}).Draw(rt, "wait") * ms)
			case 11:
				h.add(peerA)
			}
			if m != nil {
				h.queue(m)
			}
			h.turn()
			h.sent()
		}
		h.windDown()
	})
}
