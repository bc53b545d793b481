package wiring_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/adapters/zmq"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

// curveConfigs are settings for agents of these names, who know each other's keys.
func curveConfigs(t *testing.T, names ...string) map[string]config.Config {
	authorized, out := t.TempDir(), map[string]config.Config{}
	for _, name := range names {
		pair, err := wiring.WriteKeyPair(t.TempDir(), name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(authorized, name), []byte(pair.PublicKey), 0o644))
		c := testConfig()
		c.CurveSecretKeyFile, c.CurveAuthorizedKeysDir = pair.SecretFile, authorized
		out[name] = c
	}
	return out
}

func startNode(t *testing.T, name string, c config.Config) *wiring.Node {
	node, err := wiring.New(wiring.Params{Name: name, Config: c, BounceRequired: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	return node
}

// An authorized peer that speaks in another's name is not listened to (attacks.md, 5): its frames are dropped and counted, and make no peer entry.
func TestFramesInAnothersNameAreDropped(t *testing.T) {
	configs := curveConfigs(t, "alice", "bob", "eve")
	a, b := startNode(t, "alice", configs["alice"]), startNode(t, "bob", configs["bob"])
	connect(t, b, a)
	desc, err := b.Describe()
	require.NoError(t, err)
	var h wire.Handshake
	require.NoError(t, h.Decode(desc.Bounce))

	c := configs["eve"]
	eve, err := zmq.New(zmq.Config{
		Bind: "tcp://127.0.0.1:0", MaxFrame: 1 << 20, CurveSecretKeyFile: c.CurveSecretKeyFile, CurveAuthorizedKeysDir: c.CurveAuthorizedKeysDir,
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, eve.Close()) }()
	require.NoError(t, eve.Connect(b.Identity(), h.Endpoint))
	self, err := ports.NewIdentity("eve", 7)
	require.NoError(t, err)
	other, err := ports.NewIdentity("alice", 8)
	require.NoError(t, err)
	say := func(from ports.Identity) {
		drain := wire.Drain{Request: 1, Endpoint: eve.Endpoint()}
		require.Equal(t, ports.Accepted, eve.Send(b.Identity(), drain.Append(wire.AppendEnvelope(nil, from, b.Identity()))))
	}
	counts := func(c transport.Counter, n uint64) {
		require.Eventually(t, func() bool { return b.Counter(c) == n }, 20*time.Second, time.Millisecond, "%v is %d, want %d", c, b.Counter(c), n)
	}
	say(a.Identity())
	say(other)
	counts(transport.FramesForged, 2)
	require.Zero(t, b.Counter(transport.FramesSent), "a forged frame is not answered")
	say(self)
	counts(transport.FramesSent, 1) // in her own name she is answered
	require.EqualValues(t, 2, b.Counter(transport.FramesForged))
	require.EqualValues(t, 3, b.Counter(transport.FramesReceived))
	answer := func() bool {
		frame, owner, ok := eve.Recv(nil)
		if !ok {
			return false
		}
		env, err := wire.DecodeEnvelope(frame)
		require.NoError(t, err)
		require.Equal(t, []string{"bob", string(b.Identity()), string(self)}, []string{owner, string(env.From), string(env.To)})
		return true
	}
	require.Eventually(t, answer, 20*time.Second, time.Millisecond)
}

// A stranger in its own name can't have the answers sent to another's socket: an endpoint's key must be the name's.
func TestWayBackNeedsTheNamesKey(t *testing.T) {
	configs := curveConfigs(t, "alice", "bob", "eve")
	a, b := startNode(t, "alice", configs["alice"]), startNode(t, "bob", configs["bob"])
	desc, err := a.Describe()
	require.NoError(t, err)
	var toAlice, toBob wire.Handshake
	require.NoError(t, toAlice.Decode(desc.Bounce))
	desc, err = b.Describe()
	require.NoError(t, err)
	require.NoError(t, toBob.Decode(desc.Bounce))
	c := configs["eve"]
	eve, err := zmq.New(zmq.Config{
		Bind: "tcp://127.0.0.1:0", MaxFrame: 1 << 20, CurveSecretKeyFile: c.CurveSecretKeyFile, CurveAuthorizedKeysDir: c.CurveAuthorizedKeysDir,
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, eve.Close()) }()
	require.NoError(t, eve.Connect(b.Identity(), toBob.Endpoint))
	self, err := ports.NewIdentity("eve", 7)
	require.NoError(t, err)
	drain := wire.Drain{Request: 1, Endpoint: toAlice.Endpoint}
	require.Equal(t, ports.Accepted, eve.Send(b.Identity(), drain.Append(wire.AppendEnvelope(nil, self, b.Identity()))))
	require.Eventually(t, func() bool { return b.Counter(transport.SendsNoPeer) > 0 }, 20*time.Second, time.Millisecond, "the answer finds no way back")
	require.Zero(t, b.Counter(transport.FramesSent))
	require.Zero(t, a.Counter(transport.FramesReceived))
}

// With keys that can't be used an agent does not start, rather than run in the clear.
func TestBadKeysStopTheStart(t *testing.T) {
	c := curveConfigs(t, "alice")["alice"]
	require.NoError(t, os.Chmod(c.CurveSecretKeyFile, 0o644))
	for _, required := range []bool{true, false} {
		_, err := wiring.New(wiring.Params{Name: "alice", Config: c, BounceRequired: required})
		require.ErrorContains(t, err, "CURVE_SECRET_KEY_FILE: ")
		require.ErrorContains(t, err, "mode 0644")
	}
	require.ErrorContains(t, wiring.CheckKeys(c), "mode 0644")
}
