package transport

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

func TestAdmissionRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		tweak  func(*Settings)
		want   *wire.Want
		before func(h *harness)
		reason wire.Reason
	}{
		"token": {want: &wire.Want{Request: 5, Oldest: 5, Token: 9, ChunkBytes: twoChunks}, reason: wire.ReasonReceiveWindow},
		"no token where one is required": {
			tweak: func(s *Settings) { s.RequireToken = true }, want: want(5, twoChunks...), reason: wire.ReasonReceiveWindow,
		},
		"a chunk above the limit": {want: want(5, 8, maxChunk+1), reason: wire.ReasonTooLarge},
		"the largest chunk there is": {
			want: want(5, math.MaxUint32), reason: wire.ReasonTooLarge,
		},
		"too many chunks": {want: want(5, onesOf(plan.MaxChunks+1)...), reason: wire.ReasonTooLarge},
		"too many flows": {
			tweak: func(s *Settings) { s.MaxFlowsPerPeer = 2 }, want: wantOldest(5, 3, twoChunks...), reason: wire.ReasonOverloaded,
			before: func(h *harness) { h.deliver(wantOldest(3, 3, 8), wantOldest(4, 3, 8)) },
		},
		"superseded": {
			want: want(5, twoChunks...), reason: wire.ReasonRefused,
			before: func(h *harness) {
				h.deliver(want(4, 8))
				h.add(must(ports.NewIdentity("alpha", 0xAA)))
			},
		},
		"closing": {want: want(5, twoChunks...), reason: wire.ReasonRefused, before: func(h *harness) { h.tr.BeginClose(); h.turn() }},
	} {
		t.Run(name, func(t *testing.T) {
			h := withPeer(t, func(s *Settings) {
				if c.tweak != nil {
					c.tweak(s)
				}
			})
			if c.before != nil {
				c.before(h)
				h.sent()
			}
			h.deliver(c.want)
			n := h.expectNack(c.reason)
			require.EqualValues(t, wire.WholeRequest, n.Chunk)
			require.EqualValues(t, len(c.want.ChunkBytes), n.Chunks, "copied from the frame that it answers")
			require.Nil(t, h.flow(5), "a NACK of an unknown flow's WANT leaves no flow")
			require.Equal(t, h.peer(peerA).live, h.tr.liveFlows)
		})
	}
	t.Run("blocks in doubt leave no room", func(t *testing.T) {
		h := withPeer(t)
		fillArena(h)
		spoilArena(h)
		h.deliver(want(5, maxChunk))
		h.expectNack(wire.ReasonOverloaded)
		require.Nil(t, h.flow(5))
		h.deliverFrom(peerB, drainOf(1))
		h.sent()
		h.deliver(want(5, maxChunk))
		require.NotNil(t, h.flow(5))
	})
	t.Run("an admitted flow that finds no room any more", func(t *testing.T) {
		h := withPeer(t)
		fillArena(h)
		h.deliver(want(5, maxChunk))
		h.silent()
		spoilArena(h)
		h.deliver(wantOldest(5, 5, maxChunk))
		n := h.expectNack(wire.ReasonOverloaded)
		require.EqualValues(t, wire.WholeRequest, n.Chunk)
		require.Equal(t, flowOpen, h.flow(5).state, "the flow stays open")
	})
	t.Run("the next request is served", func(t *testing.T) {
		h := withPeer(t)
		h.deliver(want(5, maxChunk+1))
		h.expectNack(wire.ReasonTooLarge)
		h.deliver(want(5, maxChunk))
		h.expect(wire.TypeGrant)
	})
}

func onesOf(n int) []uint32 {
	list := make([]uint32, n)
	for i := range list {
		list[i] = 1
	}
	return list
}

// spoilArena retains all regions that beta holds, as if its leases had ended.
func spoilArena(h *harness) {
	h.Helper()
	for f := range h.peer(peerB).flowList.All {
		for _, rc := range f.chunks {
			if rc != nil {
				rc.hold.Retain()
			}
		}
	}
}

// pieces is a DATA for chunk 0 of request 5 with these runs.
func pieces(region uint64, index []uint32, runs ...ports.Run) *wire.Data {
	return &wire.Data{Request: 5, Region: region, Chunks: 1, Runs: ports.Runs{Runs: runs, Index: index}}
}

func TestDataChecks(t *testing.T) {
	const chunk = 6000 // in a block of 8 KiB
	no := uint32(ports.NoTable)
	plain := func(offset, addr uint64, piece uint32) ports.Run {
		return ports.Run{Offset: offset, Addr: addr, Piece: piece, Pieces: 1, Table: no}
	}
	for name, c := range map[string]struct {
		index  []uint32
		runs   []ports.Run
		reason wire.Reason // 0: it is launched
	}{
		"the whole chunk":                             {runs: []ports.Run{plain(0, destBase, chunk)}},
		"less than the chunk":                         {runs: []ports.Run{plain(16, destBase, 8)}},
		"outside the chunk, inside the rounded block": {runs: []ports.Run{plain(chunk-7, destBase, 8)}, reason: wire.ReasonOutsideChunk},
		"a later piece outside the chunk": {
			runs: []ports.Run{{Addr: destBase, Stride: 8, Piece: 8, Pieces: 3, Step: chunk/2 - 3, Table: no}}, reason: wire.ReasonOutsideChunk,
		},
		"the second run outside the chunk":     {runs: []ports.Run{plain(0, destBase, 8), plain(chunk, destBase, 8)}, reason: wire.ReasonOutsideChunk},
		"an offset far away":                   {runs: []ports.Run{plain(math.MaxUint64-8, destBase, 8)}, reason: wire.ReasonOutsideChunk},
		"pieces that add up to more":           {runs: []ports.Run{plain(0, destBase, chunk), plain(0, destBase+chunk, 1)}, reason: wire.ReasonOutsideChunk},
		"pieces that overlap and add up":       {runs: []ports.Run{{Addr: destBase, Stride: chunk, Piece: chunk, Pieces: 2, Table: no}}, reason: wire.ReasonOutsideChunk},
		"unregistered":                         {runs: []ports.Run{plain(0, destBase-8, 8)}, reason: wire.ReasonUnregistered},
		"half registered":                      {runs: []ports.Run{plain(0, destBase-1, 2)}, reason: wire.ReasonUnregistered},
		"the last registered byte":             {runs: []ports.Run{plain(0, destBase+destBytes-1, 1)}},
		"one byte behind it":                   {runs: []ports.Run{plain(0, destBase+destBytes-1, 2)}, reason: wire.ReasonUnregistered},
		"the arena":                            {runs: []ports.Run{plain(0, arenaBase, 8)}, reason: wire.ReasonUnregistered},
		"address 0":                            {runs: []ports.Run{plain(0, 0, 8)}, reason: wire.ReasonUnregistered},
		"the end of the address space":         {runs: []ports.Run{plain(0, math.MaxUint64-3, 8)}, reason: wire.ReasonUnregistered},
		"a stride":                             {runs: []ports.Run{{Addr: destBase, Stride: 4096, Piece: 8, Pieces: 4, Step: 8, Table: no}}},
		"a stride that leaves the memory":      {runs: []ports.Run{{Addr: destBase, Stride: destBytes / 2, Piece: 8, Pieces: 3, Step: 8, Table: no}}, reason: wire.ReasonUnregistered},
		"a negative stride":                    {runs: []ports.Run{{Addr: destBase + 8192, Stride: -4096, Piece: 8, Pieces: 3, Step: 8, Table: no}}},
		"a negative stride below the memory":   {runs: []ports.Run{{Addr: destBase + 4096, Stride: -4096, Piece: 8, Pieces: 3, Step: 8, Table: no}}, reason: wire.ReasonUnregistered},
		"a stride that wraps into the memory":  {runs: []ports.Run{{Addr: destBase, Stride: math.MaxInt64, Piece: 8, Pieces: 3, Step: 8, Table: no}}, reason: wire.ReasonUnregistered},
		"the most negative stride":             {runs: []ports.Run{{Addr: destBase, Stride: math.MinInt64, Piece: 8, Pieces: 3, Step: 8, Table: no}}, reason: wire.ReasonUnregistered},
		"a stride of 2^63 back to the address": {index: []uint32{2}, runs: []ports.Run{{Addr: destBase, Stride: math.MinInt64, Piece: 8, Pieces: 1, Table: 0}}, reason: wire.ReasonUnregistered},
		"a table":                              {index: []uint32{7, 0, 3, 200}, runs: []ports.Run{{Addr: destBase, Stride: 4096, Piece: 8, Pieces: 3, Step: 8, Table: 0}}},
		"a table with one index too large":     {index: []uint32{7, 0, 256}, runs: []ports.Run{{Addr: destBase, Stride: 4096, Piece: 8, Pieces: 3, Step: 8, Table: 0}}, reason: wire.ReasonUnregistered},
		"a part of a table": {
			index: []uint32{999, 1, 2}, runs: []ports.Run{{Addr: destBase, Stride: 4096, Piece: 8, Pieces: 2, Step: 8, Table: 1}},
		},
		"two runs that share a table, the second elsewhere": {
			index:  []uint32{0, 255},
			runs:   []ports.Run{{Addr: destBase, Stride: 4096, Piece: 8, Pieces: 2, Step: 8, Table: 0}, {Offset: 16, Addr: destBase + 4096, Stride: 4096, Piece: 8, Pieces: 2, Step: 8, Table: 0}},
			reason: wire.ReasonUnregistered,
		},
		"a table with a negative stride": {
			index: []uint32{0, 2}, runs: []ports.Run{{Addr: destBase + 8192, Stride: -4096, Piece: 8, Pieces: 2, Step: 8, Table: 0}},
		},
		"a table with a negative stride below the memory": {
			index: []uint32{3, 0}, runs: []ports.Run{{Addr: destBase + 8192, Stride: -4096, Piece: 8, Pieces: 2, Step: 8, Table: 0}}, reason: wire.ReasonUnregistered,
		},
		"a table whose hull has a gap that no piece meets": {
			index: []uint32{0, 1024}, runs: []ports.Run{{Addr: destBase, Stride: 4096, Piece: 8, Pieces: 2, Step: 8, Table: 0}},
		},
		"a table with a piece in the gap": {
			index: []uint32{0, 1024, 512}, runs: []ports.Run{{Addr: destBase, Stride: 4096, Piece: 8, Pieces: 3, Step: 8, Table: 0}}, reason: wire.ReasonUnregistered,
		},
		"memory of another device": {runs: []ports.Run{plain(0, 0xC000_0000, 8)}, reason: wire.ReasonUnregistered},
	} {
		t.Run(name, func(t *testing.T) {
			h := withPeer(t)
			h.reg.Add([]ports.Descriptor{{Addr: destBase + 1024*4096, Bytes: 4096}})
			h.reg.Add([]ports.Descriptor{{Addr: 0xC000_0000, Bytes: 4096, Place: ports.Place{Kind: ports.Device}}})
			region := h.granted(5, chunk)[0].Region
			h.deliver(pieces(region, c.index, c.runs...))
			if c.reason == 0 {
				h.silent()
				require.Len(t, h.gpu.copies, 1)
				return
			}
			n := h.expectNack(c.reason)
			require.Equal(t, region, n.Region)
			require.Empty(t, h.gpu.copies)
			require.Equal(t, 1, h.tr.regions, "the region stays the flow's")

			// The chunk can still be scattered.
			h.deliver(pieces(region, nil, plain(0, destBase, chunk)))
			h.copied()
			h.expect(wire.TypeAck)
		})
	}
}

// A queued scatter is checked again when it is launched: its memory may have been deregistered. It is dropped, and the chunk stays granted.
func TestDataIsCheckedAgainAtLaunch(t *testing.T) {
	h := withPeer(t)
	h.gpu.contexts = 1
	memory := []ports.Descriptor{{Addr: 0xA000_0000, Bytes: 4096}}
	h.reg.Add(memory)
	credits := openFlow(h)
	h.deliver(dataFor(5, credits[0], 2))
	d := dataFor(5, credits[1], 2)
	d.Runs = ports.Runs{Runs: []ports.Run{{Addr: 0xA000_0000, Piece: 8, Pieces: 1, Table: ports.NoTable}}}
	h.deliver(d)
	h.silent()
	require.Equal(t, 0, h.tr.regions)
	h.reg.Remove(memory)
	h.copied()
	out := h.expect(wire.TypeAck, wire.TypeNack)
	n := out[1].msg.(*wire.Nack)
	require.Equal(t, wire.ReasonUnregistered, n.Reason)
	require.Equal(t, credits[1].Region, n.Region)
	require.Len(t, h.gpu.copies, 1)
	require.Equal(t, 1, h.tr.regions)
	h.tick(60 * time.Second)
	h.expectNack(wire.ReasonExpired)
}

// Regions count from 1 and are never reused, the flow's window bounds them, and a freed region makes room for the next chunk in the same turn.
func TestGrants(t *testing.T) {
	h := withPeer(t, func(s *Settings) { s.Window = 2 })
	sizes := []uint32{4 * kilo, 4 * kilo, 4 * kilo, 4 * kilo}
	credits := h.granted(5, sizes...)
	require.Len(t, credits, 2)
	h.deliver(dataFor(5, credits[0], 4))
	h.copied()
	out := h.expect(wire.TypeAck, wire.TypeGrant)
	next := out[1].msg.(*wire.Grant).Credits
	require.Len(t, next, 1)
	require.Equal(t, uint64(3), next[0].Region)
	require.Equal(t, uint32(2), next[0].Chunk)
	h.deliver(drainOf(5))
	h.expect(wire.TypeDrainAck)
	require.Equal(t, uint64(4), h.granted(6, 4*kilo)[0].Region)
}

// Flows of all peers share the arena; the one that waits is granted when room comes.
func TestGrantAfterRoom(t *testing.T) {
	h := withPeer(t)
	fillArena(h)
	h.deliver(want(5, maxChunk))
	h.silent()
	h.deliverFrom(peerB, drainOf(1))
	var got []wire.Type
	for _, f := range h.sent() {
		got = append(got, typeOf(f.msg))
	}
	require.Contains(t, got, wire.TypeGrant)
	require.Equal(t, flowOpen, h.flow(5).state)
	require.Equal(t, regionGranted, h.flow(5).chunks[0].stateNow())
}

// DATA below the highest `oldest` is dropped, also where its flow still waits for a copy.
func TestDataBelowOldest(t *testing.T) {
	h := withPeer(t)
	c := h.granted(1, 4*kilo, 4*kilo)
	h.deliver(dataFor(1, c[0], 2))
	h.sent()
	h.deliver(wantOldest(2, 2, 4*kilo))
	h.sent()
	h.deliver(dataFor(1, c[1], 2))
	h.silent()
	h.copied()
}

// Copies of others that come in all the time do not keep a chunk with a credit from being gathered.
func TestScattersDoNotStarveGathers(t *testing.T) {
	h := withPeer(t)
	h.gpu.contexts = 2
	sizes := make([]uint32, 1000)
	for i := range sizes {
		sizes[i] = 4 * kilo
	}
	take := func(credits []wire.Credit) {
		for _, c := range credits {
			d := dataFor(1, c, uint32(len(sizes)))
			d.Runs.Runs[0].Addr = destBase
			h.queue(d)
		}
	}
	take(h.granted(1, sizes...))
	h.turn()
	h.sent()
	hd := h.submit(4 * kilo)
	h.sent()
	h.deliver(grant(1, []uint32{4 * kilo}, 0))
	for h.count(GathersRun) == 0 {
		running := h.gpu.running()
		require.NotEmpty(t, running, "every chunk was scattered before the gather's turn")
		running[0].status = ports.CopyDone
		h.turn()
		for _, f := range h.sent() {
			if g, ok := f.msg.(*wire.Grant); ok {
				take(g.Credits)
			}
		}
	}
	require.Less(t, h.count(ScattersRun), uint64(20))
	h.cancel(hd)
	h.stuck = true
}

// A flow of many chunks, most of which are done: a lost GRANT is said again before the ACKs, which are too many for one answer, and all ACKs have their turn.
func TestManyDoneChunksLeaveRoomForCredits(t *testing.T) {
	h := withPeer(t)
	sizes := make([]uint32, 1200)
	for i := range sizes {
		sizes[i] = 4 * kilo
	}
	chunks := uint32(len(sizes))
	credits := h.granted(1, sizes...)
	for range 1100 {
		d := dataFor(1, credits[0], chunks)
		d.Runs.Runs[0].Addr = destBase
		h.deliver(d)
		h.copied()
		credits = credits[1:]
		for _, f := range h.sent() {
			if g, ok := f.msg.(*wire.Grant); ok {
				credits = append(credits, g.Credits...)
			}
		}
		require.NotEmpty(t, credits)
	}
	acked := make(map[uint32]bool)
	for range 6 {
		h.deliver(want(1, sizes...))
		out := h.sent()
		require.Equal(t, credits, out[0].msg.(*wire.Grant).Credits)
		require.LessOrEqual(t, len(out), 1+maxAcks)
		for _, f := range out[1:] {
			acked[f.msg.(*wire.Ack).Chunk] = true
		}
	}
	require.Len(t, acked, 1100)
	h.stuck = true
}

// With one copy context gathers and scatters take turns.
func TestOneContextIsShared(t *testing.T) {
	h := withPeer(t)
	h.gpu.contexts = 1
	credits := h.granted(1, 4*kilo, 4*kilo, 4*kilo, 4*kilo)
	for _, c := range credits {
		h.queue(dataFor(1, c, 4))
	}
	h.turn()
	h.submit(4*kilo, 4*kilo, 4*kilo)
	h.sent()
	h.deliver(grant(1, []uint32{4 * kilo, 4 * kilo, 4 * kilo}, 0, 1, 2))
	var order string
	for range 7 {
		running := h.gpu.running()
		require.Len(t, running, 1)
		order += map[bool]string{true: "s", false: "g"}[running[0].scatter]
		h.copied()
	}
	require.Equal(t, "sgsgsgs", order)
	h.stuck = true
}
