package credit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The model of agents_test.go, not at random but whole: every state that two agents can come to that send to each other, and from each of them a way to the end. The arena and the scheduler are the real
// ones; the engine, the copy device and the messages are the model's, which may order them in any way.

// graph is the states that were found, by a text that says all that a state's future depends on.
type graph struct {
	t      *testing.T
	build  func() *net
	number map[string]int
	from   [][]int // the states that lead to a state
	ends   []int
	locked []string // states in which nothing can happen, and a chunk has not arrived
	steps  int
}

// follow explores what comes after the events of path, and returns the state's number.
func (g *graph) follow(path []int) int {
	n, ok := g.play(path, -1)
	require.True(g.t, ok)
	text := n.state()
	if at, ok := g.number[text]; ok {
		return at
	}
	at := len(g.from)
	g.number[text] = at
	g.from = append(g.from, nil)
	moved := false
	for i := range n.events() {
		if _, ok := g.play(path, i); !ok {
			continue
		}
		moved = true
		g.steps++
		to := g.follow(append(path[:len(path):len(path)], i))
		g.from[to] = append(g.from[to], at)
	}
	switch {
	case moved:
	case n.left() == 0:
		g.ends = append(g.ends, at)
	default:
		g.locked = append(g.locked, text)
	}
	return at
}

// play makes the events of path happen, and then one more unless it is -1; it reports whether the last changed anything.
func (g *graph) play(path []int, last int) (n *net, ok bool) {
	n, ok = g.build(), true
	for _, i := range path {
		ok = n.events()[i]()
	}
	if last >= 0 {
		ok = n.events()[last]()
	}
	return n, ok
}

// stranded is how many states have no way to an end.
func (g *graph) stranded() int {
	reached := make([]bool, len(g.from))
	next := append([]int(nil), g.ends...)
	for len(next) > 0 {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		if !reached[at] {
			reached[at] = true
			next = append(next, g.from[at]...)
		}
	}
	n := 0
	for _, is := range reached {
		if !is {
			n++
		}
	}
	return n
}

// state says all that the future depends on.
func (n *net) state() string {
	var b strings.Builder
	number := map[*Flow]int{}
	for _, p := range n.all {
		if f, s := p.flow, p.to.sched; number[f] == 0 {
			number[f] = len(number) + 1
			fmt.Fprint(&b, f.state, f.counting, int64(s.grants-f.since)-int64(f.before), " ")
		}
		fmt.Fprint(&b, p.gathered, p.sent, p.done)
		for _, block := range []*Block{p.staging, p.region} {
			if block != nil && !p.done {
				fmt.Fprintf(&b, " %d", block.Offset)
			} else {
				b.WriteString(" -")
			}
		}
		b.WriteByte(';')
	}
	for _, a := range n.agents {
		s := a.sched
		for _, q := range s.queues {
			for f := range q.All {
				fmt.Fprintf(&b, "%d:%d ", number[f], f.place-s.first(maxClasses).place)
			}
		}
		fmt.Fprintf(&b, "/%v %d/", a.arena.hold, number[s.starving])
	}
	return b.String()
}

func twoAgents(t *testing.T, zones, window int, prepare func(*Arena), requests, other [][]uint32) *graph {
	return &graph{t: t, number: map[string]int{}, build: func() *net {
		n := newNet(t, 2, zones, window)
		for _, a := range n.agents {
			prepare(a.arena)
		}
		for _, sizes := range requests {
			n.submit(n.agents[0], n.agents[1], sizes)
		}
		for _, sizes := range other {
			n.submit(n.agents[1], n.agents[0], sizes)
		}
		return n
	}}
}

func TestEveryStateOfTwoAgentsLeadsToTheEnd(t *testing.T) {
	for _, c := range []struct {
		name            string
		zones, window   int
		requests, other [][]uint32 // of the first agent and of the second
	}{
		{"room for two chunks, one request of two chunks each way", 2, 2, [][]uint32{{8, 8}}, [][]uint32{{8, 8}}},
		{"room for two chunks, two requests of one chunk each way", 2, 2, [][]uint32{{8}, {8}}, [][]uint32{{8}, {8}}},
		{"room for two chunks, two requests against three small chunks", 2, 2, [][]uint32{{8}, {8}}, [][]uint32{{4, 4, 4}}},
		{"room for two chunks, two requests of two chunks each way", 2, 2, [][]uint32{{8, 8}, {8, 8}}, [][]uint32{{8, 8}, {8, 8}}},
		{"room for three chunks, one request of two chunks each way", 3, 2, [][]uint32{{8, 8}}, [][]uint32{{8, 8}}},
	} {
		g := twoAgents(t, c.zones, c.window, func(*Arena) {}, c.requests, c.other)
		g.follow(nil)
		t.Logf("%s: %d states, %d steps", c.name, len(g.from), g.steps)
		require.Empty(t, g.locked, c.name)
		require.Zero(t, g.stranded(), c.name)
		require.NotEmpty(t, g.ends)
	}
}

// Without reserves the same search finds the states in which both agents wait for each other.
func TestSearchFindsAgentsThatLockUp(t *testing.T) {
	g := twoAgents(t, 2, 2, func(a *Arena) { a.reserve = [purposes]int{noZone, noZone} }, [][]uint32{{8, 8}}, [][]uint32{{8, 8}})
	g.follow(nil)
	require.NotEmpty(t, g.locked)
	require.NotZero(t, g.stranded())
}

// The case that the package comment leaves to request_timeout: both agents lose the staging reserve at once, and the new reserve is full of grants to the other. It lasts until one request
// fails and its DRAIN gives its regions back; then all others end.
func TestReservesLostTogetherAreFreedByOneDrain(t *testing.T) {
	n := newNet(t, 2, 3, 2)
	n.submit(n.agents[0], n.agents[1], []uint32{8, 8})
	n.submit(n.agents[1], n.agents[0], []uint32{8, 8, 8})
	for _, a := range n.agents {
		require.True(t, a.grant())
		require.True(t, a.grant())
		b, ok := a.arena.Alloc(8, ForStaging)
		require.True(t, ok)
		a.arena.Retain(b)
	}
	first := func(int) int { return 0 }
	require.Equal(t, 5, n.run(t, first), "nothing can move")
	for _, p := range n.agents[0].pieces {
		p.done = true
		p.to.sched.Close(p.flow)
		p.to.arena.Free(*p.region)
		p.to.sched.Returned(p.flow)
	}
	require.Zero(t, n.run(t, first))
}
