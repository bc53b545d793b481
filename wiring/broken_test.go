package wiring_test

import (
	"context"
	"log/slog"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

// Ways in which agents were once broken.

type lineWriter func(string)

func (w lineWriter) Write(b []byte) (int, error) { w(string(b)); return len(b), nil }

// Bounce that can't start leaves no control channel open that nobody reads.
func TestFailedBounceClosesItsChannel(t *testing.T) {
	cfg := testConfig()
	cfg.ArenaSize, cfg.ArenaGranularity = 1<<46, 1<<30 // can't be mapped
	var endpoint, warning string
	log := slog.New(slog.NewTextHandler(lineWriter(func(s string) {
		if _, at, ok := strings.Cut(s, "advertised=tcp://"); ok {
			endpoint = strings.Fields(at)[0]
		}
		if strings.Contains(s, "bounce can't start") {
			warning = s
		}
	}), nil))
	n, err := wiring.New(wiring.Params{Name: "x", Config: cfg, Log: log})
	require.NoError(t, err)
	require.False(t, n.BounceEnabled())
	require.NotEmpty(t, warning)
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", endpoint)
		if err == nil {
			conn.Close()
		}
		return err != nil
	}, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, n.Close())
}

// The description's bytes are the caller's again once AddPeer returned.
func TestAddPeerKeepsNoBytesOfTheCaller(t *testing.T) {
	a, b := pair(t, wiring.Params{Config: testConfig(), World: wiring.NewWorld()})
	d, err := b.Describe()
	require.NoError(t, err)
	serialized := d.Append(nil)
	buffer := append([]byte(nil), serialized...)
	for range 2 {
		copy(buffer, serialized)
		parsed, err := agent.ParseAgentDesc(buffer)
		require.NoError(t, err)
		report, err := a.AddPeer(parsed, false)
		require.NoError(t, err)
		require.True(t, report.Bounce, report.Reason)
		clear(buffer)
	}
}

// Memory can be taken back after the agent was closed: nothing touches it any more.
func TestDeregisterAfterClose(t *testing.T) {
	a, _ := pair(t, wiring.Params{Config: testConfig(), World: wiring.NewWorld()})
	memory := newBlock(t, 4096)
	m, err := a.Register([]ports.Descriptor{{Addr: memory.base(), Bytes: 4096}}, agent.Direct)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, m.Deregister(context.Background()))
}

// A sum of bytes that does not fit 64 bits is an error, not a request without bytes.
func TestBytesThatDoNotFit(t *testing.T) {
	a, b := pair(t, wiring.Params{Config: testConfig(), World: wiring.NewWorld()})
	connect(t, a, b)
	half := uint64(1) << 63
	device := ports.Place{Kind: ports.Device, Device: 1}
	wraps := []ports.Descriptor{{Addr: 1, Bytes: half}, {Addr: 1, Bytes: half, Place: device}}
	_, err := a.Submit(agent.Request{Peer: b.Identity(), Local: wraps, Remote: wraps})
	require.ErrorContains(t, err, "64 bits")
	beyond := []ports.Descriptor{{Addr: math.MaxUint64 - 1, Bytes: 4}, {Addr: 1, Bytes: 1, Place: device}}
	_, err = a.Submit(agent.Request{Peer: b.Identity(), Local: beyond, Remote: beyond})
	require.ErrorContains(t, err, "64 bits")
}

// A port in use is one sentence that names the setting.
func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	cfg := testConfig()
	cfg.ControlBind = "tcp://" + l.Addr().String()
	_, err = wiring.New(wiring.Params{Name: "x", Config: cfg, BounceRequired: true})
	require.ErrorIs(t, err, wiring.ErrControl)
	require.ErrorContains(t, err, "CONTROL_BIND")
	require.ErrorContains(t, err, l.Addr().String())
	require.NotContains(t, err.Error(), "\n")
}
