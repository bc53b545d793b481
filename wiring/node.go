package wiring

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kvbounce/kvbounce/adapters/host"
	"github.com/kvbounce/kvbounce/adapters/nixl"
	"github.com/kvbounce/kvbounce/adapters/sim"
	"github.com/kvbounce/kvbounce/adapters/zmq"
	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/ports"
)

// Params are what an agent is made from.
type Params struct {
	// Name is the agent's name: 1 to 200 bytes of UTF-8 without NUL and '#'. Each New draws a fresh incarnation of it.
	Name string
	// Config are the settings; config.FromEnv and config.Default make them. New validates a copy.
	Config config.Config
	// World, unless nil, makes the engine and the control channel in-process ones: agents reach only those of the same World, and NIXL is not needed.
	World *sim.World
	// BounceRequired makes New fail when bounce is enabled and can't start. Otherwise the agent then stays on the direct path, with a warning.
	BounceRequired bool
	// OnNotify takes peers' application notifications, in the reactor: it must not block.
	OnNotify func(from ports.Identity, message []byte)
	// Log takes what an operator should know. nil: slog.Default().
	Log *slog.Logger
}

// Node is a running agent: an Agent and the reactor that drives it.
type Node struct {
	*agent.Agent
	runner *runner
}

// Close fails what is in progress, waits for evidence that nothing of it can touch memory any more, at most for CLOSE_DEADLINE, and gives everything
// back. With something in doubt it returns agent.ErrInDoubt and leaves the arena mapped and registered. A second call returns what the first did.
func (n *Node) Close() error { return n.runner.close() }

// New makes an agent over host memory and starts its reactor. Without a World its engine is NIXL's.
func New(p Params) (*Node, error) {
	a, err := build(p)
	if err != nil {
		return nil, err
	}
	return a.start(), nil
}

// assembly is an agent whose reactor has not started.
type assembly struct {
	agent *agent.Agent
	clock ports.Clock
	waker *waker
	cfg   config.Config
}

func (a *assembly) start() *Node {
	return &Node{Agent: a.agent, runner: startRunner(a.agent, a.clock, a.waker, a.cfg.CloseDeadline)}
}

func build(p Params) (*assembly, error) {
	if p.Log == nil {
		p.Log = slog.Default()
	}
	warnings, err := p.Config.Validate()
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		p.Log.Warn(w)
	}
	w, err := newWaker()
	if err != nil {
		return nil, err
	}
	clock, random := NewClock(), NewRandom()
	id, err := ports.NewIdentity(p.Name, random.Uint64())
	if err != nil {
		w.close()
		return nil, err
	}
	o := agent.Options{
		Identity: id, StartedUnixNS: uint64(time.Now().UnixNano()), Config: p.Config, Clock: clock, Rand: random, Wake: w.wake,
		Log: p.Log.With("agent", p.Name), BounceRequired: p.BounceRequired, OnNotify: p.OnNotify,
	}
	if err := open(p, w, &o); err != nil {
		w.close()
		return nil, err
	}
	a, err := agent.New(o)
	if err != nil {
		w.close()
		return nil, err
	}
	if o.Control != nil {
		if fd := o.Control.WaitFD(); fd >= 0 {
			w.watch(fd)
		}
	}
	return &assembly{agent: a, clock: clock, waker: w, cfg: p.Config}, nil
}

// open makes the ports that the settings ask for. On an error none stays open.
func open(p Params, w *waker, o *agent.Options) (err error) {
	if o.Engine, err = openEngine(p, w, o.Identity); err != nil {
		return err
	}
	if !p.Config.Enable {
		return nil
	}
	// Without its channel or copy device an agent can still transfer directly, unless bounce is required. Never without the encryption that was asked for.
	if o.Control, err = openControl(p, w, o.Identity); err != nil {
		return giveUp(p, o, fmt.Errorf("control channel: %w", err))
	}
	compute, err := host.New(host.Config{Contexts: p.Config.CopyStreams, Wake: w.wake})
	if err != nil {
		return giveUp(p, o, fmt.Errorf("copy workers: %w", err))
	}
	o.Compute = compute
	return nil
}

// giveUp leaves an agent without bounce, or without anything when bounce is required.
func giveUp(p Params, o *agent.Options, err error) error {
	if o.Control != nil {
		err = errors.Join(err, o.Control.Close())
	}
	if p.BounceRequired || p.Config.CurveSecretKeyFile != "" {
		return errors.Join(err, o.Engine.Close())
	}
	p.Log.Warn("bounce can't start; every request goes directly to the engine", "err", err)
	o.Control, o.Compute, o.Config.Enable = nil, nil, false
	return nil
}

func openEngine(p Params, w *waker, id ports.Identity) (ports.TransferEngine, error) {
	if p.World != nil {
		return port[ports.TransferEngine](sim.NewEngine(p.World, id, w.wake))
	}
	return port[ports.TransferEngine](nixl.New(nixl.Config{Identity: id, Wake: w.wake, Logger: p.Log}))
}

// port turns an adapter and its constructor's error into a port: nil, not a nil adapter, after an error.
func port[P any, A any](adapter A, err error) (P, error) {
	var p P
	if err != nil {
		return p, err
	}
	return any(adapter).(P), nil
}

// openControl opens the control channel that the settings name.
func openControl(p Params, w *waker, id ports.Identity) (ports.ControlChannel, error) {
	if p.Config.CurveSecretKeyFile != "" {
		return nil, errors.New("CURVE_SECRET_KEY_FILE is set, but this version's channels do not speak CURVE: unset it and CURVE_AUTHORIZED_KEYS_DIR")
	}
	if p.World != nil {
		return port[ports.ControlChannel](sim.NewControl(p.World, sim.ControlConfig{Identity: id, Wake: w.wake, FrameLimit: int(p.Config.MaxFrameSize)}))
	}
	switch p.Config.Control {
	case config.ControlZMQ:
		return port[ports.ControlChannel](zmq.New(zmq.Config{Bind: p.Config.ControlBind, Advertise: p.Config.ControlAdvertise, MaxFrame: int(p.Config.MaxFrameSize), Logger: p.Log}))
	}
	return nil, fmt.Errorf("CONTROL is %q, which this build does not have: allowed is %q", p.Config.Control, config.ControlZMQ)
}
