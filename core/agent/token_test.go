package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// addStrict adds a peer that requires receive tokens.
func addStrict(t *testing.T, a *Agent, w *world, control ports.ControlKind) ports.Identity {
	t.Helper()
	h := wire.Handshake{
		Wire: wire.Version, Control: control, TokenRequired: true, Ownership: true, Incarnation: 7,
		ArenaUsable: 1 << 20, MaxChunk: 1 << 18, RequestTimeout: time.Second, Endpoint: []byte("mem:strict"),
	}
	d, err := a.Describe()
	require.NoError(t, err)
	d.Identity, d.Bounce = identity("strict", 7), h.Append(nil)
	a.AddPeerAsync(d, false, func(_ PeerReport, err error) { require.NoError(t, err) })
	a.Poll(w.now)
	return d.Identity
}

// Nothing goes directly to or from a peer that requires tokens, whatever rules bounce out (protocol.md, 7 and 9).
func TestTokenPeerNeverDirectly(t *testing.T) {
	for name, c := range map[string]struct {
		agent   func(t *testing.T) (*Agent, *world)
		control ports.ControlKind
	}{
		"bounce works":            {func(t *testing.T) (*Agent, *world) { return newIdle(t, nil) }, ports.ControlMemory},
		"another control channel": {func(t *testing.T) (*Agent, *world) { return newIdle(t, nil) }, ports.ControlZMQ},
		"bounce is off here":      {newPlain, ports.ControlMemory},
	} {
		t.Run(name, func(t *testing.T) {
			a, w := c.agent(t)
			peer := addStrict(t, a, w, c.control)
			a.cfg.MinDescriptorCount = 4
			few := spread(2, 64, ports.Place{})
			for _, r := range []Request{{}, {Route: ForceDirect}, {Op: Read}} {
				r.Peer, r.Local, r.Remote = peer, few, few
				_, err := a.Submit(r)
				require.ErrorIs(t, err, ErrNoBounce, "%+v", r)
				require.ErrorContains(t, err, "token")
			}
		})
	}
}

// A request without bytes succeeds at once, wherever one with bytes would be refused.
func TestEmptySucceedsEverywhere(t *testing.T) {
	a, w := newIdle(t, nil)
	strict := addStrict(t, a, w, ports.ControlMemory)
	nothing := []ports.Descriptor{{Addr: 1, Place: device0}}
	for _, r := range []Request{
		{Peer: strict}, {Peer: strict, Local: nothing, Remote: nothing}, {Peer: strict, Op: Read}, {Peer: identity("decode", 2), Route: ForceBounce, Local: nothing}, {Peer: identity("decode", 2), Token: 5},
	} {
		h, err := a.Submit(r)
		require.NoError(t, err)
		require.Equal(t, transport.Succeeded, h.Status())
		if r.Op == Read {
			continue
		}
		if r.Plan, err = a.Prepare(r.Peer, r.Local, r.Remote); err == nil {
			r.Local, r.Remote = nil, nil
			h, err = a.Submit(r)
			require.NoError(t, err)
			require.Equal(t, transport.Succeeded, h.Status())
		}
	}
	for name, n := range a.Stats().Routes {
		require.Zero(t, n, name)
	}
}
