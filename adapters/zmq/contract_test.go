package zmq

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/ports/porttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestControlChannelContract(t *testing.T) {
	porttest.ControlChannel(t, newFixture)
}

const (
	testMaxFrame    = 1 << 20
	testQueueFrames = 64
)

func newFixture(t *testing.T) porttest.ControlFixture {
	opened := uint64(0)
	openAt := func(t *testing.T, bind string) porttest.ControlEnd {
		opened++
		id, err := ports.NewIdentity("agent", opened)
		require.NoError(t, err)
		return porttest.ControlEnd{Identity: id, Channel: newChannel(t, Config{Bind: bind})}
	}
	open := func(t *testing.T) porttest.ControlEnd { return openAt(t, "tcp://127.0.0.1:0") }
	return porttest.ControlFixture{
		A:           open(t),
		B:           open(t),
		Open:        open,
		Reopen:      func(t *testing.T, endpoint []byte) porttest.ControlEnd { return openAt(t, string(endpoint)) },
		MaxFrame:    testMaxFrame,
		QueueFrames: testQueueFrames,
		Nowhere:     nowhere(t),
		Malformed:   malformed,
		Descriptors: true,
	}
}

// newChannel opens a channel with the tests' limits, and closes it at the end of the test.
func newChannel(t *testing.T, cfg Config) *Channel {
	t.Helper()
	if cfg.Bind == "" {
		cfg.Bind = "tcp://127.0.0.1:0"
	}
	if cfg.MaxFrame == 0 {
		cfg.MaxFrame = testMaxFrame
	}
	if cfg.QueueFrames == 0 {
		cfg.QueueFrames = testQueueFrames
	}
	c, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// nowhere is an endpoint that refuses connections: its port belongs to a socket that does not listen, so nobody else gets it during the test.
func nowhere(t *testing.T) []byte {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := unix.Getsockname(fd)
	require.NoError(t, err)
	return fmt.Appendf(nil, "tcp://127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
}

// malformed are texts that a peer might send as its endpoint and that must not reach libzmq.
var malformed = endpoints(
	"tcp://",
	"tcp:/127.0.0.1:5555",
	"tcp://127.0.0.1",
	"tcp://127.0.0.1:",
	"tcp://127.0.0.1:0",
	"tcp://127.0.0.1:-1",
	"tcp://127.0.0.1:65536",
	"tcp://127.0.0.1:*",
	"tcp://127.0.0.1:5555 ",
	" tcp://127.0.0.1:5555",
	"TCP://127.0.0.1:5555",
	"tcp://127.0.0.1:5555\x00",
	"tcp://127.0.0.1:5555\n",
	"tcp://127.0.0.1:5555/x",
	"tcp://127.1:5555",
	"tcp://0127.0.0.1:5555",
	"tcp://0x7f000001:5555",
	"tcp://[127.0.0.1]:5555",
	"tcp://127.0.0.1:5555;127.0.0.1:5556",
	"tcp://127.0.0.1:0;127.0.0.1:5556",
	"tcp://localhost:5555",
	"tcp://some-host.example:5555",
	"tcp://eth0:5555",
	"tcp://*:5555",
	"tcp://0.0.0.0:5555",
	"tcp://[::]:5555",
	"tcp://[::ffff:0.0.0.0]:5555",
	"tcp://255.255.255.255:5555",
	"tcp://224.0.0.1:5555",
	"tcp://[ff02::1]:5555",
	"tcp://[fe80::1]:5555",
	"tcp://[fe80::1%lo]:5555",
	"tcp://[::1%lo]:5555",
	"tcp://::1:5555",
	"tcp://[::1:5555",
	"ipc:///tmp/kvbounce-hostile",
	"ipc://*",
	"inproc://x",
	"pgm://127.0.0.1;239.192.1.1:5555",
	"epgm://127.0.0.1;239.192.1.1:5555",
	"norm://127.0.0.1:5555",
	"udp://127.0.0.1:5555",
	"tipc://{5555,0,0}",
	"vmci://1:5555",
	"ws://127.0.0.1:5555",
	"gssapi://127.0.0.1:5555",
	"127.0.0.1:5555",
	"tcp://127.0.0.1:5555?curve=",
	"tcp://127.0.0.1:5555?curve="+someKey[1:],
	"tcp://127.0.0.1:5555?curve="+someKey+"x",
	"tcp://127.0.0.1:5555?curve="+someKey[:39]+" ",
	"tcp://127.0.0.1:5555?curve="+someKey[:35]+"#####", // above 2^32
	"tcp://127.0.0.1:5555?curve="+someKey[:39]+"\x00",
	"tcp://127.0.0.1:5555?curve="+someKey+"?curve="+someKey,
	"tcp://127.0.0.1:5555?CURVE="+someKey,
	"tcp://127.0.0.1:5555?key="+someKey,
	"?curve="+someKey,
	"%s%n%x",
	"\xff\xfe",
	strings.Repeat("x", 60000),
	"tcp://"+strings.Repeat("[", 60000),
	"tcp://127.0.0.1:"+strings.Repeat("0", 60000)+"5555",
)

func endpoints(texts ...string) [][]byte {
	var all [][]byte
	for _, text := range texts {
		all = append(all, []byte(text))
	}
	return all
}
