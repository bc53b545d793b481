package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/core/session"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

// call is one order to a worker: a process of the demo or of bench, or an agent within it.
//
// Measurements use burst. Its halves start and wait are for whoever does something to the processes in between.
type call struct {
	Op       string      `json:"op"` // open, add, poison, burst, start, wait, check, stats, close; to a receiver elsewhere done in place of close
	Name     string      `json:"name,omitempty"`
	Layout   string      `json:"layout,omitempty"` // open: a preset's name
	Lists    *lists      `json:"lists,omitempty"`  // open: the layout itself, instead of a name
	Seed     uint64      `json:"seed,omitempty"`
	Desc     []byte      `json:"desc,omitempty"`
	DstBase  uint64      `json:"dst_base,omitempty"`
	Place    ports.Place `json:"place,omitzero"` // open: where memory is allocated; add: where the peer's is
	Round    uint64      `json:"round,omitempty"`
	Path     string      `json:"path,omitempty"`
	Count    int         `json:"count,omitempty"`    // burst: transfers, one after the other
	Prepared bool        `json:"prepared,omitempty"` // burst: submit a plan that is made before the first of them
}

// reply answers a call.
type reply struct {
	Field         string       `json:"field,omitempty"` // what the error is about
	Error         string       `json:"error,omitempty"`
	Identity      string       `json:"identity,omitempty"`
	Desc          []byte       `json:"desc,omitempty"`
	DstBase       uint64       `json:"dst_base,omitempty"`
	Place         ports.Place  `json:"place,omitzero"` // of the memory
	Engine        string       `json:"engine,omitempty"`
	EngineVersion string       `json:"engine_version,omitempty"`
	Bounce        bool         `json:"bounce,omitempty"`
	Reason        string       `json:"reason,omitempty"`
	Transfers     []transfer   `json:"transfers,omitempty"` // of a burst
	Failure       string       `json:"failure,omitempty"`   // a request's, logical
	Quiesced      bool         `json:"quiesced,omitempty"`  // of a request
	Checked       uint64       `json:"checked,omitempty"`
	Stats         *agent.Stats `json:"stats,omitempty"`
}

// transfer is one successful transfer of a burst.
type transfer struct {
	Took   time.Duration    `json:"took"` // from before Submit to the end of Wait
	Stages transport.Stages `json:"stages,omitzero"`
}

// party is a worker as its master sees it.
type party interface {
	do(call) (reply, error)
	end() error
}

// worker holds an agent and the two blocks of memory that a layout moves between.
type worker struct {
	cfg    config.Config
	world  *wiring.World
	log    *slog.Logger
	node   *wiring.Node
	layout layout.Layout
	src    block
	dst    block
	check  *checker
	peer   ports.Identity
	local  []ports.Descriptor // the source, at its addresses
	remote []ports.Descriptor // the peer's destination
	plan   *agent.Prepared    // towards the peer, once a burst asked for it
	handle *agent.Handle

	// failStop is wiring.Params.FailStop, told too what had failed before; nil: wiring's own.
	failStop func(failed error, r session.Report)
	failed   error
}

// requestLimit bounds the wait for one transfer; the request's own timeout ends it long before.
const requestLimit = 5 * time.Minute

func (w *worker) do(c call) (reply, error) {
	switch {
	case c.Op == "open" && w.node != nil:
		return reply{}, errors.New("open: it is open")
	case c.Op != "open" && c.Op != "close" && w.node == nil:
		return reply{}, fmt.Errorf("%s: it is not open", c.Op)
	case (c.Op == "start" || c.Op == "burst") && w.peer == "":
		return reply{}, fmt.Errorf("%s: no peer was added", c.Op)
	case c.Op == "wait" && w.handle == nil:
		return reply{}, errors.New("wait: nothing was started")
	}
	switch c.Op {
	case "open":
		return w.open(c)
	case "add":
		return w.add(c)
	case "poison":
		poisonAll(w.dst.Bytes())
		return reply{}, w.dst.Push()
	case "burst":
		return w.burst(c)
	case "start":
		return w.start(c)
	case "wait":
		return w.wait()
	case "check":
		if err := w.dst.Pull(); err != nil {
			return reply{}, err
		}
		n, err := w.check.check(w.dst.Bytes(), newPattern(c.Seed, c.Round))
		return reply{Checked: n}, err
	case "stats":
		s := w.node.Stats()
		return reply{Stats: &s}, nil
	case "close":
		return reply{}, w.end()
	}
	return reply{}, fmt.Errorf("there is no operation %q", c.Op)
}

func (w *worker) open(c call) (_ reply, err error) {
	if c.Lists != nil {
		w.layout = c.Lists.layout()
	} else if w.layout, err = layout.Preset(c.Layout, c.Seed); err != nil {
		return reply{}, err
	}
	w.check = newChecker(w.layout.Src, w.layout.Dst, w.layout.DstBlock)
	defer func() {
		if err != nil {
			err = errors.Join(err, w.end())
		}
	}()
	p := wiring.Params{Name: c.Name, Config: w.cfg, Place: c.Place, World: w.world, BounceRequired: true, Log: w.log}
	if w.failStop != nil {
		p.FailStop = func(r session.Report) { w.failStop(w.failed, r) }
	}
	if w.node, err = wiring.New(p); err != nil {
		return reply{}, err
	}
	if w.src, err = allocateBlock(c.Place, w.layout.SrcBlock); err != nil {
		return reply{}, err
	}
	if w.dst, err = allocateBlock(c.Place, w.layout.DstBlock); err != nil {
		return reply{}, err
	}
	if _, err = w.node.Register([]ports.Descriptor{w.src.Descriptor(), w.dst.Descriptor()}, agent.Direct); err != nil {
		return reply{}, err
	}
	block := w.src.Descriptor()
	w.local = shifted(w.layout.Src, block.Addr, block.Place)
	d, err := w.node.Describe()
	if err != nil {
		return reply{}, err
	}
	return reply{Identity: string(d.Identity), Desc: d.Append(nil), DstBase: w.dst.Descriptor().Addr, Place: c.Place, Engine: d.Engine, EngineVersion: d.EngineVersion}, nil
}

func (w *worker) add(c call) (reply, error) {
	desc, err := agent.ParseAgentDesc(c.Desc)
	if err != nil {
		return reply{}, err
	}
	report, err := w.node.AddPeer(desc, false)
	if err != nil {
		return reply{}, err
	}
	w.peer, w.plan = desc.Identity, nil
	w.remote = shifted(w.layout.Dst, c.DstBase, c.Place)
	return reply{Bounce: report.Bounce, Reason: report.Reason}, nil
}

func shifted(list []ports.Descriptor, base uint64, place ports.Place) []ports.Descriptor {
	out := make([]ports.Descriptor, len(list))
	for i, d := range list {
		out[i] = ports.Descriptor{Addr: base + d.Addr, Bytes: d.Bytes, Place: place}
	}
	return out
}

// burst fills the source with the round's pattern and moves the layout Count times, each transfer submitted as soon as the one before it has succeeded. A failure ends it.
func (w *worker) burst(c call) (r reply, err error) {
	if err := w.fill(c); err != nil {
		return reply{}, err
	}
	request := w.request(c)
	if c.Prepared {
		if request, err = w.prepared(request); err != nil {
			return reply{}, err
		}
	}
	for range c.Count {
		began := time.Now()
		if w.handle, err = w.node.Submit(request); err != nil {
			return reply{}, err
		}
		end, err := w.wait()
		took := time.Since(began)
		if err != nil || end.Failure != "" {
			return end, err
		}
		r.Transfers = append(r.Transfers, transfer{took, w.handle.Stages()})
	}
	return r, nil
}

// start fills the source with the round's pattern and submits the layout.
func (w *worker) start(c call) (_ reply, err error) {
	if err := w.fill(c); err != nil {
		return reply{}, err
	}
	w.handle, err = w.node.Submit(w.request(c))
	return reply{}, err
}

func (w *worker) fill(c call) error {
	newPattern(c.Seed, c.Round).fill(w.src.Bytes())
	return w.src.Push()
}

// routes are the paths that a call may name.
var routes = map[string]agent.Route{pathBounce: agent.ForceBounce, pathDirect: agent.ForceDirect, pathRouted: agent.Auto}

func (w *worker) request(c call) agent.Request {
	return agent.Request{Peer: w.peer, Local: w.local, Remote: w.remote, Route: routes[c.Path]}
}

// prepared is the request with its plan made. The plan is the same for all that this worker sends to its peer.
func (w *worker) prepared(r agent.Request) (_ agent.Request, err error) {
	if w.plan == nil {
		if w.plan, err = w.node.Prepare(r.Peer, r.Local, r.Remote); err != nil {
			return r, err
		}
	}
	r.Local, r.Remote, r.Plan = nil, nil, w.plan
	return r, nil
}

// wait waits for the submitted request's logical end.
func (w *worker) wait() (reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestLimit)
	defer cancel()
	err := w.handle.Wait(ctx)
	r := reply{Quiesced: w.handle.IsQuiesced()}
	var f *transport.Failure
	if errors.As(err, &f) {
		r.Failure = f.Error()
		return r, nil
	}
	return r, err
}

// endFailed is end after a failure, which a fail-stop is to tell too.
func (w *worker) endFailed(failed error) {
	w.failed = failed
	_ = w.end()
}

// end closes the agent. Memory that may still be touched stays mapped.
func (w *worker) end() error {
	if w.node == nil {
		return nil
	}
	err := w.node.Close()
	w.node = nil
	if errors.Is(err, agent.ErrInDoubt) {
		return err
	}
	for _, b := range []block{w.src, w.dst} {
		if b != nil {
			err = errors.Join(err, b.Free())
		}
	}
	w.src, w.dst, w.peer, w.plan, w.handle = nil, nil, "", nil, nil
	return err
}

// worker is the hidden subcommand that is one process of demo and bench: it takes calls as JSON lines on standard input and answers on standard output.
func (a *app) worker() *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "One process of demo or bench; started by them",
		Hidden: true,
		Args:   noArgs,
		RunE: func(*cobra.Command, []string) error {
			signal.Ignore(os.Interrupt, syscall.SIGTERM)                        // where the master gets one too, it ends this process, and says why
			cfg, err := demoConfig(os.Environ(), slog.New(slog.DiscardHandler)) // warnings are the master's to print
			if err != nil {
				return err
			}
			w := &lifeline{worker: &worker{cfg: cfg, log: a.log}}
			return serve(w, w.watch(a.in), a.out, maxOwnLine)
		},
	}
}

// lifeline is a worker that ends with its master, in the middle of whatever it does: its peer is mostly gone too, and it would wait for it.
type lifeline struct {
	*worker
	closed atomic.Bool
}

func (l *lifeline) do(c call) (reply, error) {
	r, err := l.worker.do(c)
	if c.Op == "close" {
		l.closed.Store(true)
	}
	return r, err
}

// watch passes on what the master says. It ends the process where that ends without a call to close.
func (l *lifeline) watch(in io.Reader) io.Reader {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, in)
		if !l.closed.Load() {
			os.Exit(exitFailed)
		}
		_ = w.CloseWithError(err)
	}()
	return r
}

const (
	// maxLine bounds one call or answer between hosts; an agent's description is most of it.
	maxLine = 16 << 20
	// maxOwnLine bounds one between processes that this command started: lists of maxDescriptors fit.
	maxOwnLine = 64 << 20
)

// serve answers calls until the master closes the pipe or says something that is no call, and then closes the worker.
func serve(w party, in io.Reader, out io.Writer, maxLine int) (err error) {
	defer func() { err = errors.Join(err, w.end()) }()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	enc := json.NewEncoder(out)
	for lines.Scan() {
		var c call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return fmt.Errorf("a call is not JSON: %w", err)
		}
		r, err := w.do(c)
		if err != nil {
			r.Error, r.Field = err.Error(), fieldOf(err)
		}
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return lines.Err()
}
