package zmq

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"
	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/ports/porttest"
)

// keyring is a folder with keys of some names, each authorized.
type keyring struct {
	dir   string
	pairs map[string]KeyPair
}

func newKeyring(t *testing.T, names ...string) *keyring {
	k := &keyring{dir: filepath.Join(t.TempDir(), "authorized"), pairs: map[string]KeyPair{}}
	require.NoError(t, os.Mkdir(k.dir, 0o755))
	for _, name := range names {
		k.authorize(t, k.make(t, name))
	}
	return k
}

// make makes keys that are not authorized.
func (k *keyring) make(t *testing.T, name string) KeyPair {
	pair, err := WriteKeyPair(t.TempDir(), name)
	require.NoError(t, err)
	k.pairs[name] = pair
	return pair
}

func (k *keyring) authorize(t *testing.T, pair KeyPair) {
	content, err := os.ReadFile(pair.PublicFile)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(k.dir, filepath.Base(pair.PublicFile)), content, 0o644))
}

// of are the settings of an agent of that name.
func (k *keyring) of(name string) Config {
	return Config{CurveSecretKeyFile: k.pairs[name].SecretFile, CurveAuthorizedKeysDir: k.dir}
}

// nextOf waits for a frame and gives its key's owner too.
func nextOf(t *testing.T, c *Channel) (frame, owner string) {
	t.Helper()
	eventually(t, "a frame", func() bool {
		b, key, ok := c.Recv(nil)
		frame, owner = string(b), key
		return ok
	})
	return frame, owner
}

// refusesAll shows that nothing comes out of c while send goes on, until enough says so.
func refusesAll(t *testing.T, c *Channel, send func(), enough func() bool) {
	t.Helper()
	eventually(t, "the refusals", func() bool {
		send()
		_, _, ok := c.Recv(nil)
		require.False(t, ok, "a frame came through")
		return enough()
	})
}

// The channel keeps every promise of the port with CURVE too.
func TestCurveControlChannelContract(t *testing.T) {
	keys := newKeyring(t, "agent")
	porttest.ControlChannel(t, func(t *testing.T) porttest.ControlFixture {
		f := newFixture(t)
		opened := uint64(0)
		openAt := func(t *testing.T, bind string) porttest.ControlEnd {
			opened++
			id, err := ports.NewIdentity("agent", opened)
			require.NoError(t, err)
			cfg := keys.of("agent")
			cfg.Bind, _, _ = strings.Cut(bind, curveMark)
			return porttest.ControlEnd{Identity: id, Channel: newChannel(t, cfg), Key: "agent"}
		}
		f.Open = func(t *testing.T) porttest.ControlEnd { return openAt(t, "tcp://127.0.0.1:0") }
		f.Reopen = func(t *testing.T, endpoint []byte) porttest.ControlEnd { return openAt(t, string(endpoint)) }
		f.A, f.B = f.Open(t), f.Open(t)
		f.Nowhere = append(f.Nowhere, curveMark+keys.pairs["agent"].PublicKey...)
		return f
	})
}

// Each frame comes with the name that its sender's key belongs to, whatever the frame says.
func TestCurveNamesTheOwnerOfTheKey(t *testing.T) {
	keys := newKeyring(t, "alice", "bob", "eve")
	a, b, e := newChannel(t, keys.of("alice")), newChannel(t, keys.of("bob")), newChannel(t, keys.of("eve"))
	require.Regexp(t, `^tcp://127\.0\.0\.1:\d+\?curve=.{40}$`, string(b.Endpoint()))
	require.NoError(t, a.Connect(bob, b.Endpoint()))
	require.NoError(t, b.Connect(alice, a.Endpoint()))
	require.NoError(t, e.Connect(bob, b.Endpoint()))
	require.Equal(t, ports.Accepted, a.Send(bob, []byte("from alice")))
	frame, owner := nextOf(t, b)
	require.Equal(t, []string{"from alice", "alice"}, []string{frame, owner})
	require.Equal(t, ports.Accepted, b.Send(alice, []byte("and back")))
	frame, owner = nextOf(t, a)
	require.Equal(t, []string{"and back", "bob"}, []string{frame, owner})
	require.Equal(t, ports.Accepted, e.Send(bob, []byte("alice#0000000000000001 says")))
	frame, owner = nextOf(t, b)
	require.Equal(t, []string{"alice#0000000000000001 says", "eve"}, []string{frame, owner})
	require.Zero(t, b.Stats().RefusedKeys)
}

// The routing id is a claim: with CURVE it changes nothing either.
func TestCurveClaimedRoutingID(t *testing.T) {
	keys := newKeyring(t, "alice", "eve")
	a := newChannel(t, keys.of("alice"))
	for range 2 {
		s := rawClient(t, keys, "eve", a)
		require.NoError(t, s.SetIdentity("alice#0000000000000001"))
		require.NoError(t, s.Connect(endpointText(a.endpoint.at)))
		_, err := s.Send("hello", 0)
		require.NoError(t, err)
	}
	_, owner := nextOf(t, a)
	require.Equal(t, "eve", owner)
}

// rawClient is another program's socket with one of the keys.
func rawClient(t *testing.T, keys *keyring, name string, to *Channel) *zmq4.Socket {
	s := rawSocket(t, zmq4.DEALER)
	secret, err := os.ReadFile(keys.pairs[name].SecretFile)
	require.NoError(t, err)
	require.NoError(t, s.ClientAuthCurve(to.endpoint.key, keys.pairs[name].PublicKey, strings.TrimSpace(string(secret))))
	return s
}

func TestCurveRefusesAnUnknownKey(t *testing.T) {
	var log lockedBuffer
	keys := newKeyring(t, "alice", "bob")
	stranger := keys.make(t, "stranger")
	cfg := keys.of("bob")
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	b := newChannel(t, cfg)
	s := newChannel(t, keys.of("stranger"))
	require.NoError(t, s.Connect(bob, b.Endpoint()))
	refusesAll(t, b, func() { s.Send(bob, []byte("let me in")) }, func() bool { return b.Stats().RefusedKeys > 0 })
	require.Contains(t, log.String(), stranger.PublicKey)
	require.Contains(t, log.String(), "from=127.0.0.1")

	// Others are not held up, and it is let in once its key is there.
	a := newChannel(t, keys.of("alice"))
	require.NoError(t, a.Connect(bob, b.Endpoint()))
	require.Equal(t, ports.Accepted, a.Send(bob, []byte("x")))
	_, owner := nextOf(t, b)
	require.Equal(t, "alice", owner)
	keys.authorize(t, stranger)
	s.renewAfter = 0
	eventually(t, "the stranger is let in", func() bool {
		s.Send(bob, []byte("now?"))
		_, owner, _ := b.Recv(nil)
		return owner == "stranger"
	})
}

// A key that is taken away loses its open connections too, in both directions.
func TestCurveRevokedKey(t *testing.T) {
	keys := newKeyring(t, "alice", "bob")
	a, b := newChannel(t, keys.of("alice")), newChannel(t, keys.of("bob"))
	require.NoError(t, a.Connect(bob, b.Endpoint()))
	require.NoError(t, b.Connect(alice, a.Endpoint()))
	require.Equal(t, ports.Accepted, a.Send(bob, []byte("x")))
	_, owner := nextOf(t, b)
	require.Equal(t, "alice", owner)
	require.NoError(t, os.Remove(filepath.Join(keys.dir, "alice")))
	eventually(t, "the key is forgotten", func() bool { return !b.curve.authorized.isOf("alice", keys.pairs["alice"].PublicKey) })
	refusesAll(t, b, func() { a.Send(bob, []byte("still there?")) }, func() bool { return b.Stats().DroppedUnauthorized > 3 })
	require.Equal(t, ports.NoPeer, b.Send(alice, []byte("x")))
	require.ErrorContains(t, b.Connect(alice, a.Endpoint()), `no key of the name "alice"`)
}

// Clients without CURVE, or with another server's key, get nowhere and harm nobody.
func TestCurveRefusesOtherClients(t *testing.T) {
	keys := newKeyring(t, "alice", "bob")
	b := newChannel(t, keys.of("bob"))
	plain := rawSocket(t, zmq4.DEALER)
	require.NoError(t, plain.Connect(endpointText(b.endpoint.at)))
	password := rawSocket(t, zmq4.DEALER)
	require.NoError(t, password.ClientAuthPlain("alice", "secret"))
	require.NoError(t, password.Connect(endpointText(b.endpoint.at)))
	wrongServer := rawClient(t, keys, "alice", &Channel{endpoint: endpoint{key: someKey}})
	require.NoError(t, wrongServer.Connect(endpointText(b.endpoint.at)))
	for _, s := range []*zmq4.Socket{plain, password, wrongServer} {
		_, err := s.SendMessageDontwait("hello")
		require.NoError(t, err)
	}
	a := newChannel(t, keys.of("alice"))
	require.NoError(t, a.Connect(bob, b.Endpoint()))
	for range 20 {
		require.Equal(t, ports.Accepted, a.Send(bob, []byte("x")))
		frame, owner := nextOf(t, b)
		require.Equal(t, []string{"x", "alice"}, []string{frame, owner})
		time.Sleep(5 * time.Millisecond) // meanwhile the others try again
	}
}

func TestCurveGarbageOnThePort(t *testing.T) {
	keys := newKeyring(t, "alice", "bob")
	b := newChannel(t, keys.of("bob"))
	greeting := greeting("CURVE")
	for name, bytes := range map[string]string{
		"nothing after the greeting": greeting,
		"a short HELLO":              greeting + "\x04\x06\x05HELLO",
		"a HELLO of zeros":           greeting + "\x04\xc8\x05HELLO\x01\x00" + strings.Repeat("\x00", 192),
		"a message at once":          greeting + "\x00\x05hello",
		"READY without a handshake":  greeting + "\x04\x06\x05READY",
	} {
		conn, err := net.Dial("tcp", endpointText(b.endpoint.at)[len(scheme):])
		require.NoError(t, err, name)
		_, _ = conn.Write([]byte(bytes)) // the channel may hang up meanwhile
		defer conn.Close()
	}
	a := newChannel(t, keys.of("alice"))
	require.NoError(t, a.Connect(bob, b.Endpoint()))
	require.Equal(t, ports.Accepted, a.Send(bob, []byte("x")))
	frame, _ := nextOf(t, b)
	require.Equal(t, "x", frame)
}

// Two agents that disagree about CURVE or keys learn so in words, and nothing of the disagreement changes what is known.
func TestCurveConnectSaysWhatIsWrong(t *testing.T) {
	keys := newKeyring(t, "alice", "bob")
	other := newKeyring(t, "bob", "eve")
	a, b, plain := newChannel(t, keys.of("alice")), newChannel(t, keys.of("bob")), newChannel(t, Config{})
	otherBob := newChannel(t, other.of("bob"))
	for want, err := range map[string]error{
		"this agent has no keys":                  plain.Connect(bob, b.Endpoint()),
		"does not speak CURVE and this agent's d": a.Connect(bob, plain.Endpoint()),
		"another than the peer's":                 a.Connect(bob, otherBob.Endpoint()),
		`no key of the name "eve"`:                a.Connect("eve#0000000000000003", b.Endpoint()),
		`the key of the name "alice"`:             a.Connect(alice, b.Endpoint()), // bob's endpoint under alice's name
	} {
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "\n")
	}
	require.Empty(t, a.peers)
	require.Equal(t, ports.NoPeer, a.Send(bob, []byte("x")))
}

// A server that does not hold the key that belongs to the peer's name gets nothing, even at the peer's address.
func TestCurveClientRefusesAnotherServer(t *testing.T) {
	keys := newKeyring(t, "alice", "bob", "eve")
	a, b := newChannel(t, keys.of("alice")), newChannel(t, keys.of("bob"))
	endpoint := b.Endpoint()
	require.NoError(t, b.Close())
	cfg := keys.of("eve")
	cfg.Bind = endpointText(b.endpoint.at)
	e := newChannel(t, cfg)
	require.NoError(t, a.Connect(bob, endpoint))
	for range 100 {
		a.Send(bob, []byte("for bob alone"))
		_, _, ok := e.Recv(nil)
		require.False(t, ok)
		time.Sleep(2 * time.Millisecond)
	}
}

func TestCurveFrameLimitIsExact(t *testing.T) {
	keys := newKeyring(t, "alice", "bob")
	small := keys.of("bob")
	small.MaxFrame = 1000
	a, b := newChannel(t, keys.of("alice")), newChannel(t, small)
	require.NoError(t, a.Connect(bob, b.Endpoint()))
	require.Equal(t, ports.Accepted, a.Send(bob, make([]byte, 1000)))
	frame, _ := nextOf(t, b)
	require.Len(t, frame, 1000)
	require.Equal(t, ports.Accepted, a.Send(bob, make([]byte, 1001)))
	eventually(t, "a frame of the limit after one above it", func() bool {
		a.Send(bob, make([]byte, 1000))
		frame, _, ok := b.Recv(nil)
		require.LessOrEqual(t, len(frame), 1000)
		return ok
	})
}

// Agents of one process have handlers of their own: what one authorizes, another does not.
func TestCurveChannelsOfOneProcessDoNotInterfere(t *testing.T) {
	keys, other := newKeyring(t, "alice", "bob"), newKeyring(t, "alice", "bob")
	a, b := newChannel(t, keys.of("alice")), newChannel(t, keys.of("bob"))
	otherA, otherB := newChannel(t, other.of("alice")), newChannel(t, other.of("bob"))
	require.NoError(t, a.Connect(bob, b.Endpoint()))
	require.NoError(t, otherA.Connect(bob, otherB.Endpoint()))
	trespasser := rawClient(t, keys, "alice", otherB)
	require.NoError(t, trespasser.Connect(endpointText(otherB.endpoint.at)))
	_, err := trespasser.Send("trespasser", 0)
	require.NoError(t, err)
	eventually(t, "the refusal", func() bool { return otherB.Stats().RefusedKeys > 0 })
	require.NoError(t, otherA.Close()) // the end of one channel's handler leaves the others'
	require.Equal(t, ports.Accepted, a.Send(bob, []byte("x")))
	frame, owner := nextOf(t, b)
	require.Equal(t, []string{"x", "alice"}, []string{frame, owner})
	_, _, ok := otherB.Recv(nil)
	require.False(t, ok)
}

func TestWarnsOfAnOpenPort(t *testing.T) {
	keys := newKeyring(t, "alice")
	for _, c := range []struct {
		cfg   Config
		warns int
	}{
		{Config{}, 0},
		{Config{Bind: "tcp://[::1]:0"}, 0},
		{Config{Bind: "tcp://*:0", Advertise: "127.0.0.1"}, 1},
		{Config{Bind: "tcp://0.0.0.0:0", Advertise: "127.0.0.1"}, 1},
		{Config{Bind: "tcp://*:0", Advertise: "127.0.0.1", CurveSecretKeyFile: keys.pairs["alice"].SecretFile, CurveAuthorizedKeysDir: keys.dir}, 0},
	} {
		var log lockedBuffer
		c.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		newChannel(t, c.cfg)
		require.Equal(t, c.warns, strings.Count(log.String(), "neither encrypted nor authenticated"), "%+v", c.cfg)
	}
}

// What is no request of libzmq's is answered and authorizes nobody.
func TestCurveAnswersStrangeRequests(t *testing.T) {
	keys := newKeyring(t, "alice")
	a := newChannel(t, keys.of("alice"))
	good := [][]byte{[]byte("1.0"), []byte("7"), []byte(zapDomain), []byte("10.0.0.1"), nil, []byte("CURVE"), []byte(zmq4.Z85decode(keys.pairs["alice"].PublicKey))}
	require.Equal(t, []any{"1.0", good[1], "200", "OK", keys.pairs["alice"].PublicKey, ""}, a.curve.answer(good))
	for i, bad := range map[int][]byte{0: []byte("2.0"), 5: []byte("PLAIN"), 6: make([]byte, 31)} {
		request := append([][]byte(nil), good...)
		request[i] = bad
		require.Equal(t, "500", a.curve.answer(request)[2])
	}
	for n := range good {
		require.Equal(t, "500", a.curve.answer(good[:n])[2])
	}
	require.Equal(t, "500", a.curve.answer(append(good, nil))[2])

	// libzmq lets everyone in when it can't ask. Messages of whom it did not ask about are nobody's.
	_, ok := a.ownerOf("")
	require.False(t, ok)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
