package wiring

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/core/session"
	"github.com/kvbounce/kvbounce/ports"
)

// pausedClock jumps once, some turns after it was armed, as the clock of a process that was stopped does.
type pausedClock struct {
	ports.Clock
	armed  atomic.Bool
	reads  int
	jumped time.Duration
}

func (c *pausedClock) Now() ports.Instant {
	if c.armed.Load() {
		if c.reads++; c.reads == 5 {
			c.jumped = 70 * time.Second
		}
	}
	return c.Clock.Now().Add(c.jumped)
}

// An agent that is stopped while it closes waits for what runs as long as if it had not been: the pause is no part of CLOSE_DEADLINE.
func TestPauseWhileClosing(t *testing.T) {
	var reports atomic.Int32
	clock := &pausedClock{}
	open := func(name string, tweak func(*assembly)) *Node {
		c := config.Default()
		c.Enable, c.ArenaSize, c.MaxChunkSize, c.ControlBind = true, 64<<20, 8<<20, "tcp://127.0.0.1:0"
		a, err := build(Params{Name: name, Config: c, FailStop: func(session.Report) { reports.Add(1) }})
		require.NoError(t, err)
		tweak(a)
		return a.start()
	}
	receiver := open("receiver", func(*assembly) {})
	sender := open("sender", func(a *assembly) { clock.Clock, a.clock = a.clock, clock })
	const bytes = 256 << 20 // long enough to be under way when the clock jumps
	memory := func(n *Node) []ports.Descriptor {
		m, err := AllocateHost(bytes)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.Free()) })
		d := []ports.Descriptor{m.Descriptor()}
		_, err = n.Register(d, agent.Direct)
		require.NoError(t, err)
		return d
	}
	source, destination := memory(sender), memory(receiver)
	desc, err := receiver.Describe()
	require.NoError(t, err)
	_, err = sender.AddPeer(desc, false)
	require.NoError(t, err)
	h, err := sender.Submit(agent.Request{Peer: desc.Identity, Local: source, Remote: destination, Route: agent.ForceDirect})
	require.NoError(t, err)
	clock.armed.Store(true)
	require.NoError(t, sender.Close())
	require.True(t, h.IsQuiesced())
	require.Zero(t, reports.Load(), "fail-stops")
	require.NoError(t, receiver.Close())
}
