//go:build idle

package wiring_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

const (
	settleFor  = 2 * time.Second // until nothing has happened for long enough that agents poll as rarely as they ever do
	measureFor = 10 * time.Second
)

// TestIdleCPU measures what an idle agent takes of a core, as CPU time of this process, in which two agents that know each other do nothing. `make idle` runs it.
func TestIdleCPU(t *testing.T) {
	fmt.Println("an idle agent's share of a core, over", measureFor)
	for _, c := range []struct {
		control string
		use     agent.Use
		limit   float64 // percent; the goals of architecture.md, "The reactor"
	}{
		{config.ControlZMQ, agent.BounceOnly, 1},
		{config.ControlZMQ, agent.Direct, 1},
		{config.ControlNIXL, agent.BounceOnly, 5},
		{config.ControlNIXL, agent.Direct, 5},
	} {
		name := fmt.Sprintf("control %-4s memory registered %s", c.control+",", map[agent.Use]string{agent.BounceOnly: "bounce-only", agent.Direct: "for direct use"}[c.use])
		percent := idlePercent(t, c.control, c.use)
		fmt.Printf("  %-46s %5.2f %% (at most %v)\n", name, percent, c.limit)
		if percent > c.limit {
			t.Errorf("%s: %.2f %% of a core, at most %v", name, percent, c.limit)
		}
	}
}

func idlePercent(t *testing.T, control string, use agent.Use) float64 {
	cfg := testConfig()
	cfg.Control = control
	var nodes [2]*wiring.Node
	for i := range nodes {
		node, err := wiring.New(wiring.Params{Name: fmt.Sprint("idle-", i), Config: cfg, BounceRequired: true, Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		defer func() { require.NoError(t, node.Close()) }()
		nodes[i] = node
	}
	const n, size = 1000, 4096
	for i, node := range nodes {
		peer := nodes[1-i]
		src, dst := newBlock(t, n*size), newBlock(t, n*size)
		_, err := peer.Register([]ports.Descriptor{{Addr: dst.base(), Bytes: n * size}}, use)
		require.NoError(t, err)
		connect(t, node, peer)
		h, err := node.Submit(agent.Request{Peer: peer.Identity(), Local: src.pages(n, size, 1), Remote: dst.pages(n, size, 2), Route: agent.ForceBounce})
		require.NoError(t, err)
		require.NoError(t, h.Wait(context.Background()))
	}
	time.Sleep(settleFor)
	before, began := cpuTime(t), time.Now()
	time.Sleep(measureFor)
	return 100 * (cpuTime(t) - before).Seconds() / time.Since(began).Seconds() / float64(len(nodes))
}

// cpuTime is what all threads of this process have used.
func cpuTime(t *testing.T) time.Duration {
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
