package credit

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The progress argument of the package comment, played: agents that send to each other with full arenas. Every step is one event that may happen now; which one happens is the
// test's choice. When nothing can happen any more every chunk must have arrived.

// piece is one chunk on its way.
type piece struct {
	from, to *agent
	flow     *Flow // at the receiver
	bytes    uint64
	staging  *Block
	gathered bool
	region   *Block
	sent     bool // written, and its DATA is on the way
	done     bool
}

type agent struct {
	arena  *Arena
	sched  *Scheduler
	pieces []*piece // that it sends
}

// net is two or more agents. faults says which agent's writes may end in doubt.
type net struct {
	agents []*agent
	all    []*piece
	faulty *agent
}

func newNet(t testingT, agents int, zones, window int) *net {
	const zone = 8
	n := &net{}
	for range agents {
		a, err := NewArena(uint64(zones)*zone, 1, zone)
		require.NoError(t, err)
		n.agents = append(n.agents, &agent{arena: a, sched: NewScheduler(a, window)})
	}
	return n
}

// submit is a request of these chunks.
func (n *net) submit(from, to *agent, sizes []uint32) {
	pieces := make([]*piece, len(sizes))
	flow := to.sched.Open(pieces, sizes)
	for i, bytes := range sizes {
		pieces[i] = &piece{from: from, to: to, flow: flow, bytes: uint64(bytes)}
	}
	from.pieces = append(from.pieces, pieces...)
	n.all = append(n.all, pieces...)
}

// waiting: it has a credit and needs staging.
func (p *piece) waiting() bool { return p.region != nil && p.staging == nil && !p.sent && !p.done }

// cached: it was gathered ahead of its credit.
func (p *piece) cached() bool { return p.staging != nil && p.region == nil && p.gathered }

func (a *agent) anyWaiting() bool {
	for _, p := range a.pieces {
		if p.waiting() {
			return true
		}
	}
	return false
}

// events are what may happen now; each reports whether something changed.
func (n *net) events() (events []func() bool) {
	for _, a := range n.agents {
		events = append(events, func() bool { return a.grant() })
		waiting := a.anyWaiting()
		for _, p := range a.pieces {
			switch {
			case p.staging == nil && p.region == nil && !p.done && !waiting:
				events = append(events, p.stage) // ahead of its credit
			case p.waiting():
				events = append(events, p.stage)
			case p.staging != nil && !p.gathered:
				events = append(events, func() bool { p.gathered = true; return true })
			case p.cached() && (waiting || a.arena.InTheWay(*p.staging)):
				events = append(events, p.giveUp)
			case p.staging != nil && p.region != nil:
				events = append(events, p.write)
				if n.faulty == a && p.from.spare(*p.staging) && p.to.spare(*p.region) {
					events = append(events, p.fail)
				}
			case p.sent:
				events = append(events, p.scatter)
			}
		}
	}
	return events
}

// step makes one event happen; false when none can.
func (n *net) step(choose func(int) int) bool {
	events := n.events()
	for len(events) > 0 {
		i := choose(len(events))
		if events[i]() {
			return true
		}
		events = append(events[:i], events[i+1:]...)
	}
	return false
}

func (a *agent) grant() bool {
	g, ok := a.sched.Next()
	if ok {
		g.Flow.Owner.([]*piece)[g.Chunk].region = &g.Block
	}
	return ok
}

func (p *piece) stage() bool {
	b, ok := p.from.arena.Alloc(p.bytes, ForStaging)
	if ok {
		p.staging = &b
	}
	return ok
}

func (p *piece) giveUp() bool {
	p.from.arena.Free(*p.staging)
	p.staging, p.gathered = nil, false
	return true
}

func (p *piece) write() bool {
	p.giveUp()
	p.sent = true
	return true
}

func (p *piece) scatter() bool {
	p.sent, p.done = false, true
	p.to.arena.Free(*p.region)
	p.to.sched.Returned(p.flow)
	return true
}

// fail leaves staging and region in doubt for ever.
func (p *piece) fail() bool {
	p.from.arena.Retain(*p.staging)
	p.to.arena.Retain(*p.region)
	p.staging, p.done = nil, true
	p.to.sched.Returned(p.flow)
	return true
}

// spare reports whether the arena keeps three clean zones when this block's is lost: above what Room refuses new work for.
func (a *agent) spare(b Block) bool {
	clean := 0
	for z := range a.arena.zones {
		if a.arena.zones[z].retained == 0 && z != a.arena.zoneOf(b.Offset) {
			clean++
		}
	}
	return clean >= 3
}

// run plays until nothing can happen, and counts the chunks left behind.
func (n *net) run(t testingT, choose func(int) int) int {
	for steps := 0; n.step(choose); steps++ {
		require.Less(t, steps, 400*len(n.all)+1000, "it runs in circles")
	}
	return n.left()
}

// left is how many chunks have not arrived.
func (n *net) left() int {
	left := 0
	for _, p := range n.all {
		if !p.done {
			left++
		}
	}
	return left
}

// chooser is a small fixed generator, so that a seed names a run.
func chooser(seed uint64) func(int) int {
	return func(n int) int {
		seed = seed*6364136223846793005 + 1442695040888963407
		return int(seed >> 33 % uint64(n))
	}
}

// saturate has every agent send several requests to every other, most of them of large chunks.
func (n *net) saturate(choose func(int) int, requests int) {
	for range requests {
		for _, from := range n.agents {
			for _, to := range n.agents {
				if from == to {
					continue
				}
				sizes := make([]uint32, 1+choose(6))
				for i := range sizes {
					sizes[i] = uint32(1 + choose(8))
					if choose(2) == 0 {
						sizes[i] = 8
					}
				}
				n.submit(from, to, sizes)
			}
		}
	}
}

func TestSaturatedAgentsAlwaysFinish(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNet(t, rapid.IntRange(2, 3).Draw(t, "agents"), rapid.IntRange(2, 5).Draw(t, "zones"), rapid.IntRange(1, 8).Draw(t, "window"))
		choose := chooser(rapid.Uint64().Draw(t, "seed"))
		n.saturate(choose, rapid.IntRange(1, 5).Draw(t, "requests"))
		require.Zero(t, n.run(t, choose), "chunks left behind")
		for _, a := range n.agents {
			require.Zero(t, a.arena.LiveBlocks())
			require.Zero(t, a.sched.Active())
		}
	})
}

func TestSaturatedAgentsFinishWithBlocksInDoubt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNet(t, 2, rapid.IntRange(4, 7).Draw(t, "zones"), rapid.IntRange(1, 8).Draw(t, "window"))
		n.faulty = n.agents[0]
		choose := chooser(rapid.Uint64().Draw(t, "seed"))
		n.saturate(choose, rapid.IntRange(1, 5).Draw(t, "requests"))
		require.Zero(t, n.run(t, choose), "chunks left behind")
	})
}

// Without reserves the same agents do lock each other out: the model can tell.
func TestWithoutReservesAgentsLockUp(t *testing.T) {
	locked := 0
	for seed := range uint64(50) {
		n := newNet(t, 2, 2, 8)
		for _, a := range n.agents {
			a.arena.reserve = [purposes]int{noZone, noZone}
		}
		choose := chooser(seed)
		n.saturate(choose, 4)
		if n.run(t, choose) > 0 {
			locked++
		}
	}
	require.Positive(t, locked)
}
