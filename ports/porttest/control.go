package porttest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

// ControlEnd is a channel under test, and what its peers know of its owner.
type ControlEnd struct {
	Identity ports.Identity
	Channel  ports.ControlChannel
	// Key is the authenticated key under which this end's frames arrive: "" where the kind of channel does not authenticate.
	Key string
}

// ControlFixture is a world of channels of one kind that can reach each other. The suite closes every channel of it.
type ControlFixture struct {
	// A and B are open, and connected to nobody. B takes frames of MaxFrame bytes.
	A, B ControlEnd
	// Open adds a channel to the world. It calls t.Fatal when it can't.
	Open func(t *testing.T) ControlEnd
	// Reopen adds a channel, with an identity of its own, that listens at the endpoint of one that was closed. nil: an endpoint of this kind has no successors.
	Reopen func(t *testing.T, endpoint []byte) ControlEnd

	// MaxFrame is the channels' frame limit in bytes, at least 1024.
	MaxFrame int
	// QueueFrames is how many frames a peer that does not answer is sent, at most, before Send answers Full.
	QueueFrames int
	// Nowhere is an endpoint for B's identity that can be understood and that nobody answers.
	Nowhere []byte
	// Malformed are endpoints that can't be understood. The suite adds an empty one and one longer than MaxEndpointBytes.
	Malformed [][]byte
	// Descriptors says that connections cost file descriptors, which the suite then counts.
	Descriptors bool
	// Drive is called while the suite waits, for a channel that something else must drive. It may be nil.
	Drive func()
}

// ControlChannel is the contract of ports.ControlChannel. newPair is called once for each subtest.
func ControlChannel(t *testing.T, newPair func(t *testing.T) ControlFixture) {
	subtests := []struct {
		name string
		run  func(w *controlWorld)
	}{
		{"kind and endpoint are constant, for any goroutine", controlConstant},
		{"frames of every size arrive whole, both ways", controlSizes},
		{"Send and Connect copy", controlCopies},
		{"a frame is appended to the start of the buffer", controlBuffers},
		{"frames above the limit never come out and harm no other", controlOversize},
		{"frames of many peers arrive", controlManyPeers},
		{"WaitFD wakes", controlWaitFD},

		{"a peer that is not connected: NoPeer", controlNoPeer},
		{"Connect again does nothing", controlConnectAgain},
		{"Connect with another endpoint replaces the first", controlReplace},
		{"an endpoint that can't be understood is an error and changes nothing", controlMalformed},
		{"Send to a peer that does not answer never blocks: Accepted, then Full", controlNobodyAnswers},
		{"Disconnect gives everything back, queued frames included", controlDisconnect},
		{"many connections leave nothing behind", controlCycles},

		{"Close does not wait for queued frames", controlCloseQueued},
		{"Close again does nothing, from any goroutine", controlCloseAgain},
	}
	for _, s := range subtests {
		t.Run(s.name, func(t *testing.T) { s.run(newControlWorld(t, newPair(t))) })
	}
	t.Run("frames for a predecessor reach a successor whole, or not at all", func(t *testing.T) {
		w := newControlWorld(t, newPair(t))
		if w.Reopen == nil {
			controlPredecessorOnly(w)
			return
		}
		controlSuccessor(w)
	})
}

func controlConstant(w *controlWorld) {
	kind, endpoint := w.B.Channel.Kind(), string(w.B.Channel.Endpoint())
	require.NotEqual(w.t, ports.ControlKind(0).String(), kind.String(), "the kind has no name")
	require.NotEmpty(w.t, endpoint)
	require.LessOrEqual(w.t, len(endpoint), ports.MaxEndpointBytes)

	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			if w.B.Channel.Kind() != kind || string(w.B.Channel.Endpoint()) != endpoint {
				w.t.Error("kind or endpoint changed")
				return
			}
		}
	}()
	w.connect(w.A, w.B)
	w.connect(w.B, w.A)
	w.deliver(w.A, w.B, w.frame(100))
	w.deliver(w.B, w.A, w.frame(100))
	<-done
	require.Equal(w.t, kind, w.B.Channel.Kind())
	require.Equal(w.t, endpoint, string(w.B.Channel.Endpoint()))
}

func controlCloseQueued(w *controlWorld) {
	require.NoError(w.t, w.A.Channel.Connect(w.B.Identity, w.Nowhere))
	require.Equal(w.t, ports.Accepted, w.send(w.A, w.B.Identity, w.frame(100)))
	require.NoError(w.t, w.A.Channel.Close())
}

func controlCloseAgain(w *controlWorld) {
	w.connect(w.A, w.B)
	w.deliver(w.A, w.B, w.frame(100))
	results := make(chan error)
	for range 4 {
		go func() { results <- w.B.Channel.Close() }()
	}
	for range 4 {
		require.NoError(w.t, <-results)
	}
	for range 2 {
		require.NoError(w.t, w.A.Channel.Close())
	}
}
