package zmq

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"

	zmq4 "github.com/pebbe/zmq4"
	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

// rawSocket is a socket of another program's.
func rawSocket(t *testing.T, kind zmq4.Type) *zmq4.Socket {
	t.Helper()
	s, err := zmq4.NewSocket(kind)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.SetLinger(0))
	return s
}

// checkReached shows that a channel still takes frames.
func checkReached(t *testing.T, c *Channel) {
	t.Helper()
	a := newChannel(t, Config{})
	require.NoError(t, a.Connect(bob, c.Endpoint()))
	require.Equal(t, ports.Accepted, a.Send(bob, []byte("still there")))
	eventually(t, "the frame", func() bool {
		frame, _, _ := c.Recv(nil)
		return string(frame) == "still there"
	})
}

func TestMessagesOfSeveralPartsAreDropped(t *testing.T) {
	c := newChannel(t, Config{})
	raw := rawSocket(t, zmq4.DEALER)
	require.NoError(t, raw.Connect(string(c.Endpoint())))
	for _, parts := range [][]string{{"one"}, {"a", "b"}, {""}, {"", ""}, {"a", "b", "c", "", "d"}, {"two"}} {
		_, err := raw.SendMessage(parts)
		require.NoError(t, err)
	}
	require.Equal(t, "one", string(next(t, c)))
	require.Equal(t, "", string(next(t, c)))
	require.Equal(t, "two", string(next(t, c)))
	require.Equal(t, uint64(3), c.Stats().DroppedMultipart)
	require.Equal(t, uint64(3), c.Stats().Received)
	require.Zero(t, c.Stats().RecvErrors)
}

// Routing ids mean nothing: two peers that claim the same one, or that of a third, change nothing for others.
func TestClaimedRoutingIDsChangeNothing(t *testing.T) {
	c := newChannel(t, Config{})
	for range 2 {
		s := rawSocket(t, zmq4.DEALER)
		require.NoError(t, s.SetIdentity(string(bob)))
		require.NoError(t, s.Connect(string(c.Endpoint())))
		_, err := s.Send("hello", 0)
		require.NoError(t, err)
	}
	require.Equal(t, "hello", string(next(t, c)))
	checkReached(t, c)
}

func TestPeersOversizeFrameIsRefused(t *testing.T) {
	b := newChannel(t, Config{MaxFrame: 1000})
	a := newChannel(t, Config{MaxFrame: 100_000})
	require.NoError(t, a.Connect(bob, b.Endpoint()))
	for _, size := range []int{1001, 100_000} {
		eventually(t, "room in the queue", func() bool { return a.Send(bob, make([]byte, size)) == ports.Accepted })
		// The connection is closed for it, and made anew: frames behind it may be lost.
		eventually(t, "a frame of the limit", func() bool {
			a.Send(bob, make([]byte, 1000))
			frame, _, ok := b.Recv(nil)
			require.LessOrEqual(t, len(frame), 1000)
			return ok
		})
	}
	checkReached(t, b)
}

// A far end that talks back over the socket that we only send on must not fill this process: nothing reads it.
func TestFarEndThatTalksBack(t *testing.T) {
	raw := rawSocket(t, zmq4.ROUTER)
	require.NoError(t, raw.SetSndhwm(10))
	require.NoError(t, raw.SetRouterMandatory(1))
	require.NoError(t, raw.Bind("tcp://127.0.0.1:*"))
	endpoint, err := raw.GetLastEndpoint()
	require.NoError(t, err)
	a := newChannel(t, Config{})
	require.NoError(t, a.Connect(bob, []byte(endpoint)))
	require.Equal(t, ports.Accepted, a.Send(bob, []byte("x")))
	id, err := raw.Recv(0)
	require.NoError(t, err)
	_, err = raw.Recv(0)
	require.NoError(t, err)

	// Small messages back up at the far end, after what one connection's kernel buffers hold.
	small := strings.Repeat("y", backwardBytes)
	eventually(t, "the far end is held up", func() bool {
		_, err := raw.SendMessageDontwait(id, small)
		return err != nil
	})
	require.Equal(t, ports.Accepted, a.Send(bob, []byte("x")), "frames still go out")
	frame, err := raw.RecvMessage(0)
	require.NoError(t, err)
	require.Equal(t, "x", frame[1])
	c := newChannel(t, Config{})
	require.NoError(t, a.Connect(alice, c.Endpoint()))
	require.Equal(t, ports.Accepted, a.Send(alice, []byte("others are not held up")))
	require.Equal(t, "others are not held up", string(next(t, c)))
}

// greeting begins a connection of ZMTP 3.0 with this mechanism.
func greeting(mechanism string) string {
	g := make([]byte, 64)
	g[0], g[9], g[10] = 0xFF, 0x7F, 3
	copy(g[12:], mechanism)
	return string(g)
}

// Bytes that are no ZMTP, or claim to be huge, end their own connection.
func TestGarbageOnThePort(t *testing.T) {
	c := newChannel(t, Config{})
	greeting := greeting("NULL")
	ready := "\x04\x26\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"
	handshake := greeting + ready
	hugeFrame := "\x02" + string(binary.BigEndian.AppendUint64(nil, 1<<63-1))
	for name, bytes := range map[string]string{
		"HTTP":                     "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"zeros":                    strings.Repeat("\x00", 10_000),
		"ones":                     strings.Repeat("\xff", 10_000),
		"half a greeting":          greeting[:20],
		"a command as first frame": greeting + "\x04\x05\x04PING",
		"an endless frame":         handshake + hugeFrame + strings.Repeat("x", 100_000),
		"an endless command":       greeting + "\x06" + string(binary.BigEndian.AppendUint64(nil, 1<<63-1)),
		"half a message":           handshake + "\x01\x01x",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(string(c.Endpoint()), "tcp://"))
		require.NoError(t, err, name)
		_, _ = conn.Write([]byte(bytes)) // the channel may hang up meanwhile
		checkReached(t, c)
		require.NoError(t, conn.Close(), name)
		checkReached(t, c)
	}
	_, _, ok := c.Recv(nil)
	require.False(t, ok, "nothing of it came out")
}
