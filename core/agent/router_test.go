package agent

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
)

var device0 = ports.Place{Kind: ports.Device}

// spread is n descriptors of size bytes that do not touch.
func spread(n int, size uint64, place ports.Place) (list []ports.Descriptor) {
	for i := range uint64(n) {
		list = append(list, ports.Descriptor{Addr: 1<<30 + 2*i*size, Bytes: size, Place: place})
	}
	return list
}

// mixed is spread with another device's memory at its end.
func mixed(n int, size uint64) []ports.Descriptor {
	list := spread(n, size, ports.Place{})
	list[n-1].Place = device0
	return list
}

// TestRoutes submits one request for each reason. It takes its path, is counted once, and when it must bounce it does so or the error says why not.
func TestRoutes(t *testing.T) {
	host := ports.Place{}
	good := func() Request { return Request{Local: spread(8, 64, host), Remote: spread(8, 64, host)} }
	for reason, c := range map[Reason]struct {
		request func() Request
		agent   func(t *testing.T) *Agent // nil: bounce is on at both
		forced  string                    // what the error of a request that must bounce says; empty: it bounces
	}{
		Bounced:             {request: good},
		DirectForced:        {request: func() Request { r := good(); r.Route = ForceDirect; return r }},
		DirectBounceOff:     {request: good, agent: newDirectOnly, forced: "bounce is off here"},
		DirectNotAWrite:     {request: func() Request { r := good(); r.Op = Read; return r }, forced: "only writes"},
		DirectPeerHandshake: {request: good, agent: withDirectOnlyPeer, forced: "bounce is off at the peer"},
		DirectMixedPlaces:   {request: func() Request { r := good(); r.Local = mixed(8, 64); return r }, forced: "several devices"},
		DirectTooManyChunks: {request: func() Request {
			huge := []ports.Descriptor{{Addr: 1 << 20, Bytes: 1 << 50}}
			return Request{Local: huge, Remote: huge}
		}, forced: "in chunks of at most"},
		DirectSourcePlace: {request: func() Request { r := good(); r.Local = spread(8, 64, device0); return r }, forced: "the source is not"},
		DirectDestination: {request: func() Request { r := good(); r.Remote = spread(8, 64, device0); return r }, forced: "the destination is not"},
		DirectFewPieces:   {request: func() Request { return Request{Local: spread(3, 64, host), Remote: spread(3, 64, host)} }},
		DirectLargePieces: {request: func() Request { // a mean of 1024 and one eighth
			r := Request{Local: spread(8, 1024, host), Remote: spread(8, 1024, host)}
			r.Local[7].Bytes, r.Remote[7].Bytes = 1025, 1025
			return r
		}},
		DirectRetained: {request: good, forced: "fence it", agent: func(t *testing.T) *Agent {
			a, w := newIdle(t, nil)
			w.retain(t, a)
			return a
		}},
	} {
		t.Run(reason.String(), func(t *testing.T) {
			if c.agent == nil {
				c.agent = func(t *testing.T) *Agent { a, _ := newIdle(t, nil); return a }
			}
			a := c.agent(t)
			a.cfg.MinDescriptorCount, a.cfg.MaxAverageDescriptorSize = 4, 1024
			r := c.request()
			r.Peer = identity("decode", 2)
			if reason == DirectBounceOff || reason == DirectPeerHandshake {
				r.Peer = plainPeer
			}
			h, err := a.Submit(r)
			require.NoError(t, err)
			require.Equal(t, reason == Bounced, h.Path() == transport.PathBounce)
			for name, n := range a.Stats().Routes {
				require.Equal(t, name == reason.String(), n == 1, "%s: %d", name, n)
			}

			r.Route = ForceBounce
			h, err = a.Submit(r)
			if c.forced == "" {
				require.NoError(t, err)
				require.Equal(t, transport.PathBounce, h.Path())
				require.Positive(t, a.Stats().Routes[Bounced.String()])
				return
			}
			require.ErrorIs(t, err, ErrNoBounce)
			require.ErrorContains(t, err, c.forced)
			require.Zero(t, a.Stats().Routes[Bounced.String()], "a refused request is not counted")
			require.Equal(t, a.BounceSubmits(), a.Stats().Counters["bounce_submits"])
		})
	}
	require.Len(t, reasonTexts, int(reasons))
}

// newDirectOnly is newIdle without bounce.
func newDirectOnly(t *testing.T) *Agent {
	a, w := newPlain(t)
	addPlain(t, a, w)
	return a
}

// newPlain is an agent whose bounce is off.
func newPlain(t *testing.T) (*Agent, *world) {
	_, w := newIdle(t, nil)
	cfg := config.Default()
	_, err := cfg.Validate()
	require.NoError(t, err)
	a, err := New(Options{Identity: identity("prefill", 1), Config: cfg, Engine: idleEngine{w}, Clock: w, Rand: rand.New(rand.NewPCG(1, 1))})
	require.NoError(t, err)
	require.False(t, a.BounceEnabled())
	return a, w
}

// withDirectOnlyPeer is newIdle whose peer has no bounce.
func withDirectOnlyPeer(t *testing.T) *Agent {
	a, w := newIdle(t, nil)
	addPlain(t, a, w)
	return a
}

// plainPeer is an agent without bounce.
var plainPeer = identity("plain", 3)

func addPlain(t *testing.T, a *Agent, w *world) {
	d, err := a.Describe()
	require.NoError(t, err)
	d.Identity, d.Bounce = plainPeer, nil
	added := false
	a.AddPeerAsync(d, false, func(r PeerReport, err error) { added = err == nil && !r.Bounce })
	a.Poll(w.now)
	require.True(t, added)
}
