package zmq

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// connectRaw makes a connection that claims to be a DEALER with this routing id.
func connectRaw(t *testing.T, endpoint []byte, routingID []byte) net.Conn {
	body := "\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity" + string(binary.BigEndian.AppendUint32(nil, uint32(len(routingID)))) + string(routingID)
	conn, err := net.Dial("tcp", strings.TrimPrefix(string(endpoint), "tcp://"))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	_, err = conn.Write([]byte(greeting("NULL") + "\x04" + string([]byte{byte(len(body))}) + body))
	require.NoError(t, err)
	// libzmq 4.3.4 now and then resets a connection on which more comes before its own half of the handshake is out: its greeting, then READY with its length in the second byte.
	answer := make([]byte, 64+2)
	_, err = io.ReadFull(conn, answer)
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, answer[65]))
	require.NoError(t, err)
	return conn
}

// A flood of messages of many parts does not keep Recv from returning, and what honest peers send comes through.
func TestRecvReturnsUnderAFlood(t *testing.T) {
	c := newChannel(t, Config{})
	honest := newChannel(t, Config{})
	require.NoError(t, honest.Connect(bob, c.Endpoint()))
	conn := connectRaw(t, c.Endpoint(), nil)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		flood := bytes.Repeat(append(bytes.Repeat([]byte{1, 0}, 999), 0, 0), 32)
		for {
			if _, err := conn.Write(flood); err != nil {
				return
			}
		}
	}()
	empty, frames := 0, 0
	for deadline := time.Now().Add(20 * time.Second); (empty < 20 || frames == 0) && time.Now().Before(deadline); {
		honest.Send(bob, []byte("KVBE honest"))
		frame, _, ok := c.Recv(nil)
		switch {
		case ok && len(frame) == 0:
			empty++
		case ok:
			require.Equal(t, "KVBE honest", string(frame))
			frames++
		}
	}
	require.GreaterOrEqual(t, empty, 20, "Recv returned in the middle of the flood")
	require.Positive(t, frames)
	require.Positive(t, c.Stats().DroppedMultipart)
	conn.Close()
	<-stopped
}

// A connection may claim any routing id, the one that a ROUTER would give out next too: nothing ends the process. It runs in a child, since what it looks for is an abort.
func TestClaimedRoutingIDsEndNothing(t *testing.T) {
	if os.Getenv("ZMQ_ROUTING_CHILD") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestClaimedRoutingIDsEndNothing$")
		cmd.Env = append(os.Environ(), "ZMQ_ROUTING_CHILD=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return
	}
	c := newChannel(t, Config{})
	// libzmq numbers the connections of a ROUTER from rand(), which nobody seeds.
	connectRaw(t, c.Endpoint(), binary.BigEndian.AppendUint32([]byte{0}, 0x6b8b4567+20))
	for range 40 {
		connectRaw(t, c.Endpoint(), nil)
	}
	honest := newChannel(t, Config{})
	require.NoError(t, honest.Connect(bob, c.Endpoint()))
	require.Eventually(t, func() bool {
		honest.Send(bob, []byte("x"))
		_, _, ok := c.Recv(nil)
		return ok
	}, 20*time.Second, 10*time.Millisecond)
}
