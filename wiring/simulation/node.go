package simulation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/kvbounce/kvbounce/adapters/sim"
	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
)

// node is an agent's name, endpoint and machine, through all its lives.
type node struct {
	w     *World
	setup agentSetup
	index int // among the nodes
	lives int
	now   *life            // nil: it is dead
	past  []*life          // that ended
	known map[string]*life // the life of each peer that its application last heard of
}

// life is one process of a node: an incarnation of its agent on its own ports and memory.
type life struct {
	node    *node
	number  int
	id      ports.Identity
	desc    agent.AgentDesc
	agent   *agent.Agent // nil for a hostile peer
	engine  *sim.Engine
	control *sim.Control
	compute *sim.Compute
	hostile *hostile
	alarm   *sim.Alarm
	books   *books // the oracle's

	src, dst *pool
	windowed *pool // for receive windows; nil: there are none
	windows  []*window
	sessions []*engineRequest

	skew        time.Duration // of its clock
	paused      time.Duration // what the agent took for pauses
	pausedTil   ports.Instant
	dead        bool
	stopping    bool          // its agent fail-stopped
	closeBy     ports.Instant // Never: it is not closing
	turns       int
	framesAfter int        // frames sent since faults stopped
	open        []*request // not yet quiesced
	fences      []*fencing
	wasRefused  bool // a bounce request, because of what is retained
}

func (l *life) label() string { return fmt.Sprintf("%s.%d", l.node.setup.name, l.number) }

// turnCost is the least time from the beginning of one turn to that of the next.
const turnCost = time.Microsecond

// start begins the node's next life.
func (n *node) start() {
	if n.now != nil {
		return
	}
	w := n.w
	n.lives++
	l := &life{node: n, number: n.lives, closeBy: ports.Never}
	incarnation := newDraw(w.setup.seed, fmt.Sprintf("incarnation %s %d", n.setup.name, n.lives)).r.Uint64()
	id, err := ports.NewIdentity(n.setup.name, incarnation)
	must(err)
	l.id = id
	w.byID[id] = l
	l.engine, err = sim.NewEngine(w.sim, id, l.wake)
	must(err)
	l.control, err = sim.NewControl(w.sim, sim.ControlConfig{Identity: id, Endpoint: "memory:" + n.setup.name, Wake: l.wake})
	must(err)
	n.now = l
	if n.setup.hostile {
		l.beHostile()
		return
	}
	l.alarm = w.sim.NewAlarm("turn of "+l.label(), l.turn)
	l.compute, err = sim.NewCompute(w.sim, sim.ComputeConfig{Agent: id, Contexts: n.setup.copies, Wake: l.wake})
	must(err)
	l.agent, err = agent.New(agent.Options{
		Identity: id, StartedUnixNS: uint64(w.sim.Now()) + uint64(n.lives), Config: n.config(), Engine: l.engine, Control: l.control, Compute: &arenaWatch{Compute: l.compute, life: l},
		Clock: w.sim, Rand: w.sim.Randomness(string(id)), Wake: l.wake, Log: w.logger, BounceRequired: true, OnNotify: l.notified, FailStop: l.failStop,
	})
	must(err)
	if w.mutate != nil {
		w.mutate(l.agent)
	}
	pages := w.setup.pages[n.setup.name] + sparePages
	l.src, l.dst = newPool(w, l, pages), newPool(w, l, pages)
	l.src.register(agent.Direct)
	l.dst.register(agent.Direct)
	play := w.oracle.playground(l)
	_, err = l.agent.Register([]ports.Descriptor{play}, agent.BounceOnly)
	must(err)
	if w.setup.windowPages > 0 && n.setup.receives {
		l.windowed = newPool(w, l, w.setup.windowPages+w.setup.windowsStay+sparePages)
		l.windowed.register(agent.BounceOnly)
	}
	l.desc, err = l.agent.Describe()
	must(err)
	l.alarm.Set(w.sim.Now())
}

// must stops on an error that only a broken simulator can cause.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("simulation: %v", err))
	}
}

// arenaWatch tells the oracle where the arena is.
type arenaWatch struct {
	*sim.Compute
	life *life
}

// AllocArena notes the arena.
func (a *arenaWatch) AllocArena(bytes uint64) (ports.Arena, error) {
	arena, err := a.Compute.AllocArena(bytes)
	if err == nil {
		a.life.node.w.oracle.arena(a.life, arena)
	}
	return arena, err
}

func (n *node) config() config.Config {
	c := config.Default()
	s := n.setup
	c.Enable, c.ArenaSize, c.ArenaGranularity, c.MaxChunkSize = true, s.arena, s.granule, s.chunk
	c.MaxInflightChunks, c.CopyStreams, c.EagerGather = s.window, s.copies, s.eager
	c.RequestTimeout, c.ReceiverLease = s.timeout, s.lease
	if n.w.setup.settle > 0 {
		c.SettleDelay = n.w.setup.settle
	}
	if n.w.setup.retire > 0 {
		c.RetirementDeadline = n.w.setup.retire
		c.SettleDelay, c.CloseDeadline = min(c.SettleDelay, time.Second), time.Second
	}
	c.MinDescriptorCount, c.MaxAverageDescriptorSize = 4, 4096
	_, err := c.Validate()
	must(err)
	return c
}

// wake is called by the agent's ports and submitters.
func (l *life) wake() {
	if l.dead || l.alarm == nil {
		return
	}
	w := l.node.w
	at := w.sim.Now()
	if most := l.node.setup.latency; most > 0 {
		at = at.Add(time.Duration(w.random.below(uint64(most))))
	}
	if at < l.alarm.At() {
		l.alarm.Set(at)
	}
}

// turn is one turn of the reactor.
func (l *life) turn() {
	if l.dead {
		return
	}
	w := l.node.w
	now := w.sim.Now()
	if now < l.pausedTil {
		l.alarm.Set(l.pausedTil)
		return
	}
	if w.setup.order {
		w.sim.Tell(l.id, binary.LittleEndian.AppendUint64(nil, uint64(now)))
	}
	_, next := l.agent.Poll(now.Add(l.skew))
	l.paused = now.Add(l.skew).Sub(l.agent.Now())
	l.turns++
	if l.stopping {
		l.crash()
		return
	}
	if next != ports.Never {
		next = max(next.Add(-l.skew), now.Add(turnCost))
		if grain := w.setup.grain; grain > 0 {
			// Agents come apart, so that their idle turns are not taken in every order.
			next = (next+ports.Instant(grain)-1)/ports.Instant(grain)*ports.Instant(grain) + ports.Instant(l.node.index)
		}
	}
	if next < l.alarm.At() {
		l.alarm.Set(next)
	}
	l.afterTurn()
	if l.closeBy != ports.Never {
		l.tryFinish(now)
	}
}

// afterTurn looks at what the turn told the owners of requests.
func (l *life) afterTurn() {
	for _, f := range l.fences {
		f.inForce = true
	}
	for _, x := range l.windows {
		x.observe()
	}
	keep := l.open[:0]
	for _, r := range l.open {
		if !r.observe() {
			keep = append(keep, r)
		}
	}
	clear(l.open[len(keep):])
	l.open = keep
	for _, e := range l.sessions {
		e.observe()
	}
}

// tryFinish ends a closing agent when nothing is open, or at its deadline.
func (l *life) tryFinish(now ports.Instant) {
	if closeBy := l.closeBy.Add(l.paused - l.skew); !l.agent.Quiet() && now < closeBy {
		l.alarm.Set(min(l.alarm.At(), closeBy))
		return
	}
	err := l.agent.Finish()
	if err != nil && !errors.Is(err, agent.ErrInDoubt) {
		l.node.w.oracle.violate("close", "%s: Finish: %v", l.label(), err)
	}
	if err == nil {
		l.node.w.oracle.closedClean(l)
	}
	l.afterTurn()
	l.end()
}

// crash ends the process: its ports close, nobody is told, and what the hardware does may go on.
func (l *life) crash() {
	must(l.control.Close())
	must(l.engine.Close())
	if l.compute != nil {
		must(l.compute.Close())
	}
	l.node.w.tally.crashes++
	l.end()
}

func (l *life) end() {
	l.dead = true
	l.node.now = nil
	l.node.past = append(l.node.past, l)
	// A process that exits takes its sockets and its registrations with it.
	must(l.control.Close())
	must(l.engine.Close())
}

// notified takes a notification of a request: its bytes must be visible by now.
func (l *life) notified(_ ports.Identity, message []byte) {
	var number int
	if _, err := fmt.Sscanf(string(message), "request %d", &number); err != nil {
		return
	}
	if r := l.node.w.byNumber[number]; r != nil && r.h.Status() != transport.Succeeded {
		l.node.w.oracle.violate("early-notify", "the notification of %s came before its success", r)
	}
}

// isCancelled reports whether a request ended because it was cancelled.
func isCancelled(err error) bool { return errors.Is(err, transport.ErrCancelled) }
