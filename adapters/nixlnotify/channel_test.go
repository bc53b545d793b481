package nixlnotify

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/ports"
)

func TestConfigErrors(t *testing.T) {
	fake := (&network{}).open("alice#0000000000000001")
	for want, cfg := range map[string]Config{
		"MAX_FRAME_SIZE 0": {},
		"queue of -1":      {MaxFrame: 1, QueueFrames: -1},
	} {
		_, _, err := New(fake, cfg)
		require.ErrorContains(t, err, want)
	}
	_, _, err := New(oddEngine{fake, nil, ports.ErrClosed}, Config{MaxFrame: 1})
	require.ErrorIs(t, err, ports.ErrClosed)
	_, _, err = New(oddEngine{fake, make([]byte, ports.MaxEndpointBytes), nil}, Config{MaxFrame: 1})
	require.ErrorContains(t, err, "65536 bytes")
	require.ErrorContains(t, err, "CONTROL=zmq")
}

// oddEngine has connection metadata of its own.
type oddEngine struct {
	*fakeEngine
	metadata []byte
	err      error
}

func (e oddEngine) ConnectionMetadata() ([]byte, error) { return e.metadata, e.err }

func TestEndpointRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		metadata := rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "metadata")
		endpoint := appendEndpoint(nil, metadata)
		got, err := parseEndpoint(endpoint)
		require.NoError(t, err)
		require.Equal(t, metadata, got)
		endpoint[rapid.IntRange(0, len(endpoint)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		_, err = parseEndpoint(endpoint)
		require.ErrorIs(t, err, ports.ErrBadMetadata)
	})
}

// Frames and the application's notifications share one inbox. Both sides get what is theirs, in order, whoever asks first.
func TestTheInboxIsShared(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := pair(t)
		require.NoError(rt, a.Connect(b.id, b.fake.full(0)))
		require.NoError(rt, a.channel.Connect(b.id, b.channel.Endpoint()))
		var frames, messages, gotFrames, gotMessages []string
		for i := range rapid.IntRange(0, 60).Draw(rt, "steps") {
			content := string(rune('a' + i))
			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0:
				require.Equal(rt, ports.Accepted, a.channel.Send(b.id, frame(content)))
				frames = append(frames, string(frame(content)))
			case 1:
				message := rapid.SampledFrom([]string{"", "K", "KVB", "kvbe", "KVBN"}).Draw(rt, "message") + content
				require.NoError(rt, a.Notify(b.id, []byte(message)))
				messages = append(messages, message)
			case 2:
				if f, key, ok := b.channel.Recv(nil); ok {
					require.Empty(rt, key)
					gotFrames = append(gotFrames, string(f))
				}
			case 3:
				if from, m, ok := b.RecvNotify(); ok {
					require.Equal(rt, a.id, from)
					gotMessages = append(gotMessages, string(m))
				}
			}
		}
		restFrames, restMessages := b.received()
		require.Equal(rt, frames, append(gotFrames, restFrames...))
		require.Equal(rt, messages, append(gotMessages, restMessages...))
		require.Zero(rt, b.channel.Stats().DroppedOverflow)
		require.EqualValues(rt, len(frames), b.channel.Stats().Received)
	})
}

func TestAnApplicationsMessageIsNoFrame(t *testing.T) {
	a, b := pair(t)
	require.NoError(t, a.Connect(b.id, b.fake.full(0)))
	require.NoError(t, a.channel.Connect(b.id, b.channel.Endpoint()))
	require.ErrorContains(t, a.Notify(b.id, frame("x")), ports.FrameMagic)
	require.Equal(t, ports.Accepted, a.channel.Send(b.id, []byte("KVBN")), "no frame: it is lost")
	frames, messages := b.received()
	require.Empty(t, frames)
	require.Empty(t, messages)
	require.EqualValues(t, 1, a.channel.Stats().DroppedOversize)
}

// A flood for the one side is bounded by dropping, and does not keep the other side's for long.
func TestFloods(t *testing.T) {
	for name, flood := range map[string]bool{"frames": true, "messages": false} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			big := make([]byte, testMaxFrame)
			if flood {
				copy(big, ports.FrameMagic)
			}
			const n = 100
			for range n {
				b.fake.inbox = append(b.fake.inbox, message{a.id, big})
			}
			limit := b.inbox.messages.limit
			take := func() bool { _, _, ok := b.channel.Recv(nil); return ok }
			if flood {
				limit = b.inbox.frames.limit
				take = func() bool { _, _, ok := b.RecvNotify(); return ok }
			}
			require.False(t, take(), "there is none")
			kept := n - int(b.channel.Stats().DroppedOverflow)
			require.Equal(t, limit/(testMaxFrame+messageOverhead), kept)
			frames, messages := b.received()
			require.Len(t, append(frames, messages...), kept)

			for range 3 * sortAtOnce {
				b.fake.inbox = append(b.fake.inbox, message{a.id, big[:8]})
			}
			b.fake.inbox = append(b.fake.inbox, message{a.id, []byte("hello")}, message{a.id, frame("hello")})
			calls := 1
			for ; !take(); calls++ {
				require.Less(t, calls, 10)
			}
			require.Equal(t, 4, calls, "each call goes through %d", sortAtOnce)
		})
	}
}

func TestFramesAreNotTakenAboveTheLimit(t *testing.T) {
	a, b := pair(t)
	b.fake.inbox = append(b.fake.inbox, message{a.id, frame(string(make([]byte, testMaxFrame)))}, message{a.id, frame("x")})
	frames, messages := b.received()
	require.Equal(t, []string{string(frame("x"))}, frames)
	require.Empty(t, messages)
	require.EqualValues(t, 1, b.channel.Stats().DroppedOversize)
	require.EqualValues(t, 1, b.channel.Counters()["dropped_oversize"])
}

func TestFull(t *testing.T) {
	a, b := pair(t)
	require.NoError(t, a.channel.Connect(b.id, b.channel.Endpoint()))
	fill := func(content string, want int) {
		t.Helper()
		taken := 0
		for ; a.channel.Send(b.id, frame(content)) == ports.Accepted; taken++ {
			require.LessOrEqual(t, taken, want)
		}
		require.Equal(t, want, taken)
	}
	fill("x", testQueueFrames)

	t.Run("anything from the peer makes room", func(t *testing.T) {
		for _, m := range []message{{b.id, frame("y")}, {b.id, []byte("hello")}} {
			a.fake.inbox = append(a.fake.inbox, message{"stranger#0000000000000009", frame("z")})
			a.received()
			require.Equal(t, ports.Full, a.channel.Send(b.id, frame("x")), "that was another one")
			a.fake.inbox = append(a.fake.inbox, m)
			a.received()
			fill("x", testQueueFrames)
		}
	})
	t.Run("bytes count too", func(t *testing.T) {
		a.fake.inbox = append(a.fake.inbox, message{b.id, frame("y")})
		a.received()
		a.channel.queueFrames = 1 << 20
		fill(string(make([]byte, testMaxFrame-len(ports.FrameMagic))), maxUnansweredBytes/testMaxFrame)
	})
	t.Run("a silent peer's connection is made anew, for one more frame", func(t *testing.T) {
		before := a.fake.connects
		a.channel.renewAfter = 0
		require.Equal(t, ports.Accepted, a.channel.Send(b.id, frame("x")))
		require.Equal(t, before+1, a.fake.connects)
		require.EqualValues(t, 1, a.channel.Stats().Renewed)
		a.channel.renewAfter = renewAfter
		require.Equal(t, ports.Full, a.channel.Send(b.id, frame("x")))
	})
	t.Run("but not one that the agent uses", func(t *testing.T) {
		require.NoError(t, a.Connect(b.id, b.fake.full(2)))
		before := a.fake.connects
		a.channel.renewAfter = 0
		require.Equal(t, ports.Accepted, a.channel.Send(b.id, frame("x")))
		require.Equal(t, before, a.fake.connects)
		a.channel.renewAfter = renewAfter
	})
	t.Run("when the engine refuses", func(t *testing.T) {
		a.fake.inbox = append(a.fake.inbox, message{b.id, frame("y")})
		a.received()
		a.fake.refuse = errors.New("too many wait")
		require.Equal(t, ports.Full, a.channel.Send(b.id, frame("x")))
		a.fake.refuse = nil
		require.Equal(t, ports.Accepted, a.channel.Send(b.id, frame("x")))
	})
}

// The engine outlives its channel: an agent whose bounce could not start goes on without one.
func TestTheEngineOutlivesTheChannel(t *testing.T) {
	a, b := pair(t)
	c := (&network{}).end(t, "carol")
	require.NoError(t, b.Connect(a.id, a.fake.full(1)))
	require.NoError(t, b.channel.Connect(a.id, a.channel.Endpoint()))
	require.NoError(t, b.channel.Connect(c.id, c.channel.Endpoint()))
	b.fake.inbox = append(b.fake.inbox, message{a.id, frame("x")}, message{a.id, []byte("hello")})
	require.NoError(t, b.channel.Close())
	require.Contains(t, b.fake.peers, a.id, "the agent uses it")
	require.NotContains(t, b.fake.peers, c.id)
	frames, messages := b.received()
	require.Empty(t, frames)
	require.Equal(t, []string{"hello"}, messages)
	require.Equal(t, ports.NoPeer, b.channel.Send(a.id, frame("x")))
	require.ErrorIs(t, b.channel.Connect(a.id, a.channel.Endpoint()), ports.ErrClosed)
	require.NoError(t, b.Notify(a.id, []byte("hello")))
}
