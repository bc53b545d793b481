package zmq

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

// TestPeerRestartsLeaveNothing lets a peer come back hundreds of times, each time with another identity at another port, send and be sent frames, and end with frames on their way both ways.
func TestPeerRestartsLeaveNothing(t *testing.T) {
	const restarts = 300
	a := newChannel(t, Config{})
	life := func(n uint64) {
		id, err := ports.NewIdentity("bob", n)
		require.NoError(t, err)
		b, err := New(Config{Bind: "tcp://127.0.0.1:0", MaxFrame: testMaxFrame})
		require.NoError(t, err)
		require.NoError(t, a.Connect(id, b.Endpoint()))
		require.NoError(t, b.Connect(alice, a.Endpoint()))
		text := fmt.Sprint("life ", n)
		require.Equal(t, ports.Accepted, a.Send(id, []byte(text)))
		require.Equal(t, text, string(next(t, b)))
		require.Equal(t, ports.Accepted, b.Send(alice, []byte(text)))
		eventually(t, text, func() bool { // behind what its predecessor had left
			frame, _, _ := a.Recv(nil)
			return string(frame) == text
		})
		a.Send(id, []byte("cut off"))
		b.Send(alice, []byte("cut off"))
		require.NoError(t, b.Close())
		a.Send(id, []byte("for nobody"))
		a.Disconnect(id)
	}
	life(0)
	open, goroutines := descriptors(t), runtime.NumGoroutine()
	for n := range uint64(restarts) {
		life(n + 1)
	}
	eventually(t, "every descriptor is given back", func() bool { return descriptors(t) <= open })
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
	require.Empty(t, a.peers)
}
