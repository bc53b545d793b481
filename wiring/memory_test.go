package wiring_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/adapters/host"
	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

// block is registered memory outside the Go heap.
type block struct{ bytes []byte }

func newBlock(t testing.TB, n int) block {
	b, err := host.Allocate(uint64(n))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, host.Free(b)) })
	return block{b[:n]}
}

func (b block) base() uint64 { return uint64(uintptr(unsafe.Pointer(&b.bytes[0]))) }

// pages are n descriptors of size bytes in a random order.
func (b block) pages(n, size int, seed uint64) []ports.Descriptor {
	out := make([]ports.Descriptor, n)
	for i, at := range rand.New(rand.NewPCG(seed, 0)).Perm(n) {
		out[i] = ports.Descriptor{Addr: b.base() + uint64(at*size), Bytes: uint64(size)}
	}
	return out
}

func testConfig() config.Config {
	c := config.Default()
	c.Enable = true
	c.ArenaSize, c.MaxChunkSize = 64<<20, 8<<20
	c.ControlBind = "tcp://127.0.0.1:0"
	return c
}

func connect(t testing.TB, a, b *wiring.Node) {
	d, err := b.Describe()
	require.NoError(t, err)
	parsed, err := agent.ParseAgentDesc(d.Append(nil))
	require.NoError(t, err)
	report, err := a.AddPeer(parsed, false)
	require.NoError(t, err)
	require.True(t, report.Bounce, report.Reason)
}

func pair(t testing.TB, p wiring.Params) (a, b *wiring.Node) {
	p.Name = "a"
	a, err := wiring.New(p)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	p.Name = "b"
	b, err = wiring.New(p)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return a, b
}

// TestTransferBothPaths moves pages in random order over both paths, checks every byte, and takes the memory back.
func TestTransferBothPaths(t *testing.T) {
	notifications := testConfig()
	notifications.Control = config.ControlNIXL
	for name, p := range map[string]wiring.Params{
		"memory":                    {Config: testConfig(), World: wiring.NewWorld(), BounceRequired: true},
		"memory over notifications": {Config: notifications, World: wiring.NewWorld(), BounceRequired: true},
		"nixl":                      {Config: testConfig(), BounceRequired: true},
		"nixl over notifications":   {Config: notifications, BounceRequired: true},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, p)
			const n, size = 4000, 4096
			src, dst := newBlock(t, n*size), newBlock(t, n*size)
			for i := range src.bytes {
				src.bytes[i] = byte(rand.Uint32())
			}
			ms, err := a.Register([]ports.Descriptor{{Addr: src.base(), Bytes: n * size}}, agent.Direct)
			require.NoError(t, err)
			md, err := b.Register([]ports.Descriptor{{Addr: dst.base(), Bytes: n * size}}, agent.Direct)
			require.NoError(t, err)
			connect(t, a, b)
			for _, route := range []agent.Route{agent.ForceBounce, agent.ForceDirect, agent.Auto} {
				clear(dst.bytes)
				local, remote := src.pages(n, size, 1), dst.pages(n, size, 2)
				h, err := a.Submit(agent.Request{Peer: b.Identity(), Local: local, Remote: remote, Route: route})
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				require.NoError(t, h.Wait(ctx))
				require.NoError(t, h.WaitQuiesced(ctx))
				for i := range local {
					from, to := local[i].Addr-src.base(), remote[i].Addr-dst.base()
					require.True(t, bytes.Equal(src.bytes[from:from+size], dst.bytes[to:to+size]), "piece %d", i)
				}
				t.Log(route, h.Path(), h.Stages())
			}
			require.EqualValues(t, 2, a.BounceSubmits())
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			require.NoError(t, ms.Deregister(ctx))
			require.NoError(t, md.Deregister(ctx))
		})
	}
}
