package agent

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/core/session"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

func identity(name string, incarnation uint64) ports.Identity {
	id, err := ports.NewIdentity(name, incarnation)
	if err != nil {
		panic(err)
	}
	return id
}

// world is the ports of one agent. Nothing in it ends by itself.
type world struct {
	now    ports.Instant
	in     [][]byte
	posted int
	closed bool // the engine
	freed  bool // the arena
}

func (w *world) Now() ports.Instant { return w.now }

// idleEngine takes everything and completes nothing.
type idleEngine struct{ *world }

func (e idleEngine) Info() ports.EngineInfo { return ports.EngineInfo{Name: "idle", Real: true} }
func (e idleEngine) Register([]ports.Descriptor) (ports.Registration, error) {
	return registration{}, nil
}
func (e idleEngine) Deregister(ports.Registration) error                { return nil }
func (e idleEngine) Metadata() ([]byte, error)                          { return nil, nil }
func (e idleEngine) Connect(ports.Identity, []byte) error               { return nil }
func (e idleEngine) Disconnect(ports.Identity)                          {}
func (e idleEngine) Notify(ports.Identity, []byte) error                { return nil }
func (e idleEngine) RecvNotify() (id ports.Identity, b []byte, ok bool) { return "", nil, false }
func (e idleEngine) Progress() bool                                     { return false }
func (e idleEngine) Close() error                                       { e.closed = true; return nil }
func (e idleEngine) PostRead(_ ports.Identity, l, r []ports.Descriptor) ports.Transfer {
	return e.PostWrite("", l, r)
}

func (e idleEngine) PostWrite(ports.Identity, []ports.Descriptor, []ports.Descriptor) ports.Transfer {
	e.posted++
	return idle{}
}

type registration struct{}

func (registration) Ranges() []ports.Descriptor { return nil }

type idle struct{}

func (idle) Status() ports.TransferStatus { return ports.Pending }
func (idle) Err() error                   { return nil }
func (idle) Release()                     {}

type idleControl struct{ *world }

func (c idleControl) Kind() ports.ControlKind                      { return ports.ControlMemory }
func (c idleControl) Endpoint() []byte                             { return []byte("here") }
func (c idleControl) Connect(ports.Identity, []byte) error         { return nil }
func (c idleControl) Disconnect(ports.Identity)                    {}
func (c idleControl) Send(ports.Identity, []byte) ports.SendResult { return ports.Accepted }
func (c idleControl) WaitFD() int                                  { return -1 }
func (c idleControl) Close() error                                 { return nil }
func (c idleControl) Recv(buf []byte) (frame []byte, key string, ok bool) {
	if len(c.in) == 0 {
		return nil, "", false
	}
	frame, c.world.in = c.in[0], c.in[1:]
	return append(buf[:0], frame...), "", true
}

type idleCompute struct{ *world }

func (c idleCompute) Place() ports.Place { return ports.Place{} }
func (c idleCompute) Contexts() int      { return 4 }
func (c idleCompute) AllocArena(bytes uint64) (ports.Arena, error) {
	return ports.Arena{Base: 1 << 20, Bytes: bytes}, nil
}
func (c idleCompute) FreeArena(ports.Arena) error                     { c.freed = true; return nil }
func (c idleCompute) Gather(ports.Runs, uint64) (ports.Event, error)  { return nil, ports.ErrBusy }
func (c idleCompute) Scatter(ports.Runs, uint64) (ports.Event, error) { return nil, ports.ErrBusy }
func (c idleCompute) Close() error                                    { return nil }

// newIdle makes an agent that knows the peer decode#2, whose arena is like its own.
func newIdle(t *testing.T, stop func(session.Report)) (*Agent, *world) {
	w := &world{now: ports.Instant(time.Hour)}
	c := config.Default()
	c.Enable, c.ArenaSize, c.MaxChunkSize, c.ArenaGranularity, c.RetainLimit = true, 1<<20, 1<<18, 4096, 1<<17
	c.MinDescriptorCount = 0
	_, err := c.Validate()
	require.NoError(t, err)
	a, err := New(Options{
		Identity: identity("prefill", 1), Config: c, Engine: idleEngine{w}, Control: idleControl{w}, Compute: idleCompute{w}, Clock: w, Rand: rand.New(rand.NewPCG(1, 1)),
		BounceRequired: true, FailStop: stop,
	})
	require.NoError(t, err)
	d, err := a.Describe()
	require.NoError(t, err)
	var h wire.Handshake
	require.NoError(t, h.Decode(d.Bounce))
	h.Incarnation = 2
	d.Identity, d.Bounce = identity("decode", 2), h.Append(nil)
	added := false
	a.AddPeerAsync(d, false, func(r PeerReport, err error) { added = err == nil && r.Bounce })
	a.Poll(w.now)
	require.True(t, added)
	return a, w
}

// retain lets a stranger hold a granted region beyond its lease.
func (w *world) retain(t *testing.T, a *Agent) ports.Identity {
	stranger := identity("gone", 3)
	m := &wire.Want{Request: 1, Oldest: 1, Endpoint: []byte("there"), ChunkBytes: []uint32{1 << 18}}
	w.in = append(w.in, m.Append(wire.AppendEnvelope(nil, stranger, a.Identity())))
	for range 700 {
		w.now = w.now.Add(100 * time.Millisecond)
		a.Poll(w.now)
	}
	return stranger
}

func oneDescriptor() []ports.Descriptor { return []ports.Descriptor{{Addr: 1 << 30, Bytes: 64}} }

func TestRetainLimitRoutes(t *testing.T) {
	a, w := newIdle(t, nil)
	submit := func(r Request) (*Handle, error) {
		r.Peer, r.Local, r.Remote = identity("decode", 2), oneDescriptor(), oneDescriptor()
		return a.Submit(r)
	}
	h, err := submit(Request{})
	require.NoError(t, err)
	require.Equal(t, transport.PathBounce, h.Path())
	require.Empty(t, a.Stats().Unproved)

	gone := w.retain(t, a)
	s := a.Stats()
	require.Len(t, s.Unproved, 1)
	require.Equal(t, gone, s.Unproved[0].Peer)
	require.EqualValues(t, 1<<18, s.Unproved[0].Bytes)
	require.Contains(t, s.BounceRefusal, "of gone#0000000000000003: fence it")
	h, err = submit(Request{})
	require.NoError(t, err)
	require.Equal(t, transport.PathDirect, h.Path(), "where that is allowed")
	require.EqualValues(t, 1, a.Stats().Routes["direct_retained"])
	for _, r := range []Request{{Route: ForceBounce}, {Token: 7}} {
		_, err = submit(r)
		require.ErrorIs(t, err, ErrNoBounce)
		require.ErrorIs(t, err, transport.ErrRetained)
		require.ErrorContains(t, err, "gone#0000000000000003: fence it")
	}
}

func TestOwnershipNeedsCapablePeers(t *testing.T) {
	a, w := newIdle(t, nil)
	require.NoError(t, a.AdoptProfile(session.Profile{
		OwnershipPeer: true, TransferTimeout: time.Second, GenerationFirst: true, Asynchronous: true, PipelineParallel: 1, ContextParallel: 1,
	}))
	d, err := a.Describe()
	require.NoError(t, err)
	var h wire.Handshake
	require.NoError(t, h.Decode(d.Bounce))
	h.Incarnation, h.Ownership = 4, false
	d.Identity, d.Bounce = identity("old", 4), h.Append(nil)
	a.AddPeerAsync(d, false, func(_ PeerReport, err error) { require.NoError(t, err) })
	a.Poll(w.now)
	_, err = a.Submit(Request{Peer: identity("decode", 2), Local: oneDescriptor(), Remote: oneDescriptor()})
	require.NoError(t, err)
	_, err = a.Submit(Request{Peer: d.Identity, Local: oneDescriptor(), Remote: oneDescriptor()})
	require.ErrorContains(t, err, "old#0000000000000004 is not ownership-capable")
}

func TestClose(t *testing.T) {
	finish := func(a *Agent, w *world) error {
		a.BeginClose()
		a.Poll(w.now)
		require.False(t, a.Quiet())
		return a.Finish()
	}
	t.Run("with blocks of the arena in doubt alone is ErrInDoubt", func(t *testing.T) {
		a, w := newIdle(t, func(session.Report) { t.Error("fail-stop") })
		w.retain(t, a)
		require.ErrorIs(t, finish(a, w), ErrInDoubt)
		require.False(t, w.closed)
		require.False(t, w.freed, "the arena stays mapped and registered")
	})
	t.Run("with memory of the application in doubt fail-stops", func(t *testing.T) {
		var reports []session.Report
		a, w := newIdle(t, func(r session.Report) { reports = append(reports, r) })
		_, err := a.Submit(Request{Peer: identity("decode", 2), Local: oneDescriptor(), Remote: oneDescriptor(), Route: ForceDirect})
		require.NoError(t, err)
		a.Poll(w.now)
		require.ErrorIs(t, finish(a, w), ErrInDoubt)
		require.Len(t, reports, 1)
		require.Equal(t, "close deadline", reports[0].Deadline)
		require.Equal(t, []transport.Doubt{{Peer: identity("decode", 2), Part: "direct transfer", Bytes: 64, Since: w.now}}, reports[0].Doubts)
		require.False(t, w.freed)
		_, err = a.Session("late")
		require.ErrorIs(t, err, session.ErrFailStopped)
	})
}

func TestSessionsAreDrivenByPoll(t *testing.T) {
	var reports []session.Report
	a, w := newIdle(t, func(r session.Report) { reports = append(reports, r) })
	h, err := a.Submit(Request{Peer: identity("decode", 2), Local: oneDescriptor(), Remote: oneDescriptor(), Route: ForceDirect})
	require.NoError(t, err)
	q, err := a.Session("7")
	require.NoError(t, err)
	q.Send(h)
	q.CancelLocal()
	_, next := a.Poll(w.now)
	require.LessOrEqual(t, next, w.now.Add(100*time.Millisecond))
	for range 301 {
		w.now = w.now.Add(time.Second)
		a.Poll(w.now)
	}
	require.Len(t, reports, 1)
	require.Equal(t, "7", reports[0].Request)
	require.Equal(t, session.Fatal, q.RequireQuiescence())
}
