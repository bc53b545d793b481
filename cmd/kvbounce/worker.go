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
	"time"

	"github.com/spf13/cobra"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

// call is one order to a worker: a process of the demo, or an agent within it.
type call struct {
	Op      string      `json:"op"` // open, add, poison, start, wait, check, stats, close
	Name    string      `json:"name,omitempty"`
	Layout  string      `json:"layout,omitempty"`
	Seed    uint64      `json:"seed,omitempty"`
	Desc    []byte      `json:"desc,omitempty"`
	DstBase uint64      `json:"dst_base,omitempty"`
	Place   ports.Place `json:"place,omitzero"` // open: where memory is allocated; add: where the peer's is
	Round   uint64      `json:"round,omitempty"`
	Path    string      `json:"path,omitempty"`
}

// reply answers a call.
type reply struct {
	Field         string           `json:"field,omitempty"` // what the error is about
	Error         string           `json:"error,omitempty"`
	Identity      string           `json:"identity,omitempty"`
	Desc          []byte           `json:"desc,omitempty"`
	DstBase       uint64           `json:"dst_base,omitempty"`
	Place         ports.Place      `json:"place,omitzero"` // of the memory
	Engine        string           `json:"engine,omitempty"`
	EngineVersion string           `json:"engine_version,omitempty"`
	Bounce        bool             `json:"bounce,omitempty"`
	Reason        string           `json:"reason,omitempty"`
	Took          time.Duration    `json:"took,omitempty"`
	Stages        transport.Stages `json:"stages,omitzero"`
	Failure       string           `json:"failure,omitempty"`  // a request's, logical
	Quiesced      bool             `json:"quiesced,omitempty"` // of a request
	Checked       uint64           `json:"checked,omitempty"`
	Stats         *agent.Stats     `json:"stats,omitempty"`
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
	remote []ports.Descriptor
	handle *agent.Handle
	began  time.Time
}

// requestLimit bounds the wait for one transfer; the request's own timeout ends it long before.
const requestLimit = 5 * time.Minute

func (w *worker) do(c call) (reply, error) {
	switch {
	case c.Op == "open" && w.node != nil:
		return reply{}, errors.New("open: it is open")
	case c.Op != "open" && w.node == nil:
		return reply{}, fmt.Errorf("%s: it is not open", c.Op)
	case c.Op == "start" && w.peer == "":
		return reply{}, errors.New("start: no peer was added")
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
	if w.layout, err = layout.Preset(c.Layout, c.Seed); err != nil {
		return reply{}, err
	}
	w.check = newChecker(w.layout.Src, w.layout.Dst, w.layout.DstBlock)
	defer func() {
		if err != nil {
			err = errors.Join(err, w.end())
		}
	}()
	if w.node, err = wiring.New(wiring.Params{Name: c.Name, Config: w.cfg, Place: c.Place, World: w.world, BounceRequired: true, Log: w.log}); err != nil {
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
	w.peer = desc.Identity
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

// start fills the source with the round's pattern and submits the layout.
func (w *worker) start(c call) (reply, error) {
	route := agent.ForceDirect
	if c.Path == "bounce" {
		route = agent.ForceBounce
	}
	newPattern(c.Seed, c.Round).fill(w.src.Bytes())
	if err := w.src.Push(); err != nil {
		return reply{}, err
	}
	block := w.src.Descriptor()
	local := shifted(w.layout.Src, block.Addr, block.Place)
	w.began = time.Now()
	var err error
	w.handle, err = w.node.Submit(agent.Request{Peer: w.peer, Local: local, Remote: w.remote, Route: route})
	return reply{}, err
}

// wait waits for the submitted request's logical end.
func (w *worker) wait() (reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestLimit)
	defer cancel()
	err := w.handle.Wait(ctx)
	r := reply{Took: time.Since(w.began), Stages: w.handle.Stages(), Quiesced: w.handle.IsQuiesced()}
	var f *transport.Failure
	if errors.As(err, &f) {
		r.Failure = f.Error()
		return r, nil
	}
	return r, err
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
	w.src, w.dst, w.peer, w.handle = nil, nil, "", nil
	return err
}

// worker is the hidden subcommand that is one process of the demo: it takes calls as JSON lines on standard input and answers on standard output.
func (a *app) worker() *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "One process of a demo; started by it",
		Hidden: true,
		Args:   noArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := demoConfig(os.Environ(), slog.New(slog.DiscardHandler)) // warnings are the master's to print
			if err != nil {
				return err
			}
			return serve(&worker{cfg: cfg, log: a.log}, a.in, a.out)
		},
	}
}

// maxLine bounds one call or answer; an agent's description is most of it.
const maxLine = 16 << 20

// serve answers calls until the master closes the pipe or says something that is no call, and then closes the worker.
func serve(w party, in io.Reader, out io.Writer) (err error) {
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
