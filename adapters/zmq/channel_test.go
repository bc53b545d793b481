package zmq

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kvbounce/kvbounce/ports"
)

const (
	alice = ports.Identity("alice#0000000000000001")
	bob   = ports.Identity("bob#0000000000000002")
)

// patience is when a test gives up on something that must happen.
const patience = 30 * time.Second

// eventually repeats step until it says that it is done.
func eventually(t *testing.T, what string, step func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !step(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "%s: not after %s", what, patience)
	}
}

// next waits for a frame.
func next(t *testing.T, c *Channel) (frame []byte) {
	t.Helper()
	eventually(t, "a frame", func() (ok bool) {
		frame, _, ok = c.Recv(nil)
		return ok
	})
	return frame
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(open)
}

func TestConfigErrorsNameTheSetting(t *testing.T) {
	before := descriptors(t)
	taken := newChannel(t, Config{})
	for want, cfg := range map[string]Config{
		"MAX_FRAME_SIZE 0":                         {Bind: "tcp://127.0.0.1:0"},
		"MAX_FRAME_SIZE -5":                        {Bind: "tcp://127.0.0.1:0", MaxFrame: -5},
		"queue of -1":                              {Bind: "tcp://127.0.0.1:0", MaxFrame: 1, QueueFrames: -1},
		`CONTROL_BIND "": want`:                    {MaxFrame: 1},
		`CONTROL_BIND "ipc:///x": want`:            {Bind: "ipc:///x", MaxFrame: 1},
		`CONTROL_ADVERTISE "node7": want`:          {Bind: "tcp://127.0.0.1:0", Advertise: "node7", MaxFrame: 1},
		"CONTROL_BIND tcp://203.0.113.7:0: this m": {Bind: "tcp://203.0.113.7:0", MaxFrame: 1},
		"CONTROL_BIND " + taken.endpoint.String() + ": another socket has this port; stop its owner, choose another port, or use port 0": {Bind: taken.endpoint.String(), MaxFrame: 1},
	} {
		_, err := New(cfg)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "\n")
	}
	require.NoError(t, taken.Close())
	require.LessOrEqual(t, descriptors(t), before, "a channel that could not be opened left something behind")
}

func TestPortInUseByAnotherProgram(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer other.Close()
	_, err = New(Config{Bind: "tcp://" + other.Addr().String(), MaxFrame: 1})
	require.ErrorIs(t, err, zmq4.EADDRINUSE)
	require.ErrorContains(t, err, "CONTROL_BIND tcp://"+other.Addr().String())
}

func TestIPv6Loopback(t *testing.T) {
	a, b := newChannel(t, Config{Bind: "tcp://[::1]:0"}), newChannel(t, Config{Bind: "tcp://[::1]:0"})
	require.Regexp(t, `^tcp://\[::1\]:[1-9]\d*$`, string(a.Endpoint()))
	require.NoError(t, a.Connect(bob, b.Endpoint()))
	require.NoError(t, b.Connect(alice, a.Endpoint()))
	require.Equal(t, ports.Accepted, a.Send(bob, []byte("there")))
	require.Equal(t, "there", string(next(t, b)))
	require.Equal(t, ports.Accepted, b.Send(alice, []byte("and back")))
	require.Equal(t, "and back", string(next(t, a)))
}

func TestEveryAddressTakesBothFamilies(t *testing.T) {
	for _, advertise := range []string{"127.0.0.1", "::1", "tcp://127.0.0.1:0", "tcp://[::1]:0"} {
		b := newChannel(t, Config{Bind: "tcp://*:0", Advertise: advertise})
		a := newChannel(t, Config{})
		require.NoError(t, a.Connect(bob, b.Endpoint()), "%s", b.Endpoint())
		require.Equal(t, ports.Accepted, a.Send(bob, []byte(advertise)))
		require.Equal(t, advertise, string(next(t, b)))
	}
}

// Without CONTROL_ADVERTISE, what is advertised depends on the machine's routes, and so does the expectation.
func TestEveryAddressAdvertisesTheDefaultRoute(t *testing.T) {
	want, err := routeSource(farIPv4)
	if err != nil {
		want, err = routeSource(farIPv6)
	}
	if err != nil {
		_, err = New(Config{Bind: "tcp://*:0", MaxFrame: 1})
		require.ErrorContains(t, err, "CONTROL_ADVERTISE")
		return
	}
	c := newChannel(t, Config{Bind: "tcp://*:0"})
	at, err := netip.ParseAddrPort(strings.TrimPrefix(string(c.Endpoint()), "tcp://"))
	require.NoError(t, err)
	require.Equal(t, want, at.Addr())
	require.NotZero(t, at.Port())
}

func TestSendToDoesNotBlockWhenPeerQueueFull(t *testing.T) {
	const sends = 200_000
	frame := bytes.Repeat([]byte("x"), 200)
	b := newChannel(t, Config{})
	for name, endpoint := range map[string][]byte{"a peer that does not read": b.Endpoint(), "nobody": nowhere(t)} {
		t.Run(name, func(t *testing.T) {
			a := newChannel(t, Config{})
			a.renewAfter = time.Hour
			require.NoError(t, a.Connect(bob, endpoint))
			for range sends {
				if a.Send(bob, frame) == ports.NoPeer {
					t.Fatal("the peer is connected")
				}
			}
			stats := a.Stats()
			require.Equal(t, uint64(sends), stats.Sent+stats.Full)
			require.NotZero(t, stats.Full)
			require.Zero(t, stats.SendErrors)
		})
	}
}

// What a peer that does not read, or sends without end, can pile up on either side.
func TestQueuesAreBounded(t *testing.T) {
	a := newChannel(t, Config{QueueFrames: 7, MaxFrame: 12345})
	require.NoError(t, a.Connect(bob, nowhere(t)))
	in, err := a.inbound.GetRcvhwm()
	require.NoError(t, err)
	require.Equal(t, 7, in)
	longest, err := a.inbound.GetMaxmsgsize()
	require.NoError(t, err)
	require.Equal(t, int64(12345), longest)
	out, err := a.peers[bob].dealer.GetSndhwm()
	require.NoError(t, err)
	require.Equal(t, 7, out)
}

// A frame that arrived has left the queue.
func TestQueueIsNotFullOfFramesThatArrived(t *testing.T) {
	a, b := newChannel(t, Config{QueueFrames: 4}), newChannel(t, Config{})
	require.NoError(t, a.Connect(bob, b.Endpoint()))
	for range 500 {
		require.Equal(t, ports.Accepted, a.Send(bob, []byte("x")))
		for ok := false; !ok; {
			_, _, ok = b.Recv(nil)
		}
	}
}

func TestFullQueueTakesFramesAgain(t *testing.T) {
	a, b := newChannel(t, Config{QueueFrames: 4}), newChannel(t, Config{QueueFrames: 4})
	a.renewAfter = time.Hour
	require.NoError(t, a.Connect(bob, b.Endpoint()))
	frame := make([]byte, testMaxFrame)
	for a.Send(bob, frame) != ports.Full {
	}
	eventually(t, "room in the queue", func() bool {
		for ok := true; ok; {
			_, _, ok = b.Recv(nil)
		}
		return a.Send(bob, frame) == ports.Accepted
	})
}

func TestPeerRestartsOnItsPort(t *testing.T) {
	a, b := newChannel(t, Config{}), newChannel(t, Config{})
	endpoint := string(b.Endpoint())
	require.NoError(t, a.Connect(bob, b.Endpoint()))
	for life := range 4 {
		text := fmt.Sprintf("are you there in life %d", life)
		eventually(t, text, func() bool {
			a.Send(bob, []byte(text))
			frame, _, _ := b.Recv(nil)
			return string(frame) == text
		})
		require.NoError(t, b.Close())
		require.NotEqual(t, ports.NoPeer, a.Send(bob, []byte("for nobody")))
		b = newChannel(t, Config{Bind: endpoint})
		require.Equal(t, endpoint, string(b.Endpoint()))
	}
}

// libzmq gives a connection up for good when the far end's socket is of the wrong type.
func TestPeerIsReachedAfterAnotherProgramHadItsPort(t *testing.T) {
	other, err := zmq4.NewSocket(zmq4.PULL)
	require.NoError(t, err)
	require.NoError(t, other.SetLinger(0))
	require.NoError(t, other.Bind("tcp://127.0.0.1:*"))
	endpoint, err := other.GetLastEndpoint()
	require.NoError(t, err)

	a := newChannel(t, Config{})
	a.renewAfter = time.Hour
	require.NoError(t, a.Connect(bob, []byte(endpoint)))
	eventually(t, "a connection given up", func() bool { return a.Send(bob, []byte("lost")) == ports.Full })
	require.NoError(t, other.Close())

	var b *Channel
	eventually(t, "the port is free", func() bool {
		b, err = New(Config{Bind: endpoint, MaxFrame: testMaxFrame})
		return err == nil
	})
	defer b.Close()
	require.Equal(t, ports.Full, a.Send(bob, []byte("lost")), "not before the queue was full for long")
	a.renewAfter = 0
	require.Equal(t, ports.Accepted, a.Send(bob, []byte("found")))
	require.Equal(t, uint64(1), a.Stats().Renewed)
	require.Equal(t, "found", string(next(t, b)))
}

func TestDescriptorsComeBack(t *testing.T) {
	a, b := newChannel(t, Config{}), newChannel(t, Config{})
	before := descriptors(t)
	for range 200 {
		require.NoError(t, a.Connect(bob, b.Endpoint()))
		require.Equal(t, ports.Accepted, a.Send(bob, []byte("x")))
		a.Disconnect(bob)
		b.Recv(nil)
	}
	eventually(t, "every descriptor is given back", func() bool { return descriptors(t) <= before })
	require.Empty(t, a.peers)
}

func TestMorePeersThanLibzmqsDefault(t *testing.T) {
	const peers = 1200 // libzmq's default is 1023 sockets
	a := newChannel(t, Config{})
	endpoint := nowhere(t)
	for i := range peers {
		id, err := ports.NewIdentity("peer", uint64(i))
		require.NoError(t, err)
		require.NoError(t, a.Connect(id, endpoint))
	}
	require.Len(t, a.peers, peers)
}

func TestDescriptorIsQuietWhenNothingWaits(t *testing.T) {
	a, b := newChannel(t, Config{}), newChannel(t, Config{})
	require.NoError(t, a.Connect(bob, b.Endpoint()))
	require.Equal(t, ports.Accepted, a.Send(bob, []byte("x")))
	next(t, b)
	eventually(t, "quiet", func() bool {
		_, _, ok := b.Recv(nil)
		require.False(t, ok)
		fds := []unix.PollFd{{Fd: int32(b.WaitFD()), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		return err == nil && n == 0
	})
}

func TestClosedChannelDoesNothing(t *testing.T) {
	a, b := newChannel(t, Config{}), newChannel(t, Config{})
	require.NoError(t, a.Connect(bob, b.Endpoint()))
	require.NoError(t, a.Close())
	require.Equal(t, ports.NoPeer, a.Send(bob, []byte("x")))
	require.ErrorIs(t, a.Connect(bob, b.Endpoint()), ports.ErrClosed)
	_, _, ok := a.Recv(nil)
	require.False(t, ok)
	require.Equal(t, -1, a.WaitFD())
	a.Disconnect(bob)
}

// Go interrupts system calls with SIGURG to preempt goroutines; neither side may take that for an error.
func TestSignalsDoNotDisturb(t *testing.T) {
	a, b := newChannel(t, Config{}), newChannel(t, Config{})
	require.NoError(t, a.Connect(bob, b.Endpoint()))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = syscall.Kill(syscall.Getpid(), syscall.SIGURG)
				runtime.Gosched()
			}
		}
	}()
	frame := bytes.Repeat([]byte("y"), 1000)
	for received := 0; received < 3000; {
		a.Send(bob, frame)
		got, _, ok := b.Recv(nil)
		if ok {
			require.Equal(t, frame, got)
			received++
		}
	}
	close(stop)
	<-stopped
	require.Zero(t, a.Stats().SendErrors)
	require.Zero(t, b.Stats().RecvErrors)
}

func TestOwnOversizeFrameIsCounted(t *testing.T) {
	var log bytes.Buffer
	a := newChannel(t, Config{MaxFrame: 10, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.Equal(t, ports.NoPeer, a.Send(bob, make([]byte, 11)))
	require.NoError(t, a.Connect(bob, nowhere(t)))
	for range 3 {
		require.Equal(t, ports.Accepted, a.Send(bob, make([]byte, 11)))
	}
	require.Equal(t, Stats{DroppedOversize: 3}, a.Stats())
	require.EqualValues(t, 3, a.Counters()["dropped_oversize"])
	require.Equal(t, 1, strings.Count(log.String(), "MAX_FRAME_SIZE"), "logged once")
}

func TestVersion(t *testing.T) {
	require.Regexp(t, regexp.MustCompile(`^4\.\d+\.\d+$`), Version())
	_, _, err := zmq4.NewCurveKeypair()
	require.Equal(t, err == nil, HasCurve())
}
