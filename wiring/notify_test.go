package wiring_test

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/adapters/nixl"
	"github.com/kvbounce/kvbounce/adapters/nixlnotify"
	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/ports/porttest"
	"github.com/kvbounce/kvbounce/wiring"
)

// shared is an agent's engine over NIXL, and the channel that shares it.
type shared struct {
	id      ports.Identity
	engine  *nixlnotify.Engine
	channel *nixlnotify.Channel
}

const (
	notifyMaxFrame    = 1 << 20
	notifyQueueFrames = 200
)

// newShared makes an engine of this identity, or of a new one. memory is what it mostly moves, which says who calls NIXL.
func newShared(t *testing.T, id ports.Identity, memory ports.MemoryKind) shared {
	t.Helper()
	if id == "" {
		var err error
		id, err = ports.NewIdentity("notify", wiring.NewRandom().Uint64())
		require.NoError(t, err)
	}
	below, err := nixl.New(nixl.Config{Identity: id, Memory: memory})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, below.Close()) })
	engine, channel, err := nixlnotify.New(below, nixlnotify.Config{MaxFrame: notifyMaxFrame, QueueFrames: notifyQueueFrames})
	require.NoError(t, err)
	return shared{id, engine, channel}
}

// TestNotificationsContract runs the contract of a control channel over NIXL's notifications.
func TestNotificationsContract(t *testing.T) {
	for _, memory := range []ports.MemoryKind{ports.Host, ports.Device} {
		t.Run(memory.String(), func(t *testing.T) {
			porttest.ControlChannel(t, func(t *testing.T) porttest.ControlFixture { return notifyFixture(t, memory) })
		})
	}
}

func notifyFixture(t *testing.T, memory ports.MemoryKind) porttest.ControlFixture {
	var driven []shared
	open := func(t *testing.T) porttest.ControlEnd {
		s := newShared(t, "", memory)
		driven = append(driven, s)
		return porttest.ControlEnd{Identity: s.id, Channel: s.channel}
	}
	a, b := open(t), open(t)
	// An engine of b's name that nobody drives does not answer.
	nowhere := newShared(t, b.Identity, memory).channel.Endpoint()
	damaged := append([]byte(nil), b.Channel.Endpoint()...)
	damaged[len(damaged)-1] ^= 1
	resealed := append([]byte(nil), damaged...)
	binary.LittleEndian.PutUint32(resealed, crc32.Checksum(resealed[4:], crc32.MakeTable(crc32.Castagnoli)))
	return porttest.ControlFixture{
		A: a, B: b, Open: open, MaxFrame: notifyMaxFrame, QueueFrames: notifyQueueFrames,
		Nowhere:   nowhere,
		Malformed: [][]byte{damaged, resealed, damaged[:50], a.Channel.Endpoint()},
		Drive: func() {
			for _, s := range driven {
				s.engine.Progress()
			}
		},
	}
}

// TestSharedEngineContract: an engine that is shared with a channel is still an engine.
func TestSharedEngineContract(t *testing.T) {
	porttest.TransferEngine(t, func(t *testing.T) porttest.EnginePair {
		end := func() porttest.EngineEnd {
			s := newShared(t, "", ports.Host)
			return porttest.EngineEnd{Engine: s.engine, Identity: s.id, Alloc: func(n int) (ports.Descriptor, []byte) {
				b, err := wiring.AllocateHost(uint64(n)) // never freed: a peer may know it for longer than the test (nixl.md, 10)
				require.NoError(t, err)
				d := b.Descriptor()
				d.Bytes = uint64(n)
				return d, b.Bytes()[:n]
			}}
		}
		return porttest.EnginePair{A: end(), B: end(), TellsUnregistered: true}
	})
}

// TestApplicationsShareTheEngineWithFrames: notifications of the application arrive after the bytes of their request, beside frames that go the same way, and the receiver's
// way back to a sender that it never added is not cut.
func TestApplicationsShareTheEngineWithFrames(t *testing.T) {
	cfg := testConfig()
	cfg.Control = config.ControlNIXL
	for name, world := range map[string]*wiring.World{"memory": wiring.NewWorld(), "nixl": nil} {
		t.Run(name, func(t *testing.T) {
			const n, size, rounds = 300, 4096, 20
			src, dst := newBlock(t, n*size), newBlock(t, n*size)
			arrived := make(chan string, 2*rounds)
			a, b := pair(t, wiring.Params{Config: cfg, World: world, BounceRequired: true, OnNotify: func(from ports.Identity, message []byte) {
				arrived <- string(message) + " " + from.Name() + " " + string(dst.bytes[:1])
			}})
			_, err := b.Register([]ports.Descriptor{{Addr: dst.base(), Bytes: n * size}}, agent.BounceOnly)
			require.NoError(t, err)
			connect(t, a, b)
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			for round := range rounds {
				letter := string(rune('a' + round))
				copy(src.bytes, letter)
				h, err := a.Submit(agent.Request{
					Peer: b.Identity(), Local: src.pages(n, size, 1), Remote: dst.pages(n, size, 1), Route: agent.ForceBounce, Notify: []byte("done " + letter),
				})
				require.NoError(t, err)
				require.NoError(t, h.Wait(ctx))
				select {
				case got := <-arrived:
					require.Equal(t, "done "+letter+" a "+letter, got)
				case <-ctx.Done():
					require.Fail(t, "no notification", "round %d", round)
				}
			}
			require.Empty(t, arrived)
			require.EqualValues(t, rounds, a.BounceSubmits())
		})
	}
}

// An agent never runs without the encryption that was asked for.
func TestNotificationsRefuseCurve(t *testing.T) {
	cfg := testConfig()
	cfg.Control, cfg.CurveSecretKeyFile, cfg.CurveAuthorizedKeysDir = config.ControlNIXL, "some.secret", "some-folder"
	_, err := wiring.New(wiring.Params{Name: "a", Config: cfg, World: wiring.NewWorld()})
	require.ErrorContains(t, err, "CURVE_SECRET_KEY_FILE")
	require.ErrorContains(t, err, "allowed: zmq")
}

// TestPeersThatComeAndGo: what a peer cost is given back when it is disconnected, whether or not it still lives. NIXL keeps some descriptors of its own; they are far fewer than the peers.
func TestPeersThatComeAndGo(t *testing.T) {
	a := newShared(t, "", ports.Host)
	visit := func(t *testing.T) {
		b := newShared(t, "", ports.Host)
		require.NoError(t, a.channel.Connect(b.id, b.channel.Endpoint()))
		frame := []byte(ports.FrameMagic + "hello")
		require.Equal(t, ports.Accepted, a.channel.Send(b.id, frame))
		require.Eventually(t, func() bool {
			a.engine.Progress()
			b.engine.Progress()
			got, _, ok := b.channel.Recv(nil)
			return ok && string(got) == string(frame)
		}, 30*time.Second, time.Millisecond)
		require.NoError(t, b.engine.Close())
		require.Equal(t, ports.Accepted, a.channel.Send(b.id, frame))
		a.channel.Disconnect(b.id)
	}
	t.Run("first", visit)
	before := openDescriptors(t)
	const visits = 40
	for range visits {
		t.Run("next", visit)
	}
	require.Eventually(t, func() bool {
		a.engine.Progress()
		return openDescriptors(t) < before+visits/4
	}, 30*time.Second, time.Millisecond, "%d descriptors before, %d after", before, openDescriptors(t))
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(open)
}
