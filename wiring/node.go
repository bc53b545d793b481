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
	"github.com/kvbounce/kvbounce/core/session"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring/debug"
)

// What an agent could not be made for, for errors.Is.
var (
	ErrEngine  = errors.New("transfer engine")
	ErrControl = errors.New("control channel")
)

// Params are what an agent is made from.
type Params struct {
	// Name is the agent's name: 1 to 200 bytes of UTF-8 without NUL and '#'. Each New draws a fresh incarnation of it.
	Name string
	// Config are the settings; ReadSettings and config.Default make them. New validates a copy.
	Config config.Config
	// Place is where the application's memory is, and so the arena: host memory, or the memory of a GPU in a build with the tag cuda. Memory elsewhere goes directly.
	Place ports.Place
	// World, unless nil, makes the engine and the control channel in-process ones: agents reach only those of the same World, and NIXL is not needed.
	World *sim.World
	// BounceRequired makes New fail when bounce is enabled and can't start. Otherwise the agent then stays on the direct path, with a warning.
	BounceRequired bool
	// OnNotify takes peers' application notifications, in the reactor: it must not block.
	OnNotify func(from ports.Identity, message []byte)
	// FailStop is called once, in the reactor, when memory of the application is still in doubt at RETIREMENT_DEADLINE, or at CLOSE_DEADLINE of Close. nil: the report goes to standard error and the process
	// ends with ExitFailStop.
	FailStop func(session.Report)
	// Log takes what an operator should know. nil: slog.Default().
	Log *slog.Logger

	awake bool // waiters keep a processor busy, as over a GPU's memory; for tests
}

// Node is a running agent: an Agent and the reactor that drives it.
type Node struct {
	*agent.Agent
	runner *runner
	debug  *debug.Server // nil: off
}

// Close fails what is in progress, waits for evidence that nothing of it can touch memory any more, at most for CLOSE_DEADLINE, and gives everything
// back. With only blocks of the arena in doubt it returns agent.ErrInDoubt and leaves the arena mapped and registered; with memory of the application in doubt it fail-stops. A second call returns what the first did.
// The debug endpoint shows what is waited for until then.
func (n *Node) Close() error { return errors.Join(n.runner.close(), n.debug.Close()) }

// DebugAddress is where the debug endpoint listens, as `kvbounce doctor --attach` takes it; "" when it is off (the setting DEBUG_LISTEN) or could not start.
func (n *Node) DebugAddress() string {
	if n.debug == nil {
		return ""
	}
	return n.debug.Address()
}

// New makes an agent and starts its reactor. Without a World its engine is NIXL's.
func New(p Params) (*Node, error) {
	a, err := build(p)
	if err != nil {
		return nil, err
	}
	return a.start(), nil
}

// assembly is an agent whose reactor has not started.
type assembly struct {
	agent   *agent.Agent
	control ports.ControlChannel // the agent's, nil without bounce
	clock   ports.Clock
	waker   *waker
	cfg     config.Config
	log     *slog.Logger
	spin    int // see runner
}

// start starts the reactor, and the debug endpoint if there is to be one. One that can't start costs the sight of the agent, not the agent.
func (a *assembly) start() *Node {
	n := &Node{Agent: a.agent, runner: startRunner(a)}
	if a.cfg.DebugListen == "" {
		return n
	}
	var err error
	if n.debug, err = debug.Serve(a.cfg.DebugListen, watched{a.agent, a.control}, a.clock, a.log); err != nil {
		a.log.Warn("the debug endpoint can't start", "err", err)
	}
	return n
}

// watched is an agent as the debug endpoint sees it.
type watched struct {
	*agent.Agent
	control ports.ControlChannel
}

// ChannelCounters implements debug.Source. A World's channel counts nothing.
func (w watched) ChannelCounters() map[string]uint64 {
	if c, ok := w.control.(interface{ Counters() map[string]uint64 }); ok {
		return c.Counters()
	}
	return map[string]uint64{}
}

func build(p Params) (*assembly, error) {
	if p.World != nil && p.Place.Kind != ports.Host {
		return nil, fmt.Errorf("Params.Place is %s, allowed with a World is %s", p.Place, ports.Place{})
	}
	if p.Log == nil {
		p.Log = slog.Default()
	}
	if p.FailStop == nil {
		p.FailStop = failStop
	}
	warnings, err := p.Config.Validate()
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		p.Log.Warn(w)
	}
	p.Log = limitLog(p.Log, p.Config.LogRate)
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
		Log: p.Log.With("agent", p.Name), BounceRequired: p.BounceRequired, OnNotify: p.OnNotify, FailStop: p.FailStop,
	}
	if p.awake || attends(p.Place) {
		o.Attend = attendant()
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
	if a.BounceEnabled() {
		if fd := o.Control.WaitFD(); fd >= 0 {
			if err := w.watch(fd); err != nil {
				err = errors.Join(err, a.Finish())
				w.close()
				return nil, err
			}
		}
	}
	spin := spinTurns
	if p.Place.Kind == ports.Device {
		spin = deviceSpinTurns
	}
	return &assembly{agent: a, control: o.Control, clock: clock, waker: w, cfg: p.Config, log: o.Log, spin: spin}, nil
}

// open makes the ports that the settings ask for. On an error none stays open.
func open(p Params, w *waker, o *agent.Options) (err error) {
	if o.Engine, err = openEngine(p, w, o.Identity); err != nil {
		return fmt.Errorf("%w: %w", ErrEngine, err)
	}
	if !p.Config.Enable {
		return nil
	}
	// Without its channel or copy device an agent can still transfer directly, unless bounce is required. Never without the encryption that was asked for.
	if err := openControl(p, w, o); err != nil {
		return giveUp(p, o, fmt.Errorf("%w: %w", ErrControl, err))
	}
	if o.Compute, err = openCompute(p, w); err != nil {
		return giveUp(p, o, fmt.Errorf("copy device: %w", err))
	}
	return nil
}

// openCompute opens what copies in the application's memory.
func openCompute(p Params, w *waker) (ports.GpuCompute, error) {
	if p.Place.Kind == ports.Device {
		return openCUDA(p)
	}
	return port[ports.GpuCompute](host.New(host.Config{Contexts: p.Config.CopyStreams, Wake: w.wake}))
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
	cfg := nixl.Config{Identity: id, Memory: p.Place.Kind, Wake: w.wake, Logger: p.Log}
	if p.Place.Kind == ports.Device {
		return openDeviceEngine(cfg, p.Place.Device)
	}
	return port[ports.TransferEngine](nixl.New(cfg))
}

// port turns an adapter and its constructor's error into a port: nil, not a nil adapter, after an error.
func port[P any, A any](adapter A, err error) (P, error) {
	var p P
	if err != nil {
		return p, err
	}
	return any(adapter).(P), nil
}

// openControl opens the control channel that the settings name. Agents of a World have the World's own unless the settings say notifications.
func openControl(p Params, w *waker, o *agent.Options) (err error) {
	switch {
	case p.Config.Control == config.ControlNIXL:
		return openNotify(p, o)
	case p.World != nil:
		o.Control, err = port[ports.ControlChannel](sim.NewControl(p.World, sim.ControlConfig{Identity: o.Identity, Wake: w.wake, FrameLimit: int(p.Config.MaxFrameSize)}))
	default:
		o.Control, err = port[ports.ControlChannel](zmq.New(zmq.Config{
			Bind: p.Config.ControlBind, Advertise: p.Config.ControlAdvertise, MaxFrame: int(p.Config.MaxFrameSize),
			CurveSecretKeyFile: p.Config.CurveSecretKeyFile, CurveAuthorizedKeysDir: p.Config.CurveAuthorizedKeysDir, Logger: p.Log,
		}))
	}
	return err
}
