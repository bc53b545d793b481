package wiring_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

// told is a notification, and whether the bytes of its request were there when it arrived.
type told struct {
	from    ports.Identity
	message string
	there   bool
}

// TestNotificationsComeAfterTheBytes: on both paths, an application that is notified finds every byte of the request in its memory.
func TestNotificationsComeAfterTheBytes(t *testing.T) {
	for name, world := range map[string]*wiring.World{"memory": wiring.NewWorld(), "nixl": nil} {
		t.Run(name, func(t *testing.T) { notificationsComeAfterTheBytes(t, world) })
	}
}

func notificationsComeAfterTheBytes(t *testing.T, world *wiring.World) {
	const n, size, rounds = 500, 4096, 12
	src, dst := newBlock(t, n*size), newBlock(t, n*size)
	order := src.pages(n, size, 3)
	arrived := make(chan told, 2*rounds)
	a, b := pair(t, wiring.Params{Config: testConfig(), World: world, BounceRequired: true, OnNotify: func(from ports.Identity, message []byte) {
		there := len(message) == 1
		for _, c := range dst.bytes {
			there = there && c == message[0]
		}
		arrived <- told{from, string(message), there}
	}})
	register(t, a, src)
	register(t, b, dst)
	connect(t, a, b)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	next := func() told {
		select {
		case got := <-arrived:
			return got
		case <-ctx.Done():
			require.Fail(t, "no notification")
			return told{}
		}
	}
	for round := range byte(rounds) {
		for i := range src.bytes {
			src.bytes[i] = 'A' + round
		}
		q := agent.Request{Peer: b.Identity(), Local: order, Remote: dst.pages(n, size, uint64(round)), Route: agent.ForceBounce, Notify: []byte{'A' + round}}
		if round%2 == 1 {
			q.Route = agent.ForceDirect
		}
		h, err := a.Submit(q)
		require.NoError(t, err)
		q.Notify[0] = '?' // the caller's again
		require.Equal(t, told{a.Identity(), string('A' + rune(round)), true}, next(), h.Path())
		require.NoError(t, h.Wait(ctx))
	}

	// One without a request, and one of a request without bytes.
	require.NoError(t, a.Notify(b.Identity(), []byte("alone")))
	require.Equal(t, told{a.Identity(), "alone", false}, next())
	h, err := a.Submit(agent.Request{Peer: b.Identity(), Notify: []byte("empty")})
	require.NoError(t, err)
	require.Equal(t, transport.Succeeded, h.Status())
	require.True(t, h.IsQuiesced())
	require.Equal(t, told{a.Identity(), "empty", false}, next())
	require.EqualValues(t, rounds+2, a.Stats().Counters["notifies_sent"])

	// Our own frames' magic is not the application's to use.
	reserved := []byte(ports.FrameMagic + "x")
	require.ErrorContains(t, a.Notify(b.Identity(), reserved), "reserved")
	_, err = a.Submit(agent.Request{Peer: b.Identity(), Notify: reserved})
	require.ErrorContains(t, err, "reserved")
	require.ErrorIs(t, a.Notify("nobody#0000000000000001", []byte("x")), transport.ErrUnknownPeer)
	require.Empty(t, arrived)
}

func register(t *testing.T, node *wiring.Node, b block) {
	_, err := node.Register([]ports.Descriptor{{Addr: b.base(), Bytes: uint64(len(b.bytes))}}, agent.Direct)
	require.NoError(t, err)
}

// TestRead takes pages of a peer's memory in another order. A read is always direct, and its notification comes after it.
func TestRead(t *testing.T) {
	for name, world := range map[string]*wiring.World{"memory": wiring.NewWorld(), "nixl": nil} {
		t.Run(name, func(t *testing.T) {
			const n, size = 1500, 4096 // enough to bounce, were it a write
			here, there := newBlock(t, n*size), newBlock(t, n*size)
			arrived := make(chan string, 1)
			a, b := pair(t, wiring.Params{Config: testConfig(), World: world, BounceRequired: true, OnNotify: func(_ ports.Identity, message []byte) { arrived <- string(message) }})
			for i := range there.bytes {
				there.bytes[i] = byte(rand.Uint32())
			}
			register(t, a, here)
			register(t, b, there)
			connect(t, a, b)
			local, remote := here.pages(n, size, 1), there.pages(n, size, 2)
			q := agent.Request{Op: agent.Read, Peer: b.Identity(), Local: local, Remote: remote, Notify: []byte("taken")}
			h, err := a.Submit(q)
			require.NoError(t, err)
			require.Equal(t, transport.PathDirect, h.Path())
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			require.NoError(t, h.Wait(ctx))
			require.True(t, h.IsQuiesced())
			for i := range local {
				to, from := local[i].Addr-here.base(), remote[i].Addr-there.base()
				require.True(t, bytes.Equal(here.bytes[to:to+size], there.bytes[from:from+size]), "piece %d", i)
			}
			select {
			case message := <-arrived:
				require.Equal(t, "taken", message)
			case <-ctx.Done():
				require.Fail(t, "no notification")
			}
			s := a.Stats()
			require.EqualValues(t, 1, s.Routes[agent.DirectNotAWrite.String()])
			require.EqualValues(t, n*size, s.Counters["direct_bytes"])
			require.EqualValues(t, 1, s.Counters["direct_succeeded"])
			require.Zero(t, a.BounceSubmits())
			q.Route = agent.ForceBounce
			_, err = a.Submit(q)
			require.ErrorIs(t, err, agent.ErrNoBounce)
			require.ErrorContains(t, err, "only writes can bounce")
		})
	}
}
