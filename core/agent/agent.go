package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/core/credit"
	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/core/session"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// Errors of an Agent, for errors.Is. Those of requests are transport's.
var (
	// ErrInDoubt: the agent was closed while nothing proved that some transfer had ended. Its arena stays mapped and registered.
	ErrInDoubt = errors.New("closed with memory in doubt")
	// ErrStale: a peer's incarnation was superseded, or its description is older than the one that is known.
	ErrStale = transport.ErrStale
)

// Handle is a submitted request.
type Handle = transport.Handle

// Options are what an agent is made of. The agent owns the ports and closes them.
type Options struct {
	Identity      ports.Identity // a fresh incarnation (protocol.md, 2)
	StartedUnixNS uint64         // wall clock
	Config        config.Config  // validated
	Engine        ports.TransferEngine
	Control       ports.ControlChannel // nil without bounce
	Compute       ports.GpuCompute     // nil without bounce
	Clock         ports.Clock
	Rand          ports.Randomness
	Wake          func()                  // makes the reactor call Poll; may be nil when it polls without pause
	Attend        func(until func() bool) // see transport.Options; may be nil
	Log           *slog.Logger            // nil: discarded
	// BounceRequired makes New fail when bounce is enabled but can't start. Otherwise the agent stays on the direct path, with a warning.
	BounceRequired bool
	// OnNotify takes a peer's application notification. It is called in the reactor and must not block. nil: they are dropped.
	OnNotify func(from ports.Identity, message []byte)
	// FailStop is called once, in the reactor, when memory of the application is still in doubt at its retirement deadline or at the close deadline. It should end the process. nil: it is only logged.
	FailStop func(session.Report)
}

// Agent moves memory between this process and its peers.
type Agent struct {
	opt       Options
	cfg       config.Config
	log       *slog.Logger
	transport *transport.Transport
	registry  transport.Registry
	arena     *bounceArena // nil: bounce is off
	router    router
	planners  sync.Pool
	chunks    sync.Pool
	published published
	sessions  *session.Manager
	driver    frameDriver

	mu     sync.Mutex
	peers  map[ports.Identity]*peerView
	names  map[string]ports.Identity // the incarnation that AddPeer last accepted for a name
	direct int                       // registrations for direct use
	closed bool

	finished chan struct{} // closed at the end of Finish
	inDoubt  bool          // Finish found something open; valid once finished

	directNow atomic.Bool // direct > 0, for the reactor
	ownership atomic.Bool // an ownership profile was adopted: nothing goes directly
}

// bounceArena is the memory that blocks are made of.
type bounceArena struct {
	memory       ports.Arena
	registration ports.Registration
	credits      *credit.Arena
}

// New makes an agent. On an error all ports are closed.
func New(o Options) (*Agent, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a := &Agent{opt: o, cfg: o.Config, log: o.Log, peers: map[ports.Identity]*peerView{}, names: map[string]ports.Identity{}, finished: make(chan struct{})}
	a.planners.New, a.chunks.New = newPlanner, newChunk
	if o.Config.Enable {
		if err := a.startBounce(); err != nil {
			if o.BounceRequired {
				a.closePorts()
				return nil, fmt.Errorf("bounce can't start: %w", err)
			}
			// What is open and unread would cost its peers' frames, and the runner its sleep.
			a.log.Warn("bounce can't start; every request goes directly to the engine", "err", errors.Join(err, a.closeBouncePorts()))
		}
	}
	a.transport = a.newTransport()
	a.sessions = session.New(session.Options{Deadline: a.cfg.RetirementDeadline, FailStop: a.failStop})
	return a, nil
}

// startBounce maps the arena and makes it known to the engine, before any metadata is given out.
func (a *Agent) startBounce() (err error) {
	if a.opt.Control == nil || a.opt.Compute == nil {
		return errors.New("it needs a control channel and a copy device")
	}
	memory, err := a.opt.Compute.AllocArena(a.cfg.ArenaSize)
	if err != nil {
		return fmt.Errorf("arena of %d bytes: %w", a.cfg.ArenaSize, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.opt.Compute.FreeArena(memory))
		}
	}()
	credits, err := credit.NewArena(a.cfg.ArenaSize, a.cfg.ArenaGranularity, a.cfg.MaxChunkSize)
	if err != nil {
		return err
	}
	registration, err := a.opt.Engine.Register([]ports.Descriptor{{Addr: memory.Base, Bytes: memory.Bytes, Place: memory.Place}})
	if err != nil {
		return fmt.Errorf("arena of %d bytes: %w", a.cfg.ArenaSize, err)
	}
	a.arena = &bounceArena{memory: memory, registration: registration, credits: credits}
	return nil
}

func (a *Agent) newTransport() *transport.Transport {
	a.driver.notify = a.arena != nil && a.opt.Control.Kind() == ports.ControlNotify
	o := transport.Options{
		Self: a.opt.Identity, Engine: a.opt.Engine, Registry: &a.registry, Rand: a.opt.Rand, Clock: a.opt.Clock, Wake: a.opt.Wake, Attend: a.opt.Attend, Log: a.log,
		Settings: transport.Settings{
			ReceiverLease: a.cfg.ReceiverLease, SettleDelay: a.cfg.SettleDelay, RetainLimit: a.cfg.RetainLimit, Window: a.cfg.MaxInflightChunks, MaxFlowsPerPeer: a.cfg.MaxFlowsPerPeer,
			MaxPeers: a.cfg.MaxPeers, EagerGather: a.cfg.EagerGather, RequireToken: a.cfg.RequireReceiveToken,
			DirectRegistered: func() bool { return a.driver.notify || a.directNow.Load() || a.opt.OnNotify != nil },
		},
	}
	if a.arena != nil {
		o.Control, o.Compute, o.Arena, o.Credits = a.opt.Control, a.opt.Compute, a.arena.memory, a.arena.credits
		o.Settings.MaxChunk = a.cfg.MaxChunkSize
	}
	return transport.New(o)
}

// Identity is the agent's full identity.
func (a *Agent) Identity() ports.Identity { return a.opt.Identity }

// BounceEnabled reports whether the bounce path started.
func (a *Agent) BounceEnabled() bool { return a.arena != nil }

// BounceSubmits is how many requests took the bounce path.
func (a *Agent) BounceSubmits() uint64 { return a.transport.Counters().Get(transport.BounceSubmits) }

// Describe is what peers need to reach this agent and the memory that is registered now. Take it again after registering more memory for direct use.
func (a *Agent) Describe() (AgentDesc, error) {
	metadata, err := a.opt.Engine.Metadata()
	if err != nil {
		return AgentDesc{}, fmt.Errorf("engine metadata: %w", err)
	}
	info := a.opt.Engine.Info()
	d := AgentDesc{Identity: a.opt.Identity, StartedUnixNS: a.opt.StartedUnixNS, Engine: info.Name, EngineVersion: info.Version, Metadata: metadata}
	if a.arena != nil {
		h := a.handshake()
		if err := h.Check(); err != nil {
			return AgentDesc{}, err
		}
		d.Bounce = h.Append(nil)
	}
	return d, nil
}

func (a *Agent) handshake() *wire.Handshake {
	return &wire.Handshake{
		Wire: wire.Version, Control: a.opt.Control.Kind(), Ownership: true, TokenRequired: a.cfg.RequireReceiveToken,
		DeviceArena: a.arena.memory.Place.Kind == ports.Device, Incarnation: a.opt.Identity.Incarnation(), ArenaUsable: a.arena.credits.Usable(),
		MaxChunk: a.cfg.MaxChunkSize, RequestTimeout: roundUp(a.cfg.RequestTimeout, time.Millisecond), Endpoint: a.opt.Control.Endpoint(),
	}
}

func roundUp(d, unit time.Duration) time.Duration { return (d + unit - 1) / unit * unit }

// Now is the time of the last turn, less the time for which the process was paused. Reactor.
func (a *Agent) Now() ports.Instant { return a.transport.Now() }

// Poll takes one turn of the reactor. It reports whether anything moved, and when it must be called again at the latest. Reactor.
func (a *Agent) Poll(now ports.Instant) (work bool, next ports.Instant) {
	work, next = a.transport.Poll(now)
	work, next = a.drive(now, work, next)
	for {
		from, message, ok := a.opt.Engine.RecvNotify()
		if !ok {
			break
		}
		work = true
		if a.opt.OnNotify != nil {
			a.opt.OnNotify(from, message)
		}
	}
	awake := a.transport.Now()
	if at := a.sessions.Poll(awake); at != ports.Never {
		next = min(next, now.Add(at.Sub(awake)))
	}
	a.published.store(a.transport.Totals())
	return work, next
}

// BeginClose refuses new requests and fails those in progress. The reactor goes on calling Poll until Quiet, or until its deadline, and then calls Finish.
func (a *Agent) BeginClose() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.transport.BeginClose()
}

// Quiet reports whether nothing is open any more. Reactor.
func (a *Agent) Quiet() bool { return a.transport.Quiet() }

// Finish closes the ports and gives the arena back. With memory of the application in doubt it fail-stops. When something is still in doubt it returns ErrInDoubt, and the arena stays mapped and registered and the engine open: memory is never
// freed under a transfer that may run. Reactor, last call.
func (a *Agent) Finish() error {
	defer close(a.finished)
	a.transport.Stop()
	totals := a.transport.Totals()
	doubts := a.transport.CallerDoubts()
	if len(doubts) > 0 {
		a.sessions.FailStop(session.Report{Deadline: "close deadline", Now: a.opt.Clock.Now(), Doubts: doubts})
	}
	if totals != (drain.Totals{}) || len(doubts) > 0 {
		a.inDoubt = true
		var err error
		if a.opt.Control != nil {
			err = a.opt.Control.Close()
		}
		what := fmt.Sprintf("%d arena blocks of %d bytes", totals.Blocks, totals.Bytes)
		if len(doubts) > 0 {
			what += " and memory of the caller"
		}
		return errors.Join(fmt.Errorf("%w: %s may still be touched", ErrInDoubt, what), err)
	}
	var err error
	if a.arena != nil {
		err = a.opt.Engine.Deregister(a.arena.registration)
	}
	return errors.Join(err, a.closePorts())
}

// closePorts closes what New was given.
func (a *Agent) closePorts() error {
	var errs []error
	if a.opt.Control != nil {
		errs = append(errs, a.opt.Control.Close())
	}
	errs = append(errs, a.opt.Engine.Close())
	if a.arena != nil {
		errs = append(errs, a.opt.Compute.FreeArena(a.arena.memory))
	}
	if a.opt.Compute != nil {
		errs = append(errs, a.opt.Compute.Close())
	}
	return errors.Join(errs...)
}

// closeBouncePorts closes what only bounce needs.
func (a *Agent) closeBouncePorts() error {
	var errs []error
	if a.opt.Control != nil {
		errs = append(errs, a.opt.Control.Close())
	}
	if a.opt.Compute != nil {
		errs = append(errs, a.opt.Compute.Close())
	}
	a.opt.Control, a.opt.Compute = nil, nil
	return errors.Join(errs...)
}
