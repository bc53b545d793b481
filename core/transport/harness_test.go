package transport

import (
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/credit"
	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// The identities of the tests: the transport under test, its scripted peer, and a third one.
var (
	self  = must(ports.NewIdentity("self", 1))
	peerA = must(ports.NewIdentity("alpha", 0xA))
	peerB = must(ports.NewIdentity("beta", 0xB))
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

const (
	kilo      = 1024
	arenaBase = 0x10_0000
	arenaSize = 256 * kilo
	maxChunk  = 64 * kilo

	sourceBase = 0x4000_0000
	destBase   = 0x8000_0000 // registered here
	destBytes  = 1 << 20

	ms = time.Millisecond

	settleDelay = time.Second
)

// harness is one transport among fakes, in virtual time. Its peer is the test.
type harness struct {
	*testing.T
	tr      *Transport
	channel *fakeChannel
	engine  *fakeEngine
	gpu     *fakeCompute
	arena   *credit.Arena
	reg     *Registry
	opt     Options

	now   ports.Instant
	next  ports.Instant // what the last Poll asked for
	work  bool
	stuck bool // a copy failed: its memory stays in doubt for ever

	handles  []*Handle
	recycled int
}

// newHarness makes a transport that knows nobody. tweak may change its settings.
func newHarness(t *testing.T, tweaks ...func(*Settings)) *harness {
	h := &harness{
		T:       t,
		channel: &fakeChannel{t: t, self: self, endpoints: map[ports.Identity]string{}},
		engine:  &fakeEngine{connected: map[ports.Identity]string{}},
		gpu:     &fakeCompute{contexts: 4},
		arena:   must(credit.NewArena(arenaSize, 4*kilo, maxChunk)),
		reg:     &Registry{},
		now:     ports.Instant(time.Hour),
	}
	h.reg.Add([]ports.Descriptor{{Addr: destBase, Bytes: destBytes}})
	s := Settings{
		ReceiverLease: 60 * time.Second, SettleDelay: settleDelay, RetainLimit: arenaSize / 2, Window: 4, MaxChunk: maxChunk, MaxFlowsPerPeer: 16, MaxPeers: 8, EagerGather: true,
	}
	for _, tweak := range tweaks {
		tweak(&s)
	}
	h.opt = Options{
		Self: self, Settings: s, Engine: h.engine, Control: h.channel, Compute: h.gpu, Arena: ports.Arena{Base: arenaBase, Bytes: arenaSize},
		Credits: h.arena, Registry: h.reg, Rand: rand.New(rand.NewPCG(1, 2)), Log: slog.New(slog.DiscardHandler),
	}
	h.tr = New(h.opt)
	h.turn()
	t.Cleanup(h.windDown)
	return h
}

// withPeer makes a transport that has added alpha.
func withPeer(t *testing.T, tweaks ...func(*Settings)) *harness {
	h := newHarness(t, tweaks...)
	h.add(peerA)
	return h
}

func infoOf(id ports.Identity) PeerInfo {
	return PeerInfo{
		Identity: id, EngineMetadata: []byte("metadata"), Endpoint: []byte("mem:" + string(id)), RequestTimeout: 30 * time.Second, Gate: &Gate{},
	}
}

// add adds a peer and returns its gate.
func (h *harness) add(id ports.Identity) *Gate {
	h.Helper()
	info := infoOf(id)
	require.NoError(h, h.addInfo(info))
	return info.Gate
}

func (h *harness) addInfo(info PeerInfo) (result error) {
	require.NoError(h, h.tr.AddPeer(info, func(err error) { result = err }))
	h.turn()
	return result
}

func (h *harness) remove(id ports.Identity) {
	require.NoError(h, h.tr.RemovePeer(id, func() {}))
	h.turn()
}

func (h *harness) peer(id ports.Identity) *peer { return h.tr.peers[id] }

// Time.

// turn takes one turn now.
func (h *harness) turn() { h.work, h.next = h.tr.Poll(h.now) }

// tick lets time pass, with a turn when the transport asks for one, but not more often than every 1 ms, or 20 ms in a long time.
func (h *harness) tick(d time.Duration) {
	grain := ms
	if d > 5*time.Second {
		grain = 20 * ms
	}
	h.pass(d, grain)
}

// pass lets time pass, with a turn when the transport asks for one, but not more often than every grain.
func (h *harness) pass(d, grain time.Duration) {
	for end := h.now.Add(d); ; {
		h.now = min(max(h.next, h.now.Add(grain)), end)
		h.turn()
		if h.now == end {
			return
		}
	}
}

// until lets time pass until the transport has sent something, at most d, and returns how long it took.
func (h *harness) until(d time.Duration) time.Duration {
	h.Helper()
	start := h.now
	for end := h.now.Add(d); len(h.channel.out) == 0; h.turn() {
		require.Less(h, h.now, end, "nothing was sent in %v", d)
		h.now = min(max(h.next, h.now+1), end)
	}
	return h.now.Sub(start)
}

// jump lets time pass without a turn: a paused process.
func (h *harness) jump(d time.Duration) {
	h.now = h.now.Add(d)
	h.turn()
}

// Frames.

// queue puts messages of alpha into the channel without a turn.
func (h *harness) queue(messages ...wire.Message) { h.queueFrom(peerA, messages...) }

func (h *harness) queueFrom(from ports.Identity, messages ...wire.Message) {
	for _, m := range messages {
		require.NoError(h, m.Check(), "the test's own message")
		h.channel.in = append(h.channel.in, inFrame{bytes: m.Append(wire.AppendEnvelope(nil, from, h.opt.Self))})
	}
}

// deliver lets messages of alpha arrive, one turn each.
func (h *harness) deliver(messages ...wire.Message) { h.deliverFrom(peerA, messages...) }

func (h *harness) deliverFrom(from ports.Identity, messages ...wire.Message) {
	for _, m := range messages {
		h.queueFrom(from, m)
		h.turn()
	}
}

// sent takes what was sent since the last look.
func (h *harness) sent() []sentFrame {
	out := h.channel.out
	h.channel.out = nil
	return out
}

// silent asserts that nothing was sent since the last look.
func (h *harness) silent() {
	h.Helper()
	require.Empty(h, h.sent(), "frames sent")
}

// expect asserts that exactly these types were sent since the last look, in order.
func (h *harness) expect(types ...wire.Type) []sentFrame {
	h.Helper()
	out := h.sent()
	got := []wire.Type{}
	for _, f := range out {
		got = append(got, typeOf(f.msg))
	}
	require.Equal(h, append([]wire.Type{}, types...), got, "frames sent")
	return out
}

func typeOf(m wire.Message) wire.Type { return must(wire.DecodeHeader(m.Append(nil))).Type }

// only takes the one frame that was sent since the last look, which must be an M.
func only[M wire.Message](h *harness) M {
	h.Helper()
	out := h.sent()
	require.Len(h, out, 1, "frames sent")
	m, ok := out[0].msg.(M)
	require.True(h, ok, "sent %T %+v", out[0].msg, out[0].msg)
	return m
}

// expectNack takes the one frame that was sent, a NACK with that reason.
func (h *harness) expectNack(reason wire.Reason) *wire.Nack {
	h.Helper()
	n := only[*wire.Nack](h)
	require.Equal(h, reason, n.Reason, "reason of the NACK: %s", n.Text)
	return n
}

func (h *harness) count(c Counter) uint64 { return h.tr.counters.Get(c) }

// The transport as sender.

// submit hands a request to alpha over, planned to the end, and takes a turn.
func (h *harness) submit(sizes ...uint32) *Handle {
	h.Helper()
	return h.submission(Submission{Peer: peerA, Chunks: sizes})
}

func (h *harness) submission(s Submission) *Handle {
	h.Helper()
	hd := h.start(s)
	for i, n := range s.Chunks {
		hd.Planned(planned(i, n), 0)
	}
	h.turn()
	return hd
}

// start hands a request over whose chunks have not been planned yet.
func (h *harness) start(s Submission) *Handle {
	h.Helper()
	s.Recycle = func(*plan.Chunk) { h.recycled++ }
	hd, err := h.tr.Start(s)
	require.NoError(h, err)
	h.handles = append(h.handles, hd)
	return hd
}

// sourceOf is where the source of chunk i lies.
func sourceOf(i int) uint64 { return sourceBase + uint64(i)*maxChunk }

// planned is a plan of a chunk that is one contiguous piece.
func planned(i int, n uint32) *plan.Chunk {
	run := func(addr uint64) ports.Runs {
		return ports.Runs{Runs: []ports.Run{{Addr: addr, Piece: n, Pieces: 1, Table: ports.NoTable}}}
	}
	return &plan.Chunk{Bytes: n, Pieces: 1, Gather: run(sourceOf(i)), Scatter: run(destBase + uint64(i)*maxChunk)}
}

// grant is a GRANT of alpha's for chunks of a request with these sizes. Region numbers are chunk + 100.
func grant(request uint64, sizes []uint32, chunks ...uint32) *wire.Grant {
	g := &wire.Grant{Request: request, Chunks: uint32(len(sizes))}
	for _, c := range chunks {
		g.Credits = append(g.Credits, wire.Credit{Addr: 0xF000_0000 + uint64(c)*maxChunk, Length: sizes[c], Region: regionOf(c), Chunk: c})
	}
	return g
}

func regionOf(chunk uint32) uint64 { return uint64(chunk) + 100 }

func ack(request uint64, chunks, chunk uint32) *wire.Ack {
	return &wire.Ack{Request: request, Region: regionOf(chunk), Chunk: chunk, Chunks: chunks}
}

func queued(request uint64, chunks uint32) *wire.Ack {
	return &wire.Ack{Request: request, Chunk: wire.WholeRequest, Chunks: chunks}
}

func nackWhole(request uint64, reason wire.Reason) *wire.Nack {
	return &wire.Nack{Request: request, Chunk: wire.WholeRequest, Chunks: 1, Reason: reason, Text: "the test's"}
}

func drained(request uint64) *wire.DrainAck { return &wire.DrainAck{Request: request} }

// copied completes every copy that runs, and takes a turn.
func (h *harness) copied() {
	for _, c := range h.gpu.running() {
		c.status = ports.CopyDone
	}
	h.turn()
}

// pendingWrites are the transfers that have no final status.
func (h *harness) pendingWrites() (list []*fakeTransfer) {
	for _, x := range h.engine.transfers {
		if x.status == ports.Pending {
			list = append(list, x)
		}
	}
	return list
}

// written ends every pending transfer so, and takes a turn.
func (h *harness) written(s ports.TransferStatus) {
	for _, x := range h.pendingWrites() {
		x.end(s)
	}
	h.turn()
}

// request is what the transport tracks under a number towards alpha, or nil.
func (h *harness) request(id uint64) *request { return h.peer(peerA).requests[id] }

// failedBecause asserts the kind of a request's failure.
func (h *harness) failedBecause(hd *Handle, kind error) *Failure {
	h.Helper()
	require.Equal(h, Failed, hd.Status())
	var f *Failure
	require.ErrorAs(h, hd.Err(), &f)
	require.ErrorIs(h, f, kind)
	return f
}

// The transport as receiver.

// want is alpha's WANT for a request that is its oldest.
func want(request uint64, sizes ...uint32) *wire.Want { return wantOldest(request, request, sizes...) }

func wantOldest(request, oldest uint64, sizes ...uint32) *wire.Want {
	return &wire.Want{Request: request, Oldest: oldest, Endpoint: []byte("mem:" + string(peerA)), ChunkBytes: sizes}
}

func drainOf(request uint64) *wire.Drain {
	return &wire.Drain{Request: request, Endpoint: []byte("mem:" + string(peerA))}
}

// dataFor is the DATA of a granted chunk that is one contiguous piece.
func dataFor(request uint64, c wire.Credit, chunks uint32) *wire.Data {
	return &wire.Data{Request: request, Region: c.Region, Chunk: c.Chunk, Chunks: chunks, Runs: planned(int(c.Chunk), c.Length).Scatter}
}

// granted lets a WANT of alpha arrive and returns the credits it got.
func (h *harness) granted(request uint64, sizes ...uint32) []wire.Credit {
	h.Helper()
	h.deliver(want(request, sizes...))
	return only[*wire.Grant](h).Credits
}

func (h *harness) flow(id uint64) *flow { return h.peer(peerA).flows[id] }

// zero asserts that no arena block is held and nothing is in doubt.
func (h *harness) zero() {
	h.Helper()
	require.Equal(h, drain.Totals{}, h.tr.ledger.Totals())
	require.Zero(h, h.arena.LiveBlocks())
	require.Zero(h, h.arena.RetainedBytes())
	require.Zero(h, h.arena.UsedBytes(credit.ForGrant)+h.arena.UsedBytes(credit.ForStaging))
	require.Zero(h, h.tr.regions)
	require.Zero(h, h.tr.eagerUse)
	for _, p := range h.tr.order {
		require.Equal(h, drain.Totals{}, p.party.Totals())
		require.Zero(h, p.pending)
	}
}

// windDown ends whatever the test left open, with the evidence that peers and ports owe, and asserts that all memory came back. Doubt about copies alone stays.
func (h *harness) windDown() {
	if h.Failed() {
		return
	}
	h.channel.full, h.gpu.gatherErr, h.gpu.scatErr = false, nil, nil
	for range 8 {
		for _, x := range h.engine.transfers {
			if !x.status.Ended() {
				x.end(ports.Success)
			}
		}
		h.copied()
		for _, hd := range h.handles {
			hd.Cancel()
		}
		h.turn()
		for _, p := range append([]*peer(nil), h.tr.order...) {
			for r := range p.reqs.All {
				h.queueFrom(p.id, drained(r.id))
			}
			for f := range p.flowList.All {
				h.queueFrom(p.id, drainOf(f.id))
			}
		}
		h.turn()
	}
	if h.stuck {
		return
	}
	h.zero()
	require.Zero(h, h.tr.liveFlows)
	for _, p := range h.tr.order {
		require.Zero(h, p.tracked)
		require.Empty(h, p.flows)
	}
	for _, hd := range h.handles {
		require.NotEqual(h, InProgress, hd.Status())
		require.True(h, hd.IsSourceReleased(), "source released")
		require.True(h, hd.IsQuiesced(), "quiesced")
	}
}
