package transport

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// open opens a window over memory of the harness.
func (h *harness) open(runs ports.Runs, ready ports.Event) *Window {
	h.Helper()
	w, err := h.reg.OpenWindow(runs, ports.Place{}, ready, h.opt.Rand)
	require.NoError(h, err)
	require.NotZero(h, w.Token())
	return w
}

// one is a run of one piece.
func one(addr uint64, bytes uint32) ports.Runs {
	return ports.Runs{Runs: []ports.Run{{Addr: addr, Piece: bytes, Pieces: 1, Table: ports.NoTable}}}
}

// destOf is the window over the destinations of the harness's usual chunks.
func destOf(chunks int) ports.Runs { return one(destBase, uint32(chunks)*maxChunk) }

func wantToken(request, token uint64, sizes ...uint32) *wire.Want {
	w := want(request, sizes...)
	w.Token = token
	return w
}

// grantedIn lets alpha's WANT with a token arrive and returns its credits.
func (h *harness) grantedIn(w *Window, request uint64, sizes ...uint32) []wire.Credit {
	h.Helper()
	h.deliver(wantToken(request, w.Token(), sizes...))
	return only[*wire.Grant](h).Credits
}

func TestWindowFrames(t *testing.T) {
	t.Run("WANT with a token that was never drawn is NACK 5", func(t *testing.T) {
		h := withPeer(t)
		h.open(destOf(2), nil)
		h.deliver(wantToken(5, 12345, twoChunks...))
		h.expectNack(wire.ReasonReceiveWindow)
		require.Nil(t, h.flow(5))
	})
	t.Run("WANT with a closed window's token is NACK 5", func(t *testing.T) {
		h := withPeer(t)
		w := h.open(destOf(2), nil)
		w.Close()
		require.True(t, w.IsQuiesced())
		h.deliver(wantToken(5, w.Token(), twoChunks...))
		h.expectNack(wire.ReasonReceiveWindow)
	})
	t.Run("WANT without a token is NACK 5 where one is required", func(t *testing.T) {
		h := withPeer(t, func(s *Settings) { s.RequireToken = true })
		w := h.open(destOf(2), nil)
		h.deliver(want(5, twoChunks...))
		h.expectNack(wire.ReasonReceiveWindow)
		h.grantedIn(w, 6, twoChunks...)
	})
	t.Run("DATA inside the window launches, and the window waits for it", func(t *testing.T) {
		h := withPeer(t)
		w := h.open(destOf(2), nil)
		credits := h.grantedIn(w, 5, twoChunks...)
		h.deliver(dataFor(5, credits[0], 2))
		require.Len(t, h.gpu.running(), 1)
		w.Close()
		w.Close()
		require.False(t, w.IsQuiesced(), "its scatter runs")
		h.copied()
		require.True(t, w.IsQuiesced())
		h.expect(wire.TypeAck)
		h.deliver(dataFor(5, credits[1], 2))
		n := h.expectNack(wire.ReasonReceiveWindow)
		require.Equal(t, credits[1].Region, n.Region, "late DATA can't reach the pages")
		require.Equal(t, 1, h.tr.regions, "the region stays the flow's")
		require.Len(t, h.gpu.copies, 1)
	})
	t.Run("a scatter that is queued when the window closes is dropped with NACK 5", func(t *testing.T) {
		h := withPeer(t)
		h.gpu.contexts = 1
		w := h.open(destOf(2), nil)
		credits := h.grantedIn(w, 5, twoChunks...)
		h.deliver(dataFor(5, credits[0], 2), dataFor(5, credits[1], 2))
		require.Len(t, h.tr.scatterQ, 1)
		w.Close()
		h.copied()
		require.True(t, w.IsQuiesced())
		out := h.expect(wire.TypeAck, wire.TypeNack)
		n := out[1].msg.(*wire.Nack)
		require.Equal(t, wire.ReasonReceiveWindow, n.Reason)
		require.Equal(t, credits[1].Region, n.Region)
		require.Len(t, h.gpu.copies, 1)
		require.Equal(t, regionGranted, h.flow(5).chunks[1].state)
	})
	t.Run("DATA outside the window is NACK 5, though the memory is registered", func(t *testing.T) {
		h := withPeer(t)
		w := h.open(destOf(1), nil)
		credits := h.grantedIn(w, 5, twoChunks...)
		h.deliver(dataFor(5, credits[1], 2))
		h.expectNack(wire.ReasonReceiveWindow)
		h.deliver(dataFor(5, credits[0], 2))
		h.silent()
	})
	t.Run("DATA without a token into a window is NACK 5, open or closed", func(t *testing.T) {
		h := withPeer(t)
		w := h.open(one(destBase+100, 1), nil)
		credits := h.granted(5, twoChunks...)
		h.deliver(dataFor(5, credits[0], 2))
		h.expectNack(wire.ReasonReceiveWindow)
		w.Close()
		h.deliver(dataFor(5, credits[0], 2))
		h.expectNack(wire.ReasonReceiveWindow)
		h.deliver(dataFor(5, credits[1], 2))
		h.silent()
	})
	t.Run("a queued scatter without a token meets a window that was opened meanwhile", func(t *testing.T) {
		h := withPeer(t)
		h.gpu.contexts = 1
		credits := h.granted(5, twoChunks...)
		h.deliver(dataFor(5, credits[0], 2), dataFor(5, credits[1], 2))
		_, err := h.reg.OpenWindow(one(destBase+100, 4), ports.Place{}, nil, h.opt.Rand)
		require.ErrorIs(t, err, ErrOverlap, "a copy without a window runs there: Close could not wait for it")
		h.open(one(destBase+maxChunk, 4), nil)
		h.copied()
		out := h.expect(wire.TypeAck, wire.TypeNack)
		require.Equal(t, wire.ReasonReceiveWindow, out[1].msg.(*wire.Nack).Reason)
		h.open(one(destBase+100, 4), nil)
	})
	t.Run("several senders write in one window", func(t *testing.T) {
		h := withPeer(t)
		w := h.open(destOf(2), nil)
		credits := h.grantedIn(w, 5, 8*kilo)
		h.deliverFrom(peerB, &wire.Want{Request: 1, Oldest: 1, Token: w.Token(), Endpoint: []byte("mem:b"), ChunkBytes: twoChunks})
		other := only[*wire.Grant](h).Credits
		h.deliver(dataFor(5, credits[0], 1))
		h.deliverFrom(peerB, dataFor(1, other[1], 2))
		require.Len(t, h.gpu.running(), 2)
		w.Close()
		h.gpu.running()[0].status = ports.CopyDone
		h.turn()
		require.False(t, w.IsQuiesced())
		h.copied()
		require.True(t, w.IsQuiesced())
	})
	t.Run("a scatter in doubt keeps the window", func(t *testing.T) {
		h := withPeer(t)
		h.stuck = true
		w := h.open(destOf(2), nil)
		credits := h.grantedIn(w, 5, twoChunks...)
		h.deliver(dataFor(5, credits[0], 2))
		h.gpu.copies[0].status = ports.CopyFailed
		h.turn()
		h.expectNack(wire.ReasonScatterFailed)
		w.Close()
		h.deliver(drainOf(5))
		require.False(t, w.IsQuiesced())
		_, err := h.reg.OpenWindow(destOf(1), ports.Place{}, nil, h.opt.Rand)
		require.ErrorIs(t, err, ErrOverlap)
	})
	t.Run("a refused launch leaves the window", func(t *testing.T) {
		h := withPeer(t)
		w := h.open(destOf(2), nil)
		credits := h.grantedIn(w, 5, twoChunks...)
		h.gpu.scatErr = ports.ErrNotLaunched
		h.deliver(dataFor(5, credits[0], 2))
		h.expectNack(wire.ReasonScatterFailed)
		h.gpu.scatErr = ports.ErrBusy
		h.deliver(dataFor(5, credits[0], 2))
		w.Close()
		require.True(t, w.IsQuiesced())
		h.gpu.scatErr = nil
		h.turn()
		h.expectNack(wire.ReasonReceiveWindow)
	})
}

func TestWindowReadyEvent(t *testing.T) {
	t.Run("WANT stays queued until it fired", func(t *testing.T) {
		h := withPeer(t)
		ready := &fakeEvent{}
		w := h.open(destOf(2), ready)
		h.deliver(wantToken(5, w.Token(), twoChunks...))
		h.silent()
		h.deliver(wantToken(5, w.Token(), twoChunks...))
		require.Equal(t, queued(5, 2), only[*wire.Ack](h))
		require.Zero(t, h.arena.LiveBlocks(), "it holds nothing")
		ready.status = ports.CopyDone
		h.tick(2 * ms)
		require.Len(t, only[*wire.Grant](h).Credits, 2)
	})
	t.Run("that failed closes the window and is NACK 5", func(t *testing.T) {
		h := withPeer(t)
		ready := &fakeEvent{}
		w := h.open(destOf(2), ready)
		h.deliver(wantToken(5, w.Token(), twoChunks...))
		ready.status = ports.CopyFailed
		h.tick(2 * ms)
		h.expectNack(wire.ReasonReceiveWindow)
		require.True(t, w.IsQuiesced())
		require.Nil(t, h.flow(5))
	})
	t.Run("of a window that closes first is NACK 5", func(t *testing.T) {
		h := withPeer(t)
		w := h.open(destOf(2), &fakeEvent{})
		h.deliver(wantToken(5, w.Token(), twoChunks...))
		w.Close()
		require.True(t, w.IsQuiesced())
		h.tick(2 * ms)
		h.expectNack(wire.ReasonReceiveWindow)
	})
	t.Run("DRAIN and the lease end a flow that waits", func(t *testing.T) {
		h := withPeer(t)
		w := h.open(destOf(2), &fakeEvent{})
		h.deliver(wantToken(5, w.Token(), twoChunks...), drainOf(5))
		h.expect(wire.TypeDrainAck)
		h.deliver(wantToken(6, w.Token(), twoChunks...))
		h.tick(60 * time.Second)
		h.expectNack(wire.ReasonExpired)
		h.turn()
		require.Empty(t, h.tr.unready)
	})
}

func TestWindowAndRegistration(t *testing.T) {
	memory := []ports.Descriptor{{Addr: 0xA000_0000, Bytes: 8192}}
	window := func(g *Registry) (*Window, error) {
		return g.OpenWindow(one(0xA000_0000+4000, 100), ports.Place{}, nil, rand.New(rand.NewPCG(1, 1)))
	}
	t.Run("a window needs registered memory", func(t *testing.T) {
		var g Registry
		_, err := window(&g)
		require.ErrorContains(t, err, "not in memory registered here")
	})
	t.Run("memory that was ever registered for direct use takes no window", func(t *testing.T) {
		var g Registry
		require.NoError(t, g.AddDirect(memory))
		g.Add(memory)
		_, err := window(&g)
		require.ErrorIs(t, err, ErrRegisteredDirect)
		g.Remove(memory)
		_, err = window(&g)
		require.ErrorIs(t, err, ErrRegisteredDirect, "a peer may still hold a key to it")
	})
	t.Run("memory in a window is not registered for direct use before the window is quiesced", func(t *testing.T) {
		var g Registry
		g.Add(memory)
		w, err := window(&g)
		require.NoError(t, err)
		require.ErrorIs(t, g.AddDirect([]ports.Descriptor{{Addr: 0xA000_0000 + 4099, Bytes: 1}}), ErrOverlap)
		require.NoError(t, g.AddDirect([]ports.Descriptor{{Addr: 0xA000_0000 + 4100, Bytes: 1}}))
		w.Close()
		require.NoError(t, g.AddDirect([]ports.Descriptor{{Addr: 0xA000_0000 + 4099, Bytes: 1}}))
	})
	t.Run("deregistration closes the window", func(t *testing.T) {
		var g Registry
		g.Add(memory)
		w, err := window(&g)
		require.NoError(t, err)
		g.Remove(memory)
		require.True(t, w.IsQuiesced())
		require.Nil(t, g.window(w.Token()))
	})
	t.Run("a window with its shape forgotten stays one", func(t *testing.T) {
		var g Registry
		g.Add([]ports.Descriptor{{Addr: 0xA000_0000, Bytes: 1 << 20}})
		for i := range uint64(3 * maxSheets) {
			w, err := g.OpenWindow(one(0xA000_0000+i*100, uint32(i)+1), ports.Place{}, nil, rand.New(rand.NewPCG(i, 1)))
			require.NoError(t, err)
			w.Close()
		}
		require.Len(t, g.sheets, maxSheets)
		for i := range uint64(3 * maxSheets) {
			reason, _ := g.Admit(one(0xA000_0000+i*100+i, 1), ports.Place{}, 0)
			require.Equal(t, wire.ReasonReceiveWindow, reason, "%d", i)
		}
		reason, _ := g.Admit(one(0xA000_0000+150, 1), ports.Place{}, 0)
		require.Zero(t, reason)
	})
	for name, runs := range map[string]ports.Runs{
		"no runs":      {},
		"piece is 0":   one(0xA000_0000, 0),
		"table is 1, ": {Runs: []ports.Run{{Addr: 0xA000_0000, Piece: 1, Pieces: 2, Table: 1}}, Index: []uint32{1, 2}},
		"stride is -7": {Runs: []ports.Run{{Addr: 0xA000_0100, Stride: -7, Piece: 8, Pieces: 2, Table: ports.NoTable}}},
	} {
		t.Run("a window is refused when "+name, func(t *testing.T) {
			var g Registry
			g.Add(memory)
			_, err := g.OpenWindow(runs, ports.Place{}, nil, rand.New(rand.NewPCG(1, 1)))
			require.ErrorContains(t, err, name)
		})
	}
}

// Windows of one shape whose pages have other numbers may still be the same memory, and pages at the two ends of the address space must not make one huge bitmap.
func TestWindowShapes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	pair := func(addr uint64) ports.Runs {
		runs := one(addr, 4096)
		runs.Runs = append(runs.Runs, one(addr+4096, 4096).Runs...)
		return runs
	}
	var g Registry
	far := []uint64{0x5500_0000_0000, 0x7F00_0000_0000}
	for _, addr := range far {
		g.Add([]ports.Descriptor{{Addr: addr, Bytes: 1 << 20}})
	}
	_, err := g.OpenWindow(pair(far[0]), ports.Place{}, nil, random)
	require.NoError(t, err)
	_, err = g.OpenWindow(pair(far[0]+4096), ports.Place{}, nil, random)
	require.ErrorIs(t, err, ErrOverlap, "its first page is the other's second")
	_, err = g.OpenWindow(pair(far[0]+8192), ports.Place{}, nil, random)
	require.NoError(t, err)
	_, err = g.OpenWindow(one(far[1], 4096), ports.Place{}, nil, random)
	require.NoError(t, err)
	_, err = g.OpenWindow(one(far[0]+32768, 4096), ports.Place{}, nil, random)
	require.NoError(t, err)
	for _, s := range g.sheets {
		require.LessOrEqual(t, len(s.ever.words), 1)
	}
	require.False(t, interleave([]plane{{0, 3}, {8, 2}, {5, 2}}, 9), "across the end of a stride")
	require.True(t, interleave([]plane{{0, 3}, {8, 1}, {5, 2}}, 9))
	require.False(t, interleave([]plane{{3, 1}, {12, 1}}, 9))
}

// A short message can't make the checks of windows long.
func TestWindowChecksAreBounded(t *testing.T) {
	const base, n = 0x1_0000_0000, 1 << 18
	every := func(from uint64) ports.Runs {
		return ports.Runs{Runs: []ports.Run{{Addr: base + from, Stride: 2, Piece: 1, Pieces: n, Table: ports.NoTable}}}
	}
	var g Registry
	g.Add([]ports.Descriptor{{Addr: base, Bytes: 2 * n}})
	w, err := g.OpenWindow(every(1), ports.Place{}, nil, rand.New(rand.NewPCG(1, 1)))
	require.NoError(t, err)
	few := every(0)
	few.Runs[0].Pieces = 1000
	reason, _ := g.Admit(few, ports.Place{}, 0)
	require.Zero(t, reason)
	for token, runs := range map[uint64]ports.Runs{0: every(0), w.Token(): every(1)} {
		reason, _ = g.Admit(runs, ports.Place{}, token)
		require.Equal(t, wire.ReasonReceiveWindow, reason, "%d pieces are more than a planner makes", n)
	}
}

// zeroFirst gives 0, and then what it gave last once more, before fresh numbers.
type zeroFirst struct{ n, calls uint64 }

func (z *zeroFirst) Uint64() uint64 {
	if z.calls++; z.calls%2 == 1 {
		return z.n
	}
	z.n++
	return z.n
}

func TestTokensAreNeverZeroNorRepeated(t *testing.T) {
	var g Registry
	g.Add([]ports.Descriptor{{Addr: 4096, Bytes: 4096}})
	z, seen := &zeroFirst{}, map[uint64]bool{0: true}
	for i := range uint64(10) {
		w, err := g.OpenWindow(one(4096+i, 1), ports.Place{}, nil, z)
		require.NoError(t, err)
		require.False(t, seen[w.Token()])
		seen[w.Token()] = true
	}
}

// bytesOf are the bytes of the runs' pieces, one by one.
func bytesOf(runs ports.Runs) (list []uint64) {
	for _, r := range runs.Runs {
		for k := range r.Pieces {
			first, _ := position(r, multiple(r, runs.Index, k), 0)
			for b := range uint64(r.Piece) {
				list = append(list, first+b)
			}
		}
	}
	return list
}

// layouts draws runs as layouts make them: planes of pages, with and without a table, some merged, some odd.
func layouts() *rapid.Generator[ports.Runs] {
	return rapid.Custom(func(t *rapid.T) ports.Runs {
		var runs ports.Runs
		stride := rapid.SampledFrom([]int64{4, 6}).Draw(t, "stride")
		runs.Index = rapid.SliceOfN(rapid.Uint32Range(0, 9), 1, 5).Draw(t, "table")
		shared := rapid.Bool().Draw(t, "shared")
		piece := rapid.Uint32Range(1, 2).Draw(t, "piece") * uint32(stride) / 2
		// Interleaved, overlapping, adjoining for few pages, or far apart.
		apart := rapid.SampledFrom([]uint64{2, 3, 4, 12, 100}).Draw(t, "apart")
		base := 1000 + uint64(stride)*rapid.Uint64Range(0, 3).Draw(t, "base")
		for i := range rapid.IntRange(1, 3).Draw(t, "planes") {
			r := ports.Run{Addr: base + uint64(i)*apart, Stride: stride, Piece: piece, Pieces: uint32(len(runs.Index))}
			if !shared {
				r.Addr = 1000 + rapid.Uint64Range(0, 150).Draw(t, "addr")
				r.Piece = rapid.Uint32Range(1, uint32(stride)).Draw(t, "piece of its own")
				r.Pieces = rapid.Uint32Range(1, uint32(len(runs.Index))).Draw(t, "pieces")
				if rapid.Bool().Draw(t, "no table") {
					r.Table = ports.NoTable
				}
				if rapid.IntRange(0, 3).Draw(t, "back") == 0 {
					r.Addr, r.Stride = r.Addr+80, -r.Stride
				}
			}
			runs.Runs = append(runs.Runs, r)
		}
		return runs
	})
}

// Windows against sets of bytes.
func TestWindowsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g Registry
		g.Add([]ports.Descriptor{{Addr: 900, Bytes: 1000}})
		random := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed")))
		var live []*Window
		held := map[*Window]map[uint64]bool{}
		ever := map[uint64]bool{}
		heldBy := func(at uint64) bool {
			return slices.ContainsFunc(live, func(w *Window) bool { return held[w][at] })
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			runs := layouts().Draw(t, "runs")
			list := bytesOf(runs)
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				w, err := g.OpenWindow(runs, ports.Place{}, nil, random)
				if slices.ContainsFunc(list, heldBy) {
					require.ErrorIs(t, err, ErrOverlap)
					continue
				}
				require.NoError(t, err)
				live, held[w] = append(live, w), map[uint64]bool{}
				for _, at := range list {
					held[w][at], ever[at] = true, true
				}
			case 2:
				if len(live) > 0 {
					i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
					live[i].Close()
					require.True(t, live[i].IsQuiesced())
					require.Nil(t, g.window(live[i].Token()))
					live = slices.Delete(live, i, i+1)
				}
			}
			reason, _ := g.Admit(runs, ports.Place{}, 0)
			require.Equal(t, slices.ContainsFunc(list, func(at uint64) bool { return ever[at] }), reason == wire.ReasonReceiveWindow, "without a token")
			for _, w := range live {
				reason, text := g.Admit(runs, ports.Place{}, w.Token())
				out := slices.ContainsFunc(list, func(at uint64) bool { return !held[w][at] })
				require.Equal(t, out, reason == wire.ReasonReceiveWindow, "%s", text)
				one := ports.Descriptor{Addr: list[0], Bytes: 1}
				require.Equal(t, held[w][list[0]], w.hits(one))
			}
		}
	})
}

// kvWindow is 18432 pages: 36 layers of K and V, 256 pages each, scattered in a pool of 8192. within cuts each page as half the heads would.
func kvWindow(seed uint64, within uint32) ports.Runs {
	const page, pool, slabs = 4096, 8192, 72
	var runs ports.Runs
	runs.Index = make([]uint32, 256)
	for i, n := range rand.New(rand.NewPCG(seed, 1)).Perm(pool)[:256] {
		runs.Index[i] = uint32(n)
	}
	for i := range uint64(slabs) {
		runs.Runs = append(runs.Runs, ports.Run{Addr: 1<<32 + i*page*pool, Stride: page, Piece: page / within, Pieces: 256})
	}
	return runs
}

func kvRegistry() *Registry {
	var g Registry
	for i := range uint64(72) {
		g.Add([]ports.Descriptor{{Addr: 1<<32 + i*4096*8192, Bytes: 4096 * 8192}})
	}
	return &g
}

func BenchmarkWindowOpenAndClose(b *testing.B) {
	g, random, runs := kvRegistry(), rand.New(rand.NewPCG(1, 1)), kvWindow(1, 1)
	for b.Loop() {
		w, err := g.OpenWindow(runs, ports.Place{}, nil, random)
		if err != nil {
			b.Fatal(err)
		}
		w.Close()
	}
}

func BenchmarkWindowCheck(b *testing.B) {
	for name, within := range map[string]uint32{"whole pages": 1, "half pages": 2} {
		b.Run(name, func(b *testing.B) {
			g := kvRegistry()
			w, err := g.OpenWindow(kvWindow(1, 1), ports.Place{}, nil, rand.New(rand.NewPCG(1, 1)))
			if err != nil {
				b.Fatal(err)
			}
			runs := kvWindow(1, within)
			b.ReportAllocs()
			for b.Loop() {
				if reason, text := g.Admit(runs, ports.Place{}, w.Token()); reason != 0 {
					b.Fatal(text)
				}
			}
		})
	}
}

func BenchmarkWindowCheckOfOthers(b *testing.B) {
	g, random := kvRegistry(), rand.New(rand.NewPCG(1, 1))
	for i := range uint64(20) {
		runs := kvWindow(1, 1)
		for k := range runs.Index {
			runs.Index[k] = runs.Index[k]/32*32 + uint32(i) // pages of its own
		}
		runs.Index = slices.Compact(slices.Sorted(slices.Values(runs.Index)))
		for k := range runs.Runs {
			runs.Runs[k].Pieces = uint32(len(runs.Index))
		}
		if _, err := g.OpenWindow(runs, ports.Place{}, nil, random); err != nil {
			b.Fatal(err)
		}
	}
	runs := kvWindow(2, 1)
	for k := range runs.Index {
		runs.Index[k] |= 31
	}
	b.ReportAllocs()
	for b.Loop() {
		if reason, text := g.Admit(runs, ports.Place{}, 0); reason != 0 {
			b.Fatal(text)
		}
	}
}
