package session

import (
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/credit"
	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

const (
	second   = time.Second
	deadline = 300 * second
	settle   = 5 * second
	memory   = 0x8000_0000
)

func identity(name string, incarnation uint64) ports.Identity {
	id, err := ports.NewIdentity(name, incarnation)
	if err != nil {
		panic(err)
	}
	return id
}

var self, peer = identity("self", 1), identity("peer", 2)

// rig is one transport whose peer, engine and device are the test, and a manager, in virtual time.
type rig struct {
	*testing.T
	tr       *transport.Transport
	registry transport.Registry
	manager  *Manager
	now      ports.Instant
	reports  []Report

	in, out   [][]byte
	transfers []*status
	copies    []*status
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, now: ports.Instant(time.Hour)}
	credits, err := credit.NewArena(1<<20, 4096, 1<<16)
	require.NoError(t, err)
	r.registry.Add([]ports.Descriptor{{Addr: memory, Bytes: 1 << 20}})
	r.tr = transport.New(transport.Options{
		Self: self, Engine: engine{rig: r}, Control: control{rig: r}, Compute: compute{rig: r}, Arena: ports.Arena{Base: 4096, Bytes: 1 << 20}, Credits: credits,
		Registry: &r.registry, Rand: rand.New(rand.NewPCG(1, 2)), Log: slog.New(slog.DiscardHandler),
		Settings: transport.Settings{ReceiverLease: 60 * second, SettleDelay: settle, RetainLimit: 1 << 20, Window: 4, MaxChunk: 1 << 16, MaxFlowsPerPeer: 8, MaxPeers: 8, EagerGather: true},
	})
	r.manager = New(Options{Deadline: deadline, FailStop: func(p Report) { r.reports = append(r.reports, p) }})
	added := false
	require.NoError(t, r.tr.AddPeer(transport.PeerInfo{Identity: peer, Endpoint: []byte("x"), RequestTimeout: 30 * second, Gate: &transport.Gate{}}, func(err error) { added = err == nil }))
	r.turn()
	require.True(t, added)
	return r
}

func (r *rig) turn() {
	r.tr.Poll(r.now)
	r.manager.Poll(r.now)
}

// pass lets time pass with a turn every step.
func (r *rig) pass(d, step time.Duration) {
	for end := r.now.Add(d); r.now < end; {
		r.now = min(r.now.Add(step), end)
		r.turn()
	}
}

func (r *rig) request() *Request {
	q, err := r.manager.Request("42")
	require.NoError(r, err)
	return q
}

// direct starts a direct write.
func (r *rig) direct() (*transport.Handle, *status) {
	list := []ports.Descriptor{{Addr: memory, Bytes: 4096}}
	h, err := r.tr.StartDirect(transport.DirectSubmission{Peer: peer, Local: list, Remote: list, Bytes: 4096})
	require.NoError(r, err)
	r.turn()
	return h, r.transfers[len(r.transfers)-1]
}

// bounce starts a bounce request; its gather runs.
func (r *rig) bounce() (*transport.Handle, *status) {
	h, err := r.tr.Start(transport.Submission{Peer: peer, Chunks: []uint32{4096}, Bytes: 4096, Recycle: func(*plan.Chunk) {}})
	require.NoError(r, err)
	h.Planned(&plan.Chunk{Bytes: 4096, Pieces: 1, Gather: piece(memory), Scatter: piece(memory)}, 0)
	r.turn()
	return h, r.copies[len(r.copies)-1]
}

func piece(addr uint64) ports.Runs {
	return ports.Runs{Runs: []ports.Run{{Addr: addr, Piece: 4096, Pieces: 1, Table: ports.NoTable}}}
}

// window opens a window; a scatter of a writer in it runs for each of writers.
func (r *rig) window(at uint64, writers int) (*transport.Window, []*status) {
	w, err := r.registry.OpenWindow(piece(memory+at), ports.Place{}, nil, rand.New(rand.NewPCG(at, 3)))
	require.NoError(r, err)
	before := len(r.copies)
	for i := range writers {
		id := at + uint64(i) + 1
		r.deliver(&wire.Want{Request: id, Oldest: 1, Token: w.Token(), ChunkBytes: []uint32{4096}})
		frame, err := wire.DecodeFrame(r.out[len(r.out)-1])
		require.NoError(r, err)
		c := frame.Message.(*wire.Grant).Credits[0]
		r.deliver(&wire.Data{Request: id, Region: c.Region, Chunks: 1, Runs: piece(memory + at)})
	}
	require.Len(r, r.copies, before+writers)
	return w, r.copies[before:]
}

func (r *rig) deliver(m wire.Message) {
	r.in = append(r.in, m.Append(wire.AppendEnvelope(nil, peer, self)))
	r.turn()
}

// status is a transfer or a copy that the test ends.
type status struct {
	transfer ports.TransferStatus
	copied   ports.CopyStatus
}

type transfer struct{ *status }

func (x transfer) Status() ports.TransferStatus { return x.transfer }
func (x transfer) Err() error                   { return nil }
func (x transfer) Release()                     {}

type event struct{ *status }

func (x event) Status() ports.CopyStatus { return x.copied }
func (x event) Err() error               { return nil }

type engine struct {
	ports.TransferEngine
	rig *rig
}

func (engine) Progress() bool                       { return false }
func (engine) Connect(ports.Identity, []byte) error { return nil }
func (engine) Disconnect(ports.Identity)            {}
func (e engine) PostWrite(ports.Identity, []ports.Descriptor, []ports.Descriptor) ports.Transfer {
	x := &status{}
	e.rig.transfers = append(e.rig.transfers, x)
	return transfer{x}
}

type control struct {
	ports.ControlChannel
	rig *rig
}

func (control) Endpoint() []byte                     { return []byte("self") }
func (control) Connect(ports.Identity, []byte) error { return nil }
func (control) Disconnect(ports.Identity)            {}
func (c control) Send(_ ports.Identity, frame []byte) ports.SendResult {
	c.rig.out = append(c.rig.out, append([]byte(nil), frame...))
	return ports.Accepted
}

func (c control) Recv(buf []byte) ([]byte, string, bool) {
	if len(c.rig.in) == 0 {
		return nil, "", false
	}
	frame := c.rig.in[0]
	c.rig.in = c.rig.in[1:]
	return append(buf[:0], frame...), "", true
}

type compute struct {
	ports.GpuCompute
	rig *rig
}

func (compute) Contexts() int { return 8 }
func (c compute) Gather(ports.Runs, uint64) (ports.Event, error) {
	x := &status{}
	c.rig.copies = append(c.rig.copies, x)
	return event{x}, nil
}

func (c compute) Scatter(runs ports.Runs, block uint64) (ports.Event, error) {
	return c.Gather(runs, block)
}
