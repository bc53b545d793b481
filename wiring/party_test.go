package wiring

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/core/session"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
)

// A party is an agent over real parts in a process of its own, this test program again. It does what its test says, by lines of JSON; its reactor turns, and its copies end, when the test lets them.

const partyEnv = "KVBOUNCE_TEST_PARTY"

// A party has a source and a destination of one chunk.
const (
	partyPage  = 4096
	partyPages = 2048
	partyBytes = partyPages * partyPage
)

type partyCall struct {
	Op      string
	Name    string // of the agent, a request, a window or a session
	Config  config.Config
	Desc    []byte
	Base    uint64 // of the peer's destination
	Peer    ports.Identity
	Direct  bool
	Token   uint64
	Seed    byte
	Value   byte
	Closed  bool // a gate
	Sends   []string
	Windows []string
}

type partyReply struct {
	Error    string
	Identity ports.Identity
	Desc     []byte
	Base     uint64
	Token    uint64
	Count    int
	Status   transport.Status
	Failure  string
	Quiesced bool
	Verdict  string
	Fence    *agent.FenceReport
	Landed   int // bytes of Value in the arena when the fence was settled
	Stats    agent.Stats
	InDoubt  bool
}

type party struct {
	node     *Node
	compute  *gatedCompute
	src, dst *HostBlock
	bases    map[ports.Identity]uint64
	handles  map[string]*agent.Handle
	windows  map[string]*transport.Window
	sessions map[string]*session.Request
	resume   chan struct{} // the reactor waits for it; nil: it turns
	fence    atomic.Pointer[agent.FenceReport]
	landed   atomic.Int64
}

// playParty is the process. It ends when its input does, without closing its agent.
func playParty(in io.Reader, out io.Writer) int {
	p := &party{bases: map[ports.Identity]uint64{}, handles: map[string]*agent.Handle{}, windows: map[string]*transport.Window{}, sessions: map[string]*session.Request{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	replies := json.NewEncoder(out)
	for lines.Scan() {
		var c partyCall
		err := json.Unmarshal(lines.Bytes(), &c)
		var r partyReply
		if err == nil {
			r, err = p.do(c)
		}
		if err != nil {
			r.Error = err.Error()
		}
		if err := replies.Encode(r); err != nil {
			return 1
		}
	}
	return 0
}

func (p *party) do(c partyCall) (r partyReply, err error) {
	switch c.Op {
	case "open":
		return p.open(c)
	case "add":
		return r, p.add(c)
	case "hold":
		p.hold()
	case "resume":
		close(p.resume)
	case "gather", "scatter":
		p.compute.gate(c.Op).Store(c.Closed)
	case "send":
		return r, p.send(c)
	case "cancel":
		p.handles[c.Name].Cancel()
	case "request":
		h := p.handles[c.Name]
		r = partyReply{Status: h.Status(), Quiesced: h.IsQuiesced()}
		if err := h.Err(); err != nil {
			r.Failure = err.Error()
		}
	case "window":
		p.windows[c.Name], err = p.node.OpenReceive(ports.Runs{Runs: []ports.Run{{Addr: p.dst.Descriptor().Addr, Piece: partyBytes, Pieces: 1, Table: ports.NoTable}}}, nil)
		if err == nil {
			r.Token = p.windows[c.Name].Token()
		}
	case "session":
		return r, p.session(c)
	case "abort":
		p.sessions[c.Name].CancelLocal()
	case "verdict":
		r.Verdict = p.sessions[c.Name].RequireQuiescence().String()
	case "stats":
		r.Stats = p.node.Stats()
	case "poison":
		copy(p.compute.arena, bytes.Repeat([]byte{c.Value}, len(p.compute.arena)))
	case "count":
		r.Count = bytes.Count(p.compute.arena, []byte{c.Value})
	case "check":
		return r, p.check(c.Seed)
	case "fence":
		return r, p.node.FencePeerAsync(c.Peer, func(f agent.FenceReport) {
			p.landed.Store(int64(bytes.Count(p.compute.arena, []byte{c.Value})))
			p.fence.Store(&f)
		})
	case "fenced":
		r.Fence, r.Landed = p.fence.Load(), int(p.landed.Load())
	case "close-gated":
		// The copies end while the agent closes.
		time.AfterFunc(100*time.Millisecond, func() { p.compute.gathers.Store(false); p.compute.scatter.Store(false) })
		err = p.node.Close()
	case "close":
		err = p.node.Close()
		r.InDoubt = err != nil && bytes.Contains([]byte(err.Error()), []byte(agent.ErrInDoubt.Error()))
	default:
		err = fmt.Errorf("there is no operation %q", c.Op)
	}
	return r, err
}

func (p *party) open(c partyCall) (r partyReply, err error) {
	if p.src, err = AllocateHost(partyBytes); err != nil {
		return r, err
	}
	if p.dst, err = AllocateHost(partyBytes); err != nil {
		return r, err
	}
	if err := p.start(Params{Name: c.Name, Config: c.Config, BounceRequired: true, FailStop: failStop, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}); err != nil {
		return r, err
	}
	use := agent.BounceOnly
	if c.Direct {
		use = agent.Direct
	}
	if _, err := p.node.Register([]ports.Descriptor{p.src.Descriptor(), p.dst.Descriptor()}, use); err != nil {
		return r, err
	}
	d, err := p.node.Describe()
	return partyReply{Identity: p.node.Identity(), Desc: d.Append(nil), Base: p.dst.Descriptor().Addr}, err
}

// start does what New does, with gates before the copies' ends.
func (p *party) start(params Params) error {
	if _, err := params.Config.Validate(); err != nil {
		return err
	}
	w, err := newWaker()
	if err != nil {
		return err
	}
	clock, random := NewClock(), NewRandom()
	id, err := ports.NewIdentity(params.Name, random.Uint64())
	if err != nil {
		return err
	}
	o := agent.Options{
		Identity: id, StartedUnixNS: uint64(time.Now().UnixNano()), Config: params.Config, Clock: clock, Rand: random, Wake: w.wake, Log: params.Log,
		BounceRequired: params.BounceRequired, FailStop: params.FailStop,
	}
	if err := open(params, w, &o); err != nil {
		return err
	}
	p.compute = &gatedCompute{GpuCompute: o.Compute}
	o.Compute = p.compute
	a, err := agent.New(o)
	if err != nil {
		return err
	}
	if fd := o.Control.WaitFD(); fd >= 0 {
		if err := w.watch(fd); err != nil {
			return err
		}
	}
	p.node = (&assembly{agent: a, control: o.Control, clock: clock, waker: w, cfg: params.Config, log: o.Log, spin: spinTurns}).start()
	return nil
}

func (p *party) add(c partyCall) error {
	d, err := agent.ParseAgentDesc(c.Desc)
	if err != nil {
		return err
	}
	report, err := p.node.AddPeer(d, false)
	if err == nil && !report.Bounce {
		err = fmt.Errorf("no bounce: %s", report.Reason)
	}
	p.bases[d.Identity] = c.Base
	return err
}

// hold stops the reactor in the middle of a turn: nothing drives the engine then.
func (p *party) hold() {
	reached, resume := make(chan struct{}), make(chan struct{})
	p.resume = resume
	_ = p.node.Inspect(func(transport.Inspection) {
		close(reached)
		<-resume
	})
	<-reached
}

// partyPattern is what a sender with this seed sends: page i is partyPage bytes from i on. No byte is one of those that mark memory.
func partyPattern(seed byte) []byte {
	pattern, rng := make([]byte, partyPages+partyPage), rand.New(rand.NewPCG(uint64(seed), 2))
	for i := range pattern {
		pattern[i] = byte(rng.UintN(0x50))
	}
	return pattern
}

func (p *party) send(c partyCall) error {
	pattern := partyPattern(c.Seed)
	if c.Value != 0 {
		pattern = bytes.Repeat([]byte{c.Value}, len(pattern))
	}
	for i := range partyPages {
		copy(p.src.Bytes()[i*partyPage:], pattern[i:i+partyPage])
	}
	r := agent.Request{Peer: c.Peer, Token: c.Token, Route: agent.ForceBounce}
	if c.Direct {
		r.Route = agent.ForceDirect
	}
	for _, at := range rand.New(rand.NewPCG(uint64(c.Seed), 1)).Perm(partyPages) {
		r.Local = append(r.Local, ports.Descriptor{Addr: p.src.Descriptor().Addr + uint64(at*partyPage), Bytes: partyPage})
		r.Remote = append(r.Remote, ports.Descriptor{Addr: p.bases[c.Peer] + uint64(at*partyPage), Bytes: partyPage})
	}
	h, err := p.node.Submit(r)
	p.handles[c.Name] = h
	return err
}

// check looks at every byte that a sender with this seed sent here.
func (p *party) check(seed byte) error {
	for pattern, i := partyPattern(seed), 0; i < partyPages; i++ {
		if !bytes.Equal(p.dst.Bytes()[i*partyPage:][:partyPage], pattern[i:i+partyPage]) {
			return fmt.Errorf("page %d has other bytes than those that were sent with seed %d", i, seed)
		}
	}
	return nil
}

func (p *party) session(c partyCall) error {
	q, err := p.node.Session(c.Name)
	if err != nil {
		return err
	}
	p.sessions[c.Name] = q
	for _, name := range c.Sends {
		q.Send(p.handles[name])
	}
	for _, name := range c.Windows {
		q.Receive(p.windows[name])
	}
	return nil
}

// gatedCompute copies as its device does, and keeps the end of copies back while their gate is closed. It knows the arena.
type gatedCompute struct {
	ports.GpuCompute
	arena            []byte
	gathers, scatter atomic.Bool // closed
}

func (g *gatedCompute) gate(kind string) *atomic.Bool {
	if kind == "gather" {
		return &g.gathers
	}
	return &g.scatter
}

func (g *gatedCompute) AllocArena(bytes uint64) (ports.Arena, error) {
	a, err := g.GpuCompute.AllocArena(bytes)
	if err == nil {
		g.arena = unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&a.Base))), a.Bytes)
	}
	return a, err
}

func (g *gatedCompute) Gather(runs ports.Runs, block uint64) (ports.Event, error) {
	return gated(&g.gathers)(g.GpuCompute.Gather(runs, block))
}

func (g *gatedCompute) Scatter(runs ports.Runs, block uint64) (ports.Event, error) {
	return gated(&g.scatter)(g.GpuCompute.Scatter(runs, block))
}

func gated(closed *atomic.Bool) func(ports.Event, error) (ports.Event, error) {
	return func(e ports.Event, err error) (ports.Event, error) {
		if err != nil {
			return nil, err
		}
		return gatedEvent{e, closed}, nil
	}
}

type gatedEvent struct {
	ports.Event
	closed *atomic.Bool
}

func (e gatedEvent) Status() ports.CopyStatus {
	if e.closed.Load() {
		return ports.CopyPending
	}
	return e.Event.Status()
}
