//go:build !invariants

package transport

import (
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/credit"
	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/ports"
)

// Recounting after every turn allocates: such builds leave this file out.

// The ports below do everything at once and allocate nothing, so that what is allocated is the transport's.

// quickChannel is one end of a channel whose frames arrive at once.
type quickChannel struct {
	fakeChannel
	to       *quickChannel
	frames   [][]byte // those from take on wait; the others' memory is used again
	take     int
	endpoint []byte
	key      string // of whoever sends
}

func (c *quickChannel) Endpoint() []byte { return c.endpoint }

func (c *quickChannel) Send(_ ports.Identity, frame []byte) ports.SendResult {
	q := c.to
	if n := len(q.frames); n < cap(q.frames) {
		q.frames = q.frames[:n+1]
		q.frames[n] = append(q.frames[n][:0], frame...)
	} else {
		q.frames = append(q.frames, append([]byte(nil), frame...))
	}
	return ports.Accepted
}

func (c *quickChannel) Recv(buf []byte) (frame []byte, key string, ok bool) {
	if c.take == len(c.frames) {
		c.take, c.frames = 0, c.frames[:0]
		return nil, "", false
	}
	c.take++
	return append(buf[:0], c.frames[c.take-1]...), c.key, true
}

// quickEngine's transfers are over when they are posted.
type quickEngine struct{ fakeEngine }

var quickTransfer = &fakeTransfer{status: ports.Success}

func (e *quickEngine) PostWrite(ports.Identity, []ports.Descriptor, []ports.Descriptor) ports.Transfer {
	return quickTransfer
}

// quickCompute's copies are over when they are launched.
type quickCompute struct{ fakeCompute }

var quickCopy = &fakeEvent{status: ports.CopyDone}

func (c *quickCompute) Gather(ports.Runs, uint64) (ports.Event, error)  { return quickCopy, nil }
func (c *quickCompute) Scatter(ports.Runs, uint64) (ports.Event, error) { return quickCopy, nil }

// quickPair are two transports among quick ports; the first sends to the second.
type quickPair struct {
	side [2]*Transport
	now  ports.Instant
}

func newQuickPair(tb testing.TB) *quickPair {
	p := &quickPair{now: ports.Instant(time.Hour)}
	var channels [2]*quickChannel
	for i := range p.side {
		channels[i] = &quickChannel{fakeChannel: fakeChannel{endpoints: map[ports.Identity]string{}}, endpoint: []byte("mem:" + string(pairNames[i])), key: pairNames[1-i].Name()}
		reg := &Registry{}
		reg.Add([]ports.Descriptor{{Addr: destBase, Bytes: 1 << 30}})
		p.side[i] = New(Options{
			Self:   pairNames[i],
			Engine: &quickEngine{fakeEngine{connected: map[ports.Identity]string{}}}, Control: channels[i], Compute: &quickCompute{fakeCompute{contexts: 4}},
			Arena: ports.Arena{Base: arenaBase, Bytes: arenaSize}, Credits: must(credit.NewArena(arenaSize, 4*kilo, maxChunk)), Registry: reg,
			Rand: rand.New(rand.NewPCG(1, 2)), Log: slog.New(slog.DiscardHandler),
			Settings: Settings{
				ReceiverLease: time.Minute, SettleDelay: time.Second, RetainLimit: arenaSize / 2, Window: 4, MaxChunk: maxChunk, MaxFlowsPerPeer: 16, MaxPeers: 8, EagerGather: true,
			},
		})
	}
	channels[0].to, channels[1].to = channels[1], channels[0]
	for i, t := range p.side {
		require.NoError(tb, t.AddPeer(infoOf(pairNames[1-i]), func(err error) { require.NoError(tb, err) }))
	}
	p.turn()
	return p
}

func (p *quickPair) turn() {
	p.now = p.now.Add(time.Microsecond)
	for _, t := range p.side {
		t.Poll(p.now)
	}
}

// quickRequest is a prepared request of so many chunks of 16 KiB in four pieces each.
func quickRequest(chunks int) Submission {
	s := Submission{Peer: pairNames[1], Recycle: func(*plan.Chunk) {}}
	for i := range uint64(chunks) {
		runs := func(base uint64) ports.Runs {
			return ports.Runs{Runs: []ports.Run{
				{Addr: base + i*maxChunk, Stride: 8 * kilo, Piece: 4 * kilo, Pieces: 3, Step: 4 * kilo, Table: ports.NoTable},
				{Offset: 12 * kilo, Addr: base + i*maxChunk + 40*kilo, Piece: 4 * kilo, Pieces: 1, Table: ports.NoTable},
			}}
		}
		s.Chunks = append(s.Chunks, 16*kilo)
		s.Plan = append(s.Plan, &plan.Chunk{Bytes: 16 * kilo, Pieces: 4, Gather: runs(sourceBase), Scatter: runs(destBase)})
		s.Bytes += 16 * kilo
	}
	return s
}

func (p *quickPair) move(tb testing.TB, s Submission) {
	h, err := p.side[0].Start(s)
	if err != nil {
		tb.Fatal(err)
	}
	for turns := 0; h.Status() == InProgress; turns++ {
		if turns > 10_000 {
			tb.Fatal("no end in sight")
		}
		p.turn()
	}
	if h.Err() != nil {
		tb.Fatal(h.Err())
	}
}

// TestNoAllocationPerChunk: a request may allocate, its chunks do not, on either side.
func TestNoAllocationPerChunk(t *testing.T) {
	p := newQuickPair(t)
	allocs := func(chunks int) float64 {
		s := quickRequest(chunks)
		for range 10 {
			p.move(t, s)
		}
		return testing.AllocsPerRun(200, func() { p.move(t, s) })
	}
	few, many := allocs(8), allocs(256)
	t.Logf("a request of 8 chunks allocates %v times, one of 256 chunks %v times", few, many)
	require.LessOrEqual(t, many, few+1)
}

// BenchmarkChunk moves one chunk through both sides, of requests of 256. Its allocations are the request's, spread over its chunks.
func BenchmarkChunk(b *testing.B) {
	p := newQuickPair(b)
	s := quickRequest(256)
	p.move(b, s)
	b.ReportAllocs()
	for n := 0; n < b.N; n += len(s.Chunks) {
		p.move(b, s)
	}
}
