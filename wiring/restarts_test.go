package wiring_test

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

// TestPeerRestarts lets an agent's peer restart again and again, added one way and both ways, with transfers over both paths and some that its end cuts off. No descriptor, no
// goroutine and no arena block is left. NIXL keeps some descriptors of its own for a while; they are far fewer than the restarts.
func TestPeerRestarts(t *testing.T) {
	t.Run("memory", func(t *testing.T) { peerRestarts(t, wiring.NewWorld(), 1000, 0) })
	t.Run("nixl", func(t *testing.T) { peerRestarts(t, nil, 24, 3) })
}

func peerRestarts(t *testing.T, world *wiring.World, restarts, kept int) {
	const n, size = 16, 4096
	cfg := testConfig()
	cfg.ArenaSize, cfg.MaxChunkSize, cfg.ArenaGranularity = 256<<10, 32<<10, 4<<10
	cfg.RequestTimeout, cfg.ReceiverLease = 3*time.Second, 3500*time.Millisecond // an entry goes a lease after its last use
	quiet := slog.New(slog.DiscardHandler)
	a, err := wiring.New(wiring.Params{Name: "a", Config: cfg, World: world, BounceRequired: true, Log: quiet})
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	here, there := newBlock(t, n*size), newBlock(t, n*size)
	_, err = a.Register([]ports.Descriptor{{Addr: here.base(), Bytes: n * size}}, agent.Direct)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	life := func(i int) {
		b, err := wiring.New(wiring.Params{Name: "b", Config: cfg, World: world, BounceRequired: true, Log: quiet})
		require.NoError(t, err)
		_, err = b.Register([]ports.Descriptor{{Addr: there.base(), Bytes: n * size}}, agent.Direct)
		require.NoError(t, err)
		move := func(from, to *wiring.Node, src, dst block) *agent.Handle {
			route := agent.ForceBounce
			if i%4 == 3 {
				route = agent.ForceDirect
			}
			h, err := from.Submit(agent.Request{Peer: to.Identity(), Local: src.pages(n, size, 1), Remote: dst.pages(n, size, 2), Route: route})
			require.NoError(t, err)
			return h
		}
		if i%3 != 0 {
			connect(t, a, b)
			require.NoError(t, move(a, b, here, there).Wait(ctx))
		}
		if i%3 != 1 {
			connect(t, b, a)
			h := move(b, a, there, here)
			if i%5 == 0 {
				h.Cancel() // its drain goes on while b closes
			} else {
				require.NoError(t, h.Wait(ctx))
			}
		}
		require.NoError(t, b.Close())
	}
	for i := range 12 { // what is opened once for all
		life(i)
	}
	descriptors, goroutines := openDescriptors(t), runtime.NumGoroutine()
	for i := range restarts {
		life(i)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		d, g, held := openDescriptors(t), runtime.NumGoroutine(), a.Stats().BlocksHeld
		if d <= descriptors+kept && g <= goroutines && held == 0 {
			break
		}
		require.True(t, time.Now().Before(deadline), "descriptors %d, then %d; goroutines %d, then %d; blocks held %d", descriptors, d, goroutines, g, held)
	}
	require.Zero(t, a.Stats().Doubts)
	require.Empty(t, a.Stats().Unproved)
}
