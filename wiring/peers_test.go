package wiring_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

// edit decodes the description's handshake, changes it and encodes it again.
func edit(t *testing.T, d agent.AgentDesc, f func(*wire.Handshake)) agent.AgentDesc {
	var h wire.Handshake
	require.NoError(t, h.Decode(d.Bounce))
	f(&h)
	require.NoError(t, h.Check())
	d.Bounce = h.Append(nil)
	return d
}

// TestIncompatibleHandshakes: bounce is off for such a peer, the report says why, and the direct path is left.
func TestIncompatibleHandshakes(t *testing.T) {
	a, b := pair(t, wiring.Params{Config: testConfig(), World: wiring.NewWorld()})
	good, err := b.Describe()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		edit func(*wire.Handshake)
		want string
	}{
		"wire":    {func(h *wire.Handshake) { h.Wire = 4 }, "wire 4, this agent 3"},
		"control": {func(h *wire.Handshake) { h.Control = ports.ControlZMQ }, "control channel is zmq, this agent's memory"},
		"chunk":   {func(h *wire.Handshake) { h.MaxChunk = 0 }, "chunk limit is 0"},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := a.AddPeer(edit(t, good, c.edit), false)
			require.NoError(t, err)
			require.False(t, report.Bounce)
			require.Contains(t, report.Reason, c.want)
			one := []ports.Descriptor{{Addr: 8, Bytes: 8}}
			_, err = a.Submit(agent.Request{Peer: b.Identity(), Route: agent.ForceBounce, Local: one, Remote: one})
			require.ErrorIs(t, err, agent.ErrNoBounce)
			require.ErrorContains(t, err, c.want)
			h, err := a.Submit(agent.Request{Peer: b.Identity()})
			require.NoError(t, err)
			require.Equal(t, transport.PathDirect, h.Path())
			require.NoError(t, a.RemovePeer(b.Identity()))
		})
	}
}

// TestWrongPeers: each is one sentence and changes nothing.
func TestWrongPeers(t *testing.T) {
	a, b := pair(t, wiring.Params{Config: testConfig(), World: wiring.NewWorld()})
	good, err := b.Describe()
	require.NoError(t, err)
	own, err := a.Describe()
	require.NoError(t, err)

	_, err = a.Submit(agent.Request{Peer: b.Identity()})
	require.ErrorIs(t, err, transport.ErrUnknownPeer)
	_, err = a.AddPeer(own, false)
	require.ErrorContains(t, err, "this agent itself")
	other := good
	other.Engine = "nixl"
	_, err = a.AddPeer(other, false)
	require.ErrorContains(t, err, `uses the engine "nixl", this agent "memory"`)
	stolen := good
	stolen.Metadata = own.Metadata
	_, err = a.AddPeer(stolen, false)
	require.ErrorIs(t, err, ports.ErrBadMetadata)
	foreign := edit(t, good, func(h *wire.Handshake) { h.Incarnation++ })
	_, err = a.AddPeer(foreign, false)
	require.ErrorContains(t, err, "incarnation")

	bytes := good.Append(nil)
	for i := range bytes {
		damaged := append([]byte(nil), bytes...)
		damaged[i] ^= 0x20
		_, err := agent.ParseAgentDesc(damaged)
		require.ErrorIs(t, err, agent.ErrBadDesc, "byte %d", i)
		_, err = agent.ParseAgentDesc(bytes[:i])
		require.ErrorIs(t, err, agent.ErrBadDesc, "cut at %d", i)
	}
	report, err := a.AddPeer(good, false)
	require.NoError(t, err)
	require.True(t, report.Bounce)

	moved := edit(t, good, func(h *wire.Handshake) { h.Endpoint = []byte(strings.Replace(string(h.Endpoint), ":", ":x", 1)) })
	_, err = a.AddPeer(moved, false)
	require.ErrorContains(t, err, "can't move")
}

// TestSuperseding: a newer incarnation of a name takes over; the older one is stale from then on.
func TestSuperseding(t *testing.T) {
	world := wiring.NewWorld()
	a, old := pair(t, wiring.Params{Config: testConfig(), World: world})
	oldDesc, err := old.Describe()
	require.NoError(t, err)
	_, err = a.AddPeer(oldDesc, false)
	require.NoError(t, err)
	fresh, err := wiring.New(wiring.Params{Name: "b", Config: testConfig(), World: world})
	require.NoError(t, err)
	defer func() { require.NoError(t, fresh.Close()) }()
	freshDesc, err := fresh.Describe()
	require.NoError(t, err)
	_, err = a.AddPeer(freshDesc, false)
	require.NoError(t, err)
	_, err = a.Submit(agent.Request{Peer: old.Identity()})
	require.ErrorContains(t, err, string(fresh.Identity()), "the error names the present incarnation")
	_, err = a.AddPeer(oldDesc, false)
	require.ErrorIs(t, err, agent.ErrStale)
	_, err = a.AddPeer(oldDesc, true)
	require.ErrorIs(t, err, agent.ErrStale, "superseded here: even when forced")
	_, err = a.Submit(agent.Request{Peer: fresh.Identity()})
	require.NoError(t, err)
}

// A bounce-less agent describes itself as one whose bounce never existed, and moves directly.
func TestWithoutBounce(t *testing.T) {
	cfg := testConfig()
	cfg.Enable = false
	a, b := pair(t, wiring.Params{Config: cfg, World: wiring.NewWorld()})
	d, err := b.Describe()
	require.NoError(t, err)
	require.Empty(t, d.Bounce)
	report, err := a.AddPeer(d, false)
	require.NoError(t, err)
	require.Equal(t, "bounce is off here", report.Reason)
	require.False(t, a.BounceEnabled())
}
