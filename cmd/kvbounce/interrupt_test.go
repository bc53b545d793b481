package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// isGone reports whether a process has ended. One that nobody has reaped has.
func isGone(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

// childrenOf are the processes that a process has started.
func childrenOf(t *testing.T, pid int) (children []string) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	for _, task := range tasks {
		list, _ := os.ReadFile(task) // a thread that has ended has none
		children = append(children, strings.Fields(string(list))...)
	}
	return children
}

// Whatever ends demo and bench, no worker stays: those have timeouts of an hour here, and see that standard input ends. A signal that can be told of is.
func TestWorkersEndWithTheirMaster(t *testing.T) {
	for _, name := range []string{"REQUEST_TIMEOUT", "CLOSE_DEADLINE"} {
		t.Setenv("KVBOUNCE_"+name, "1h")
	}
	for _, subcommand := range []string{"demo", "bench"} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
			t.Run(subcommand+" "+sig.String(), func(t *testing.T) {
				master := exec.Command(os.Args[0], subcommand, "--layout", "tiny", "--rounds", "10000", "--json")
				var out, errs bytes.Buffer
				master.Stdout, master.Stderr = &out, &errs
				require.NoError(t, master.Start())
				t.Cleanup(func() { _ = master.Process.Kill() }) // after its end this does nothing
				var workers []string
				require.Eventually(t, func() bool { workers = childrenOf(t, master.Process.Pid); return len(workers) == 2 }, time.Minute, time.Millisecond)
				time.Sleep(500 * time.Millisecond) // mostly they move bytes by now
				require.NoError(t, master.Process.Signal(sig))
				require.Error(t, master.Wait())
				for _, pid := range workers {
					require.Eventually(t, func() bool { return isGone(pid) }, time.Minute, time.Millisecond)
				}
				if sig == syscall.SIGKILL {
					return
				}
				require.Equal(t, exitFailed, master.ProcessState.ExitCode())
				require.Equal(t, "kvbounce: interrupted\n", errs.String())
				require.True(t, json.Valid(out.Bytes()), out.String())
				_, message := failure(t, out.String())
				require.Equal(t, "interrupted", message)
			})
		}
	}
}

// A worker whose master is gone ends even while it waits for a peer that stands still.
func TestWorkerEndsInTheMiddleOfATransfer(t *testing.T) {
	for _, name := range []string{"REQUEST_TIMEOUT", "CLOSE_DEADLINE"} {
		t.Setenv("KVBOUNCE_"+name, "1h")
	}
	sender, receiver := open(t, "sender"), open(t, "receiver")
	defer receiver.giveUp()
	sender.meet(t, receiver)
	sender.transfer(t, receiver, pathBounce, 1)
	receiver.pause(t)
	order, err := json.Marshal(call{Op: "burst", Path: pathBounce, Seed: 1, Round: 2, Count: 1})
	require.NoError(t, err)
	_, err = sender.calls.Write(append(order, '\n'))
	require.NoError(t, err)
	require.NoError(t, sender.calls.Close())
	ended := make(chan error, 1)
	go func() { ended <- sender.cmd.Wait() }()
	select {
	case err := <-ended:
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, exitFailed, exit.ExitCode())
	case <-time.After(time.Minute):
		_ = sender.cmd.Process.Kill()
		<-ended
		require.Fail(t, "it waits for its peer")
	}
}
