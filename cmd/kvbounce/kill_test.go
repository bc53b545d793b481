package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/wiring"
)

// opened is a worker process with an agent.
type opened struct {
	*process
	reply
}

func open(t *testing.T, name string) opened {
	p, err := spawn(os.Stderr, false)
	require.NoError(t, err)
	r, err := p.do(call{Op: "open", Name: name, Layout: "paged-4k", Seed: 1})
	require.NoError(t, err)
	return opened{p, r}
}

func (o opened) must(t *testing.T, c call) reply {
	t.Helper()
	r, err := o.do(c)
	require.NoError(t, err, c.Op)
	return r
}

func (o opened) meet(t *testing.T, other opened) {
	r := o.must(t, call{Op: "add", Desc: other.Desc, DstBase: other.DstBase})
	require.True(t, r.Bounce, r.Reason)
}

// transfer moves the layout from o to other once and checks it there.
func (o opened) transfer(t *testing.T, other opened, path string, round uint64) {
	other.must(t, call{Op: "poison"})
	o.must(t, call{Op: "start", Path: path, Seed: 1, Round: round})
	r := o.must(t, call{Op: "wait"})
	require.Empty(t, r.Failure)
	require.True(t, r.Quiesced, "success implies quiesced")
	other.must(t, call{Op: "check", Seed: 1, Round: round})
}

// TestKilledReceiver kills the receiving process in the middle of a transfer, again and again at other moments: the sender reports a failure with its reason in
// bounded time, keeps running, keeps what has no evidence, and serves a new peer.
func TestKilledReceiver(t *testing.T) {
	t.Run("zmq", func(t *testing.T) {
		killReceivers(t, 0, 2*time.Millisecond, 6*time.Millisecond, 12*time.Millisecond)
	})
	t.Run("nixl", func(t *testing.T) {
		t.Setenv("KVBOUNCE_CONTROL", "nixl")
		killReceivers(t, 2*time.Millisecond)
	})
}

// killReceivers kills one receiver after each of these times in the middle of a transfer, over bounce and direct in turn.
func killReceivers(t *testing.T, moments ...time.Duration) {
	t.Setenv("KVBOUNCE_REQUEST_TIMEOUT", "3s")
	t.Setenv("KVBOUNCE_CLOSE_DEADLINE", "2s")
	sender := open(t, "sender")
	var kept uint64
	doubtful := false // the application's own memory is: a direct transfer's
	for i, moment := range moments {
		path := "bounce"
		if i%2 == 1 {
			path = "direct"
		}
		receiver := open(t, "receiver")
		sender.meet(t, receiver)
		sender.transfer(t, receiver, "bounce", uint64(i))

		sender.must(t, call{Op: "start", Path: path, Seed: 1, Round: 100})
		time.Sleep(moment)
		require.NoError(t, receiver.kill())
		r := sender.must(t, call{Op: "wait"})
		if r.Failure == "" {
			// It was faster than the kill: the next one meets a dead peer from its start.
			require.True(t, r.Quiesced)
			sender.must(t, call{Op: "start", Path: path, Seed: 1, Round: 101})
			r = sender.must(t, call{Op: "wait"})
		}
		require.Contains(t, r.Failure, "receiver#", "the failure names the peer")
		require.True(t, strings.Contains(r.Failure, "no progress") || strings.Contains(r.Failure, "transfer failed"), r.Failure)
		stats := sender.must(t, call{Op: "stats"}).Stats
		t.Logf("killed after %v, %s: %s; %d bytes kept, %d in doubt, quiesced %v", moment, path, r.Failure, stats.BytesHeld, stats.BytesRetained, r.Quiesced)
		if stats.Doubts > 0 {
			require.False(t, r.Quiesced, "what is in doubt is not over")
		}
		require.GreaterOrEqual(t, stats.BytesRetained, kept, "nothing that has no evidence is given back")
		kept = stats.BytesRetained
		doubtful = doubtful || path == "direct" && !r.Quiesced
	}
	last := open(t, "receiver")
	sender.meet(t, last)
	last.meet(t, sender)
	for round := range uint64(3) {
		sender.transfer(t, last, "bounce", 200+round)
		sender.transfer(t, last, "direct", 300+round)
		last.transfer(t, sender, "bounce", 400+round)
	}
	require.NoError(t, last.end())
	// With arena blocks in doubt closing says so, and the process ends all the same; with the application's memory in doubt it stops at the close deadline.
	_, err := sender.do(call{Op: "close"})
	ended := sender.end()
	if doubtful {
		require.ErrorContains(t, err, "ended before it answered")
		var exit *exec.ExitError
		require.ErrorAs(t, ended, &exit)
		require.Equal(t, wiring.ExitFailStop, exit.ExitCode())
		return
	}
	if err != nil {
		require.ErrorContains(t, err, "in doubt")
	}
	require.NoError(t, ended)
}

// doomed is a worker process that dies when it is to send, with its receiver standing still: that one would never end.
type doomed struct {
	*process
	receiver *process
}

func (d doomed) do(c call) (reply, error) {
	if c.Op == "burst" {
		if err := errors.Join(d.receiver.cmd.Process.Signal(syscall.SIGSTOP), d.cmd.Process.Kill()); err != nil {
			return reply{}, err
		}
	}
	return d.process.do(c)
}

// A command whose worker dies says so, however long the other worker would take to close, and leaves no process behind.
func TestBenchOfAKilledSender(t *testing.T) {
	var out, errs bytes.Buffer
	a := newApp(streams{in: strings.NewReader(""), out: &out, err: &errs})
	var workers []*process
	a.start = func(f demoFlags, cfg config.Config) ([]party, error) {
		parties, err := a.startParties(f, cfg)
		if err != nil {
			return nil, err
		}
		workers = []*process{parties[0].(*process), parties[1].(*process)}
		return []party{doomed{workers[0], workers[1]}, workers[1]}, nil
	}
	code := make(chan int, 1)
	go func() { code <- a.run([]string{"bench", "--layout", "tiny", "--rounds", "1"}) }()
	select {
	case c := <-code:
		require.Equal(t, exitFailed, c)
	case <-time.After(time.Minute):
		for _, w := range workers {
			_ = w.cmd.Process.Kill()
		}
		<-code
		require.Fail(t, "it waits for a worker that does not end")
	}
	require.Empty(t, out.String())
	require.Regexp(t, `kvbounce: bounce transfer in round 0 from bench#[0-9a-f]+: the worker (is gone|ended before it answered): .*\n$`, errs.String())
	for _, w := range workers {
		require.NotNil(t, w.cmd.ProcessState, "it was reaped")
	}
}
