package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// startRecv runs recv in this process until it served one sender, and returns where it listens and what it ended with.
func startRecv(t *testing.T) (addr string, end func() (int, string)) {
	r, w := io.Pipe()
	var out bytes.Buffer
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
		_, _ = io.Copy(io.Discard, r)
	}()
	return addr, func() (int, string) {
		c := <-code
		<-drained
		return c, out.String()
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
	code, out = end()
	require.Equal(t, exitOK, code)
	var got received
	require.NoError(t, json.Unmarshal([]byte(out), &got), out)
	require.EqualValues(t, r["bytes_checked"], got.Checked)
	require.Equal(t, 1, got.Senders)
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
	code, out := end()
	require.Equal(t, exitFailed, code, "a check failed")
	require.Contains(t, out, `"failed_checks":1`)
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
