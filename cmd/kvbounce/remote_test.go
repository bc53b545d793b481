package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// startRecv runs recv in this process until it served one sender, and returns where it listens and what it ended with: its exit code, its JSON and what it said.
func startRecv(t *testing.T) (addr string, end func() (int, string, string)) {
	r, w := io.Pipe()
	var out, errs bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run([]string{"recv", "--listen", "127.0.0.1:0", "--once", "--json"}, streams{in: strings.NewReader(""), out: &out, err: w})
		w.Close()
	}()
	lines := bufio.NewScanner(r)
	require.True(t, lines.Scan())
	_, addr, ok := strings.Cut(lines.Text(), "--peer ")
	require.True(t, ok, lines.Text())
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(&errs, r)
	}()
	return addr, func() (int, string, string) {
		c := <-code
		<-drained
		return c, out.String(), errs.String()
	}
}

// TestSendRecv moves a layout between two commands over real NIXL.
func TestSendRecv(t *testing.T) {
	addr, end := startRecv(t)
	code, out, errs := command(t, "send", "--peer", addr, "--layout", "tiny", "--rounds", "2", "--json")
	require.Equal(t, exitOK, code, errs)
	var r map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, true, r["verified"])
	require.Equal(t, "nixl", r["engine"])
	require.EqualValues(t, 2, r["bounce"].(map[string]any)["requests"])
	code, out, errs = end()
	require.Equal(t, exitOK, code)
	require.Regexp(t, `recv: 127\.0\.0\.1:\d+ done: \d+ bytes checked, 0 checks failed\n$`, errs)
	var got received
	require.NoError(t, json.Unmarshal([]byte(out), &got), out)
	require.Equal(t, received{Senders: 1, Checked: uint64(r["bytes_checked"].(float64))}, got)
}

// A sender that leaves without a word, as one that was killed does, is no success.
func TestRecvTellsOfASenderThatBrokeOff(t *testing.T) {
	for _, orders := range []string{"", `{"op":"open","layout":"tiny"}` + "\n"} {
		addr, end := startRecv(t)
		conn, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		_, err = io.WriteString(conn, orders)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		code, out, errs := end()
		require.Equal(t, exitFailed, code)
		require.JSONEq(t, `{"senders":1,"bytes_checked":0,"failed_checks":0,"failed_sessions":1}`, out)
		require.Contains(t, errs, " failed, the sender broke off")
		require.NotContains(t, errs, "done")
	}
}

// A sender that fails says no good-bye. Here the two sides' keys do not fit each other.
func TestRecvTellsOfASenderThatFailed(t *testing.T) {
	use(t, keygen(t, "recv"), authorize(t, keygen(t, "recv")))
	addr, end := startRecv(t)
	t.Setenv("KVBOUNCE_CURVE_SECRET_KEY_FILE", "")
	t.Setenv("KVBOUNCE_CURVE_AUTHORIZED_KEYS_DIR", "")
	code, _, errs := command(t, "send", "--peer", addr, "--layout", "tiny")
	require.Equal(t, exitFailed, code, errs)
	code, out, errs := end()
	require.Equal(t, exitFailed, code, errs)
	require.Contains(t, out, `"failed_sessions":1`)
	require.Contains(t, errs, " failed, the sender broke off")
}

// What is wrong with the settings is said before anything listens.
func TestRecvChecksItsSettingsFirst(t *testing.T) {
	use(t, keygen(t, "recv"), filepath.Join(t.TempDir(), "missing"))
	code, out, errs := command(t, "recv", "--listen", "127.0.0.1:0", "--json")
	require.Equal(t, exitFailed, code)
	require.Empty(t, errs, "it does not listen")
	field, message := failure(t, out)
	require.Equal(t, "keys", field)
	require.Contains(t, message, "CURVE_AUTHORIZED_KEYS_DIR: ")
	t.Setenv("KVBOUNCE_ARENA_SIZE", "much")
	for _, args := range [][]string{{"recv", "--listen", "127.0.0.1:0"}, {"send"}} {
		code, _, errs = command(t, args...)
		require.Equal(t, exitFailed, code)
		require.Regexp(t, `^kvbounce: KVBOUNCE_ARENA_SIZE is "much".*\n$`, errs)
	}
}

// recv says an address that another host can use.
func TestPeerOf(t *testing.T) {
	routes := map[string]net.IP{"udp4": net.IPv4(10, 1, 2, 3), "udp6": net.ParseIP("fd00::1")}
	source := func(network, _ string) (net.IP, error) {
		if ip := routes[network]; ip != nil {
			return ip, nil
		}
		return nil, syscall.ENETUNREACH
	}
	hint := func(addr string) string {
		return peerOf(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr)), source)
	}
	const other = " (or another address of this host)"
	require.Equal(t, "127.0.0.1:7701", hint("127.0.0.1:7701"))
	require.Equal(t, "10.9.8.7:7701", hint("10.9.8.7:7701"))
	require.Equal(t, "10.1.2.3:7705"+other, hint("[::]:7705"))
	require.Equal(t, "10.1.2.3:7705"+other, hint("0.0.0.0:7705"))
	delete(routes, "udp4")
	require.Equal(t, "[fd00::1]:7705"+other, hint("[::]:7705"))
	delete(routes, "udp6")
	require.Equal(t, "127.0.0.1:7705"+other, hint("[::]:7705"))
	if ip, err := routeSource("udp4", "203.0.113.1:9"); err == nil { // where this machine has a default route
		require.False(t, ip.IsUnspecified())
	}
}

// A receiver takes anything on its port: it answers what it understands with an error and lives.
func TestRecvTakesAnything(t *testing.T) {
	addr, end := startRecv(t)
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	ask := func(format string, args ...any) string {
		_, err := fmt.Fprintf(conn, format+"\n", args...)
		require.NoError(t, err)
		require.True(t, lines.Scan(), "the receiver is gone")
		return lines.Text()
	}
	require.Contains(t, ask(`{"op":"poison"}`), "it is not open")
	require.Contains(t, ask(`{"op":"start"}`), "not for a sender to ask")
	require.Contains(t, ask(`{"op":"fly"}`), "not for a sender to ask")
	require.Contains(t, ask(`{"op":"open","layout":"../../etc"}`), "paged-4k")
	require.Contains(t, ask(`{"op":"open","lists":{"src":[[0,1]],"dst":[[0,1]],"src_block":1,"dst_block":1}}`), "paged-4k", "presets only")
	require.Contains(t, ask(`{"op":"burst","count":1}`), "not for a sender to ask")
	require.Contains(t, ask(`{"op":"open","layout":"tiny","name":"a#b"}`), `"identity":"recv#`)
	require.Contains(t, ask(`{"op":"open","layout":"tiny"}`), "it is open")
	require.Contains(t, ask(`{"op":"add","desc":"AAAA"}`), "bad agent description")
	require.Contains(t, ask(`{"op":"check","seed":1,"round":1}`), "piece 0")
	_, err = fmt.Fprintln(conn, "GET / HTTP/1.1")
	require.NoError(t, err)
	require.False(t, lines.Scan(), "what is no JSON ends the session")
	code, out, errs := end()
	require.Equal(t, exitFailed, code, "a check failed")
	require.JSONEq(t, `{"senders":1,"bytes_checked":0,"failed_checks":1,"failed_sessions":1}`, out)
	require.Contains(t, errs, "a call is not JSON")
}

func TestSendWithoutRecv(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	code, _, errs := command(t, "recv", "--listen", addr)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "choose another")
	require.NoError(t, l.Close())
	code, _, errs = command(t, "send", "--peer", addr)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "start kvbounce recv there first")
	for _, args := range [][]string{{"send", "--peer", "here"}, {"recv", "--listen", "here"}, {"send", "--rounds", "0"}} {
		code, _, errs = command(t, args...)
		require.Equal(t, exitUsage, code, errs)
	}
}
