package zmq

import (
	"errors"
	"net/netip"
	"os"
	"regexp"
	"testing"

	zmq4 "github.com/pebbe/zmq4"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// someKey is a public key (the example of ZeroMQ's manual of zmq_curve).
const someKey = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"

func TestParseEndpointGivesCanonicalText(t *testing.T) {
	for text, want := range map[string]string{
		"tcp://127.0.0.1:5555":               "tcp://127.0.0.1:5555",
		"tcp://10.1.2.3:1":                   "tcp://10.1.2.3:1",
		"tcp://10.1.2.3:05555":               "tcp://10.1.2.3:5555",
		"tcp://[::1]:65535":                  "tcp://[::1]:65535",
		"tcp://[FD00:0:0::0002]:80":          "tcp://[fd00::2]:80",
		"tcp://[::ffff:10.1.2.3]:80":         "tcp://10.1.2.3:80",
		"tcp://[2001:db8:1:2:3:4:5:6]:65535": "tcp://[2001:db8:1:2:3:4:5:6]:65535",
		"tcp://10.1.2.3:01?curve=" + someKey: "tcp://10.1.2.3:1?curve=" + someKey,
	} {
		at, err := parseEndpoint([]byte(text))
		require.NoError(t, err, "%s", text)
		require.Equal(t, want, at.String())
	}
}

func TestParseEndpointRefuses(t *testing.T) {
	for _, text := range malformed {
		_, err := parseEndpoint(text)
		require.Error(t, err, "%.80q", text)
		require.LessOrEqual(t, len(err.Error()), 500, "an error must not carry a peer's whole endpoint")
	}
}

// Whatever libzmq is handed is a numeric address and a port, and nothing else.
var handedOver = regexp.MustCompile(`^tcp://([0-9.]+|\[[0-9a-f:.]+\]):[1-9][0-9]{0,4}$`)

func checkParseEndpoint(t interface{ Fatalf(string, ...any) }, text []byte) {
	at, err := parseEndpoint(text)
	if err != nil {
		return
	}
	canonical := at.String()
	if !handedOver.MatchString(endpointText(at.at)) {
		t.Fatalf("%q became %q", text, canonical)
	}
	if again, err := parseEndpoint([]byte(canonical)); err != nil || again != at {
		t.Fatalf("%q became %q, which reads as %v, %v", text, canonical, again, err)
	}
}

func TestParseEndpointProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var addr netip.Addr
		if rapid.Bool().Draw(t, "IPv6") {
			addr = netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address")))
		} else {
			addr = netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address")))
		}
		at := endpoint{at: netip.AddrPortFrom(addr, rapid.Uint16().Draw(t, "port"))}
		if rapid.Bool().Draw(t, "CURVE") {
			at.key = zmq4.Z85encode(string(rapid.SliceOfN(rapid.Byte(), keyBytes, keyBytes).Draw(t, "key")))
		}
		text := []byte(at.String())
		checkParseEndpoint(t, text)
		damaged := rapid.IntRange(0, len(text)-1).Draw(t, "damaged at")
		text[damaged] = rapid.Byte().Draw(t, "damage")
		checkParseEndpoint(t, text)
	})
}

func FuzzParseEndpoint(f *testing.F) {
	for _, text := range malformed {
		f.Add(text)
	}
	f.Add([]byte("tcp://[::ffff:10.1.2.3]:80"))
	f.Add([]byte("tcp://10.1.2.3:80?curve=" + someKey))
	f.Fuzz(func(t *testing.T, text []byte) { checkParseEndpoint(t, text) })
}

func TestHostileEndpointsLeaveNoTrace(t *testing.T) {
	t.Chdir(t.TempDir())
	c := newChannel(t, Config{})
	for _, text := range append(malformed, []byte("ipc://file-in-this-directory"), []byte("ipc://./x:1")) {
		require.Error(t, c.Connect("peer#0000000000000001", text))
	}
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Empty(t, files)
}

func TestParseBind(t *testing.T) {
	for text, want := range map[string]string{
		"tcp://*:0":          "tcp://*:0",
		"tcp://*:65535":      "tcp://*:65535",
		"tcp://0.0.0.0:5555": "tcp://0.0.0.0:5555",
		"tcp://[::]:0":       "tcp://[::]:0",
		"tcp://127.0.0.1:0":  "tcp://127.0.0.1:0",
		"tcp://[FD00::2]:1":  "tcp://[fd00::2]:1",
	} {
		bind, err := parseBind(text)
		require.NoError(t, err, "%s", text)
		require.Equal(t, want, bind)
	}
	for _, text := range []string{
		"", "*", "*:0", "tcp://", "tcp://*", "tcp://*:", "tcp://*:*", "tcp://*:65536", "tcp://*:-1", "tcp://*:1;tcp://*:2", "tcp://localhost:0",
		"tcp://eth0:0", "tcp://[fe80::1%lo]:0", "ipc:///tmp/x", "inproc://x", "udp://*:0",
	} {
		_, err := parseBind(text)
		require.Error(t, err, "%s", text)
	}
}

func TestParseAdvertise(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.2.3":            "10.1.2.3:0",
		"fd00::2":             "[fd00::2]:0",
		"[fd00::2]":           "[fd00::2]:0",
		"tcp://10.1.2.3:0":    "10.1.2.3:0",
		"tcp://10.1.2.3:5555": "10.1.2.3:5555",
		"tcp://[fd00::2]:80":  "[fd00::2]:80",
	} {
		at, err := parseAdvertise(text)
		require.NoError(t, err, "%s", text)
		require.Equal(t, want, at.String())
	}
	for _, text := range []string{
		"node7", "node7.example:5555", "10.1.2.3:5555", "tcp://10.1.2.3", "0.0.0.0", "::", "*", "tcp://*:0", "224.0.0.1", "fe80::1", "fe80::1%eth0", "ipc://x", " ",
	} {
		_, err := parseAdvertise(text)
		require.ErrorContains(t, err, text, "%q", text)
	}
	unset, err := parseAdvertise("")
	require.NoError(t, err)
	require.False(t, unset.IsValid())
}

func TestAdvertised(t *testing.T) {
	var (
		none  netip.Addr
		route = netip.MustParseAddr("10.9.9.9")
		six   = netip.MustParseAddr("fd00::9")
	)
	for _, c := range []struct {
		bound, set       string
		routeV4, routeV6 netip.Addr
		want             string // "": an error
	}{
		{bound: "127.0.0.1:5000", routeV4: route, want: "127.0.0.1:5000"},
		{bound: "[fd00::1]:5000", routeV4: route, want: "[fd00::1]:5000"},
		{bound: "0.0.0.0:5000", routeV4: route, routeV6: six, want: "10.9.9.9:5000"},
		{bound: "[::]:5000", routeV4: route, routeV6: six, want: "10.9.9.9:5000"},
		{bound: "[::]:5000", routeV4: none, routeV6: six, want: "[fd00::9]:5000"},
		{bound: "0.0.0.0:5000", routeV4: none, routeV6: six},
		{bound: "[::]:5000", routeV4: none, routeV6: none},
		{bound: "[fe80::1]:5000", routeV4: route},
		{bound: "[::]:5000", set: "tcp://10.1.1.1:0", want: "10.1.1.1:5000"},
		{bound: "[::]:5000", set: "tcp://10.1.1.1:7000", want: "10.1.1.1:7000"},
		{bound: "127.0.0.1:5000", set: "fd00::7", routeV4: route, want: "[fd00::7]:5000"},
	} {
		set, err := parseAdvertise(c.set)
		require.NoError(t, err)
		got, err := advertised(netip.MustParseAddrPort(c.bound), set, func(to netip.Addr) (netip.Addr, error) {
			source := c.routeV4
			if to.Is6() {
				source = c.routeV6
			}
			if !source.IsValid() {
				return none, errors.New("network is unreachable")
			}
			return source, nil
		})
		if c.want == "" {
			require.ErrorContains(t, err, "CONTROL_ADVERTISE", "%+v", c)
			require.NotContains(t, err.Error(), "\n")
			continue
		}
		require.NoError(t, err, "%+v", c)
		require.Equal(t, c.want, got.String(), "%+v", c)
	}
}
