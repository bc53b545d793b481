package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/wiring"
)

// A transfer that went directly and failed says why it went directly: few pieces are sent so, and then both sides' memory must be registered for it.
func TestDirectFailureSaysWhyItWentDirectly(t *testing.T) {
	world, a := wiring.NewWorld(), newApp(streams{})
	cfg := testSettings(t)
	cfg.MinDescriptorCount = 1 << 20
	sender, receiver := a.newWorker(cfg, world), a.newWorker(cfg, world)
	_, err := sender.do(call{Op: "open", Name: "sender", Layout: "tiny"})
	require.NoError(t, err)
	r, err := receiver.do(call{Op: "open", Name: "receiver", Layout: "tiny"})
	require.NoError(t, err)
	_, err = sender.do(call{Op: "add", Desc: r.Desc, DstBase: r.DstBase + 1<<40}) // where no memory is
	require.NoError(t, err)
	for path, reason := range map[string]string{pathDirect: "the direct path was asked for", pathRouted: "it has too few pieces"} {
		r, err := sender.do(call{Op: "burst", Path: path, Count: 1})
		require.NoError(t, err)
		require.Contains(t, r.Failure, "memory is not registered with the engine")
		require.Contains(t, r.Failure, "; it went directly: "+reason+"; register the memory for direct use on both sides")
	}
	require.NoError(t, sender.end())
	require.NoError(t, receiver.end())
}

// stopping passes the orders of a sender on to a receiver, and stops the receiver's process once it has made ready for a direct transfer. The engine then can't end that one.
type stopping struct {
	receiver *exec.Cmd
	addr     string
}

// serve passes on what one sender says.
func (s stopping) serve(l net.Listener) error {
	from, err := l.Accept()
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := net.Dial("tcp", s.addr)
	if err != nil {
		return err
	}
	defer to.Close()
	orders, answers, poisons := bufio.NewReader(from), bufio.NewReader(to), 0
	for {
		order, err := orders.ReadBytes('\n')
		if err != nil {
			return nil // the sender is gone
		}
		if _, err := to.Write(order); err != nil {
			return err
		}
		answer, err := answers.ReadBytes('\n')
		if err != nil {
			return err
		}
		if bytes.Contains(order, []byte(`"op":"poison"`)) {
			if poisons++; poisons == 2 { // of the first round: bounce, direct
				if err := s.receiver.Process.Signal(syscall.SIGSTOP); err != nil {
					return err
				}
			}
		}
		if _, err := from.Write(answer); err != nil {
			return err
		}
	}
}

// A send that ends in a fail-stop says what failed and what is in doubt, each time on standard error and with --json in its one object too.
func TestSendFailStops(t *testing.T) {
	for _, env := range [][2]string{{"UCX_TLS", "tcp"}, {"KVBOUNCE_REQUEST_TIMEOUT", "2s"}, {"KVBOUNCE_CLOSE_DEADLINE", "1s"}} {
		t.Setenv(env[0], env[1])
	}
	for _, asJSON := range []bool{false, true} {
		receiver := exec.Command(os.Args[0], "recv", "--listen", "127.0.0.1:0")
		said, err := receiver.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, receiver.Start())
		t.Cleanup(func() {
			_ = receiver.Process.Kill()
			_ = receiver.Wait()
		})
		lines := bufio.NewScanner(said)
		require.True(t, lines.Scan())
		_, addr, ok := strings.Cut(lines.Text(), "--peer ")
		require.True(t, ok, lines.Text())
		go func() { _, _ = io.Copy(io.Discard, said) }()

		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		served := make(chan error, 1)
		go func() { served <- stopping{receiver, addr}.serve(l) }()
		args := []string{"send", "--peer", l.Addr().String(), "--rounds", "1"}
		if asJSON {
			args = append(args, "--json")
		}
		sender := exec.Command(os.Args[0], args...)
		sender.WaitDelay = 10 * time.Second
		var out, errs bytes.Buffer
		sender.Stdout, sender.Stderr = &out, &errs
		var exit *exec.ExitError
		require.ErrorAs(t, sender.Run(), &exit, errs.String())
		require.NoError(t, l.Close())
		require.NoError(t, <-served)

		require.Equal(t, wiring.ExitFailStop, exit.ExitCode(), errs.String())
		const failed, doubt = "direct transfer in round 0 from send#", "fail-stop: the close deadline passed and memory of the application may still be touched"
		require.Contains(t, errs.String(), "kvbounce: "+failed)
		require.Contains(t, errs.String(), "longer than 2s; it went directly: the direct path was asked for\n")
		require.Contains(t, errs.String(), "kvbounce: "+doubt+"\n  ")
		require.Contains(t, errs.String(), "bytes: direct transfer, peer recv#")
		if !asJSON {
			require.Empty(t, out.String())
			continue
		}
		require.True(t, json.Valid(out.Bytes()), out.String())
		_, message := failure(t, out.String())
		require.Contains(t, message, failed)
		require.Contains(t, message, "; "+doubt+"; ")
		require.Contains(t, message, "bytes: direct transfer, peer recv#")
	}
}
