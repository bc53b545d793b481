package wiring_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

// TestManyAtOnce lets three agents send to each other from many goroutines at once, on both paths, with cancels among them: every success is byte-exact, every request
// quiesces, and afterwards nothing is held.
func TestManyAtOnce(t *testing.T) {
	for name, world := range map[string]*wiring.World{"memory": wiring.NewWorld(), "nixl": nil} {
		t.Run(name, func(t *testing.T) { manyAtOnce(t, world) })
	}
}

func manyAtOnce(t *testing.T, world *wiring.World) {
	const agents, senders, requests, pages, size = 3, 3, 6, 300, 1000
	cfg := testConfig()
	// Room for a few chunks only, so that staging and grants compete.
	cfg.ArenaSize, cfg.MaxChunkSize, cfg.ArenaGranularity = 1<<20, 128<<10, 4<<10
	var nodes []*wiring.Node
	for i := range agents {
		n, err := wiring.New(wiring.Params{Name: fmt.Sprint("agent-", i), Config: cfg, World: world, BounceRequired: true})
		require.NoError(t, err)
		nodes = append(nodes, n)
		defer func() { require.NoError(t, n.Close()) }()
	}
	// Each sender has a source here and a destination at its peer.
	slot := pages * size
	src, dst := make([]block, agents), make([]block, agents)
	for i, n := range nodes {
		src[i], dst[i] = newBlock(t, senders*slot), newBlock(t, agents*senders*slot)
		_, err := n.Register([]ports.Descriptor{{Addr: src[i].base(), Bytes: uint64(senders * slot)}, {Addr: dst[i].base(), Bytes: uint64(agents * senders * slot)}}, agent.Direct)
		require.NoError(t, err)
	}
	for _, a := range nodes {
		for _, b := range nodes {
			if a != b {
				connect(t, a, b)
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for from := range agents {
		for k := range senders {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(from), uint64(k)))
				to := (from + 1 + k%(agents-1)) % agents
				s := block{src[from].bytes[k*slot : (k+1)*slot]}
				d := block{dst[to].bytes[(from*senders+k)*slot : (from*senders+k+1)*slot]}
				for range requests {
					for i := range s.bytes {
						s.bytes[i] = byte(rng.Uint32())
					}
					clear(d.bytes)
					local, remote := s.pages(pages, size, rng.Uint64()), d.pages(pages, size, rng.Uint64())
					route := agent.ForceBounce
					if rng.IntN(3) == 0 {
						route = agent.ForceDirect
					}
					h, err := nodes[from].Submit(agent.Request{Peer: nodes[to].Identity(), Local: local, Remote: remote, Route: route})
					if err != nil {
						t.Error(err)
						return
					}
					cancelled := rng.IntN(4) == 0
					if cancelled {
						time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
						h.Cancel()
					}
					err = h.Wait(ctx)
					if err != nil && !cancelled {
						t.Error(err)
					}
					if err := h.WaitQuiesced(ctx); err != nil {
						t.Error("quiesced: ", err)
						return
					}
					for i := range local {
						x, y := local[i].Addr-s.base(), remote[i].Addr-d.base()
						if err == nil && !bytes.Equal(s.bytes[x:x+size], d.bytes[y:y+size]) {
							t.Errorf("%s, %v: piece %d is wrong", h.Peer(), route, i)
							return
						}
					}
				}
			})
		}
	}
	wg.Wait()
	for i, n := range nodes {
		require.Eventually(t, func() bool { return n.Stats().BlocksHeld == 0 }, 20*time.Second, time.Millisecond, "agent %d holds %d blocks", i, n.Stats().BlocksHeld)
		require.Zero(t, n.Stats().Doubts)
	}
}
