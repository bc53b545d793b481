package porttest

import (
	"bytes"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

func controlNoPeer(w *controlWorld) {
	require.Equal(w.t, ports.NoPeer, w.send(w.A, w.B.Identity, w.frame(100)))
	w.A.Channel.Disconnect(w.B.Identity) // unknown peers are ignored
	w.connect(w.A, w.B)
	w.deliver(w.A, w.B, w.frame(100))
	require.Equal(w.t, ports.NoPeer, w.send(w.B, w.A.Identity, w.frame(100)), "a frame from a peer is no way back to it")
	w.A.Channel.Disconnect(w.A.Identity)
	w.deliver(w.A, w.B, w.frame(100))
	w.A.Channel.Disconnect(w.B.Identity)
	require.Equal(w.t, ports.NoPeer, w.send(w.A, w.B.Identity, w.frame(100)))
	w.A.Channel.Disconnect(w.B.Identity)
}

func controlConnectAgain(w *controlWorld) {
	require.NoError(w.t, w.A.Channel.Connect(w.B.Identity, w.Nowhere))
	w.fill(w.A, w.B.Identity)
	before := w.descriptors()
	for range 100 {
		require.NoError(w.t, w.A.Channel.Connect(w.B.Identity, w.Nowhere))
	}
	require.Equal(w.t, ports.Full, w.send(w.A, w.B.Identity, w.frame(100)), "connecting again emptied the queue")
	w.noMoreDescriptors(before)

	c := w.open()
	w.connect(c, w.B)
	w.deliver(c, w.B, w.frame(100))
	w.connect(c, w.B)
	w.deliver(c, w.B, w.frame(100))
}

func controlReplace(w *controlWorld) {
	require.NoError(w.t, w.A.Channel.Connect(w.B.Identity, w.Nowhere))
	w.fill(w.A, w.B.Identity)
	w.connect(w.A, w.B)
	w.deliver(w.A, w.B, w.frame(100))

	require.NoError(w.t, w.A.Channel.Connect(w.B.Identity, w.Nowhere))
	w.drain(w.B)
	lost := w.frame(100)
	w.send(w.A, w.B.Identity, lost)
	// Another peer's frame, sent later, shows that the channel has had its time.
	c := w.open()
	w.connect(c, w.B)
	w.deliver(c, w.B, w.frame(100))
	require.NotContains(w.t, w.arrived, string(lost), "a frame went to the endpoint that was replaced")
}

func controlMalformed(w *controlWorld) {
	w.connect(w.A, w.B)
	before := w.descriptors()
	bad := append([][]byte{nil, {}, bytes.Repeat(w.Nowhere, ports.MaxEndpointBytes/len(w.Nowhere)+1)}, w.Malformed...)
	for _, endpoint := range bad {
		shown := endpoint[:min(len(endpoint), 80)]
		require.Error(w.t, w.A.Channel.Connect("stranger#00000000000000ff", endpoint), "%q", shown)
		require.Equal(w.t, ports.NoPeer, w.send(w.A, "stranger#00000000000000ff", w.frame(100)), "%q", shown)
		require.Error(w.t, w.A.Channel.Connect(w.B.Identity, endpoint), "%q", shown)
	}
	w.deliver(w.A, w.B, w.frame(100))
	w.A.Channel.Disconnect(w.B.Identity)
	w.noMoreDescriptors(before)
}

func controlNobodyAnswers(w *controlWorld) {
	require.NoError(w.t, w.A.Channel.Connect(w.B.Identity, w.Nowhere))
	require.Equal(w.t, ports.Accepted, w.send(w.A, w.B.Identity, w.frame(100)))
	w.fill(w.A, w.B.Identity)
	for range 10_000 {
		require.NotEqual(w.t, ports.NoPeer, w.A.Channel.Send(w.B.Identity, []byte(ports.FrameMagic)))
	}
	// Others are reached all the same.
	c := w.open()
	w.connect(w.A, c)
	w.deliver(w.A, c, w.frame(100))
}

func controlDisconnect(w *controlWorld) {
	before := w.descriptors()
	require.NoError(w.t, w.A.Channel.Connect(w.B.Identity, w.Nowhere))
	w.fill(w.A, w.B.Identity)
	w.A.Channel.Disconnect(w.B.Identity)
	require.Equal(w.t, ports.NoPeer, w.send(w.A, w.B.Identity, w.frame(100)))
	w.noMoreDescriptors(before)

	queued := w.snapshot()
	w.connect(w.A, w.B)
	require.Equal(w.t, ports.Accepted, w.send(w.A, w.B.Identity, w.frame(100)), "the queue of a new connection is empty")
	w.deliver(w.A, w.B, w.frame(100))
	for _, frame := range queued {
		require.NotContains(w.t, w.arrived, frame, "a frame outlived the Disconnect")
	}
	w.A.Channel.Disconnect(w.B.Identity)
	w.noMoreDescriptors(before)
}

func controlCycles(w *controlWorld) {
	const cycles = 60
	before := w.descriptors()
	for i := range cycles {
		endpoint := w.B.Channel.Endpoint()
		if i%2 == 1 {
			endpoint = w.Nowhere
		}
		require.NoError(w.t, w.A.Channel.Connect(w.B.Identity, endpoint))
		require.Equal(w.t, ports.Accepted, w.send(w.A, w.B.Identity, w.frame(100)), "cycle %d", i)
		w.A.Channel.Disconnect(w.B.Identity)
	}
	w.noMoreDescriptors(before)
	w.connect(w.A, w.B)
	w.deliver(w.A, w.B, w.frame(100))
}

// controlSuccessor: whatever the successor is given was sent whole (recv checks that), and it is reached in the end.
func controlSuccessor(w *controlWorld) {
	w.connect(w.A, w.B)
	w.deliver(w.A, w.B, w.frame(100))
	endpoint := append([]byte(nil), w.B.Channel.Endpoint()...)
	for range 2 {
		require.NoError(w.t, w.B.Channel.Close())
		for _, size := range []int{100, w.MaxFrame, 100} {
			require.NotEqual(w.t, ports.NoPeer, w.send(w.A, w.B.Identity, w.frame(size)))
		}
		successor := w.reopen(endpoint)
		require.Equal(w.t, endpoint, successor.Channel.Endpoint())
		predecessor := w.B.Identity
		frame := w.frame(100)
		w.until("a frame for the predecessor", w.hasArrived(frame), func() { w.send(w.A, predecessor, frame) }, w.take(successor))
		w.connect(w.A, successor)
		w.deliver(w.A, successor, w.frame(100))
		w.A.Channel.Disconnect(predecessor)
		w.B = successor
	}
}

// controlPredecessorOnly is for kinds whose endpoints have no successors: a peer that is gone is like one that does not answer.
func controlPredecessorOnly(w *controlWorld) {
	w.connect(w.A, w.B)
	w.deliver(w.A, w.B, w.frame(100))
	require.NoError(w.t, w.B.Channel.Close())
	for range 100 {
		require.NotEqual(w.t, ports.NoPeer, w.send(w.A, w.B.Identity, w.frame(100)))
	}
	w.A.Channel.Disconnect(w.B.Identity)
	c := w.open()
	w.connect(w.A, c)
	w.deliver(w.A, c, w.frame(100))
}
