package wiring

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring/debug"
)

// A sender is killed in the middle of a transfer. The receiver's endpoint says which peer it is, since when and how much is in doubt because of it; after the fence it says that nothing is.
func TestDebugEndpointNamesWhomToFence(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agent.sock")
	c := partyConfig()
	c.RequestTimeout, c.ReceiverLease = time.Second, 1500*time.Millisecond
	watched := c
	watched.DebugListen = "unix:" + path
	sender, receiver := startParty(t, "sender", c, false), startParty(t, "receiver", watched, false)
	sender.meets(receiver)
	sender.delivers(receiver, 0)
	look := func() debug.State {
		s, err := debug.Fetch(t.Context(), watched.DebugListen)
		require.NoError(t, err)
		require.Equal(t, string(receiver.identity), s.Agent)
		return s
	}
	s := look()
	require.True(t, s.ReactorAnswered)
	require.Empty(t, s.Unproved)
	require.Equal(t, debug.Arena{Free: 2 * partyBytes}, s.Arena)
	require.EqualValues(t, 1, s.Counters["flows_finished"])
	require.Positive(t, s.Channel["received"])
	require.Len(t, s.Peers, 1)
	require.Equal(t, debug.Peer{
		Peer: string(sender.identity), Name: "sender", Incarnation: strings.TrimPrefix(string(sender.identity), "sender#"), State: "added", SilentSince: s.Peers[0].SilentSince,
	}, s.Peers[0])

	killed := time.Now()
	sender.gate("gather", true)
	sender.sends(receiver, "cut", 1)
	receiver.until("a region", func() bool { return look().Arena.Granted == partyBytes })
	sender.kill()
	receiver.until("a doubt", func() bool { s = look(); return len(s.Unproved) > 0 })
	u := s.Unproved[0]
	require.Len(t, s.Unproved, 1)
	require.Equal(t, string(sender.identity), u.Peer)
	require.Equal(t, []debug.Part{{Part: "region", Access: "peer write", Accesses: 1, Bytes: partyBytes}}, u.Parts)
	require.EqualValues(t, partyBytes, u.ArenaBytes)
	require.EqualValues(t, partyBytes, s.Arena.Retained)
	require.NotNil(t, u.Since)
	require.True(t, u.Since.After(killed) && !u.Since.After(s.Now), u.Since)
	require.NotNil(t, u.SilentSince)
	require.True(t, u.SilentSince.Before(*u.Since))
	require.Contains(t, u.Remedy, `FencePeer("sender", 0x`+u.Incarnation)
	require.Equal(t, 1, s.Flows)
	require.NotEmpty(t, s.BounceRefusal)

	receiver.do(partyCall{Op: "fence", Peer: sender.identity})
	receiver.until("the settle delay", func() bool {
		s = look()
		return len(s.Unproved) == 1 && s.Unproved[0].State == "settling" && strings.Contains(s.Unproved[0].Remedy, "the settle delay runs")
	})
	receiver.settled()
	s = look()
	require.Empty(t, s.Unproved)
	require.Empty(t, s.BounceRefusal)
	require.Equal(t, debug.Arena{Free: 2 * partyBytes}, s.Arena)

	// A reactor that does not turn keeps nobody from seeing the rest.
	receiver.op("hold")
	s = look()
	require.False(t, s.ReactorAnswered)
	require.NotEmpty(t, s.Counters)
	receiver.op("resume")
	require.True(t, look().ReactorAnswered)

	// What a killed process leaves is its successor's.
	receiver.kill()
	require.FileExists(t, path)
	successor := startParty(t, "receiver", watched, false)
	receiver.identity = successor.identity
	look()
	successor.ends()
	require.NoFileExists(t, path)
}

func TestDebugEndpoint(t *testing.T) {
	open := func(listen string, log *slog.Logger) (*Node, error) {
		c := config.Default()
		c.Enable, c.ArenaSize, c.MaxChunkSize, c.ArenaGranularity, c.DebugListen = true, 1<<20, 1<<18, 4096, listen
		return New(Params{Name: "x", Config: c, World: NewWorld(), Log: log})
	}
	t.Run("is off by default", func(t *testing.T) {
		n, err := open("", nil)
		require.NoError(t, err)
		require.Empty(t, n.DebugAddress())
		require.NoError(t, n.Close())
	})
	t.Run("serves an agent until it is closed", func(t *testing.T) {
		n, err := open("127.0.0.1:0", nil)
		require.NoError(t, err)
		s, err := debug.Fetch(t.Context(), n.DebugAddress())
		require.NoError(t, err)
		require.True(t, s.ReactorAnswered)
		require.Equal(t, uint64(1<<20), s.Arena.Free)
		r, err := http.Get("http://" + n.DebugAddress() + debug.MetricsPath)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, r.StatusCode)
		require.NoError(t, r.Body.Close()) // the connection stays open, and nobody uses it
		require.NoError(t, n.Close())
		require.NoError(t, n.Close())
		_, err = net.Dial("tcp", n.DebugAddress())
		require.Error(t, err)
		http.DefaultClient.CloseIdleConnections()
	})
	t.Run("refuses what is not this machine's", func(t *testing.T) {
		for _, address := range []string{"0.0.0.0:0", "10.1.2.3:80", "[::]:0"} {
			_, err := open(address, nil)
			var bad *config.Error
			require.ErrorAs(t, err, &bad)
			require.Equal(t, "DEBUG_LISTEN", bad.Setting)
			require.EqualError(t, err, `KVBOUNCE_DEBUG_LISTEN is "`+address+`"; allowed: unix:PATH, or ADDRESS:PORT with a loopback address (127.0.0.1, [::1]), port 0 for any free one`)
		}
	})
	t.Run("costs no agent that runs", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.sock")
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		var warning strings.Builder
		n, err := open("unix:"+path, slog.New(slog.NewTextHandler(&warning, nil)))
		require.NoError(t, err)
		require.Empty(t, n.DebugAddress())
		require.Contains(t, warning.String(), "the debug endpoint can't start")
		require.NoError(t, n.Close())
		require.FileExists(t, path)
	})
}

// Looking costs an agent that moves things nothing but a look: requests from many sides go on while it is looked at.
func TestDebugEndpointUnderLoad(t *testing.T) {
	world := NewWorld()
	c := config.Default()
	c.Enable, c.ArenaSize, c.MaxChunkSize, c.ArenaGranularity, c.DebugListen = true, 4<<20, 1<<20, 4096, "127.0.0.1:0"
	open := func(name string) (*Node, *HostBlock) {
		n, err := New(Params{Name: name, Config: c, World: world, BounceRequired: true, Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		b, err := AllocateHost(partyBytes)
		require.NoError(t, err)
		_, err = n.Register([]ports.Descriptor{b.Descriptor()}, agent.BounceOnly)
		require.NoError(t, err)
		return n, b
	}
	a, src := open("a")
	b, dst := open("b")
	d, err := b.Describe()
	require.NoError(t, err)
	_, err = a.AddPeer(d, false)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	done := make(chan struct{})
	looks := make(chan int, 2)
	for _, n := range []*Node{a, b} {
		go func() {
			count := 0
			for {
				select {
				case <-done:
					looks <- count
					return
				default:
				}
				if s, err := debug.Fetch(ctx, n.DebugAddress()); err == nil && s.ReactorAnswered {
					count++
				}
			}
		}()
	}
	for range 20 {
		h, err := a.Submit(agent.Request{Peer: b.Identity(), Local: []ports.Descriptor{src.Descriptor()}, Remote: []ports.Descriptor{dst.Descriptor()}, Route: agent.ForceBounce})
		require.NoError(t, err)
		require.NoError(t, h.Wait(ctx))
	}
	close(done)
	require.Positive(t, <-looks)
	require.Positive(t, <-looks)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	require.NoError(t, src.Free())
	require.NoError(t, dst.Free())
}
