package main

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/agent"
)

// pauseTimes are a request timeout and what tests of paused processes make of it. The receiver's lease is twice the timeout.
type pauseTimes struct {
	timeout time.Duration
	short   time.Duration // less than the timeout, and more than what counts as a pause (protocol.md, 7, Repair)
	middle  time.Duration // more than the timeout, and less than the lease
	long    time.Duration // more than the lease
}

// TestPausedProcess stops processes with SIGSTOP and lets them go on. For less than its peer's timeout that costs no request. For more it costs requests at the peer but no byte: the paused process
// takes the evidence in first, drains, and both sides quiesce without a fence.
func TestPausedProcess(t *testing.T) {
	pauseProcesses(t, pauseTimes{timeout: 2 * time.Second, short: 1200 * time.Millisecond, middle: 3 * time.Second, long: 5 * time.Second})
}

func pauseProcesses(t *testing.T, p pauseTimes) {
	t.Setenv("KVBOUNCE_REQUEST_TIMEOUT", p.timeout.String())
	for _, c := range []struct {
		name  string
		pause func(*pausedPair, pauseTimes)
	}{
		{"receiver, short", pauseReceiverShortly},
		{"receiver, long", pauseReceiverForLong},
		{"sender, short", pauseSenderShortly},
		{"sender, long", pauseSenderForLong},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			q := &pausedPair{t: t, sender: open(t, "sender"), receiver: open(t, "receiver")}
			for _, o := range []opened{q.sender, q.receiver} {
				t.Cleanup(func() { _ = o.kill() }) // a stopped process would stay; after its end this does nothing
			}
			q.sender.meet(t, q.receiver)
			q.receiver.meet(t, q.sender)
			q.sender.transfer(t, q.receiver, "bounce", 1)
			c.pause(q, p)
			q.quiet()
			q.sender.transfer(t, q.receiver, "bounce", 2)
			q.sender.transfer(t, q.receiver, "direct", 3)
			q.receiver.transfer(t, q.sender, "bounce", 4)
			q.quiet()
			require.NoError(t, q.sender.end())
			require.NoError(t, q.receiver.end())
		})
	}
}

// pausedPair are two processes that know each other.
type pausedPair struct {
	t                *testing.T
	sender, receiver opened
}

// pause stops the process and returns when the kernel says so.
func (o opened) pause(t *testing.T) {
	require.NoError(t, o.cmd.Process.Signal(syscall.SIGSTOP))
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", o.cmd.Process.Pid))
		return err == nil && bytes.Contains(stat, []byte(") T "))
	}, 10*time.Second, time.Millisecond)
}

func (o opened) resume(t *testing.T) { require.NoError(t, o.cmd.Process.Signal(syscall.SIGCONT)) }

func (q *pausedPair) start(path string, round uint64) {
	q.sender.must(q.t, call{Op: "start", Path: path, Seed: 1, Round: round})
}

// delivered waits for the request and checks its bytes.
func (q *pausedPair) delivered(round uint64) {
	r := q.sender.must(q.t, call{Op: "wait"})
	require.Empty(q.t, r.Failure)
	require.True(q.t, r.Quiesced)
	q.receiver.must(q.t, call{Op: "check", Seed: 1, Round: round})
}

// quiesced waits until nothing of the request that ended can touch memory any more.
func (q *pausedPair) quiesced() {
	require.Eventually(q.t, func() bool { return q.sender.must(q.t, call{Op: "wait"}).Quiesced }, 30*time.Second, 5*time.Millisecond)
}

func (q *pausedPair) lostNothing() {
	s := q.sender.stats(q.t)
	require.Zero(q.t, s.Counters["bounce_failed"])
	require.Zero(q.t, s.Counters["direct_failed"])
}

// quiet waits until neither side holds a block of its arena, and asserts that nothing was left in doubt.
func (q *pausedPair) quiet() {
	for _, o := range []opened{q.sender, q.receiver} {
		require.Eventually(q.t, func() bool { s := o.stats(q.t); return s.BlocksHeld == 0 && len(s.Unproved) == 0 }, 30*time.Second, 5*time.Millisecond)
		s := o.stats(q.t)
		require.Zero(q.t, s.BytesRetained)
		require.Zero(q.t, s.Doubts)
		require.Zero(q.t, s.Counters["unproved_writes"])
	}
}

func (o opened) stats(t *testing.T) agent.Stats { return *o.must(t, call{Op: "stats"}).Stats }

// pauseReceiverShortly stops the receiver in the middle of transfers and before one.
func pauseReceiverShortly(q *pausedPair, p pauseTimes) {
	q.receiver.must(q.t, call{Op: "poison"})
	q.start("bounce", 100)
	time.Sleep(4 * time.Millisecond)
	q.receiver.pause(q.t)
	time.Sleep(p.short)
	q.receiver.resume(q.t)
	q.delivered(100)
	for i, path := range []string{"bounce", "direct"} {
		round := uint64(110 + i)
		q.receiver.must(q.t, call{Op: "poison"})
		q.receiver.pause(q.t)
		q.start(path, round)
		time.Sleep(p.short)
		q.receiver.resume(q.t)
		q.delivered(round)
	}
	q.lostNothing() // whether the receiver saw a pause depends on what it waited for: at rest it has no deadline to move
}

// pauseReceiverForLong stops the receiver until the sender has given its request up.
func pauseReceiverForLong(q *pausedPair, p pauseTimes) {
	for i, moment := range []time.Duration{2 * time.Millisecond, 8 * time.Millisecond} {
		q.start("bounce", uint64(100+i))
		time.Sleep(moment)
		q.receiver.pause(q.t)
		if r := q.sender.must(q.t, call{Op: "wait"}); r.Failure == "" {
			// It was faster than the pause: the next one meets a paused peer from its start.
			q.start("bounce", 110)
			r = q.sender.must(q.t, call{Op: "wait"})
			require.NotEmpty(q.t, r.Failure)
		} else {
			require.Contains(q.t, r.Failure, "no progress")
		}
		q.receiver.resume(q.t)
		q.quiesced()
	}
	require.Positive(q.t, q.sender.stats(q.t).Counters["bounce_failed"])

	// A direct transfer either needs the receiver, and then fails at the sender until the evidence comes, or it does not.
	q.receiver.pause(q.t)
	q.start("direct", 120)
	r := q.sender.must(q.t, call{Op: "wait"})
	if r.Failure != "" {
		require.Contains(q.t, r.Failure, "longer than")
		require.False(q.t, r.Quiesced, "nothing says that the transfer ended")
	}
	q.t.Logf("direct to a paused receiver: %q, quiesced %v", r.Failure, r.Quiesced)
	q.receiver.resume(q.t)
	q.quiesced()
}

// pauseSenderShortly stops the sender for longer than its own timeout, and for less than the receiver's lease: what it waits for is in its socket when it goes on.
func pauseSenderShortly(q *pausedPair, p pauseTimes) {
	q.receiver.must(q.t, call{Op: "poison"})
	q.start("direct", 100)
	time.Sleep(4 * time.Millisecond)
	q.sender.pause(q.t)
	time.Sleep(p.middle)
	q.sender.resume(q.t)
	q.delivered(100)
	q.waitingForGrant(p.middle, func() {})
	q.delivered(waitingRound)
	require.Positive(q.t, q.sender.stats(q.t).Counters["pauses_seen"])
	q.lostNothing()
	require.Zero(q.t, q.receiver.stats(q.t).Counters["flows_expired"])
}

// pauseSenderForLong stops the sender until the receiver has closed its flow, whose regions stay.
func pauseSenderForLong(q *pausedPair, p pauseTimes) {
	q.waitingForGrant(p.long, func() {
		s := q.receiver.stats(q.t)
		require.EqualValues(q.t, 1, s.Counters["flows_expired"])
		require.Positive(q.t, s.BytesHeld, "a write may still land in the regions")
		require.Positive(q.t, s.BytesRetained)
	})
	r := q.sender.must(q.t, call{Op: "wait"})
	require.Contains(q.t, r.Failure, "expired")
	q.quiesced()
	require.Positive(q.t, q.sender.stats(q.t).Counters["pauses_seen"])
}

const waitingRound = 130

// waitingForGrant pauses the sender for so long while it waits for the grant that the receiver gives meanwhile. before is called before the sender goes on.
func (q *pausedPair) waitingForGrant(d time.Duration, before func()) {
	q.receiver.must(q.t, call{Op: "poison"})
	admitted := q.receiver.stats(q.t).Counters["flows_admitted"]
	q.receiver.pause(q.t)
	q.start("bounce", waitingRound)
	time.Sleep(200 * time.Millisecond) // several repeats of WANT leave
	q.sender.pause(q.t)
	q.receiver.resume(q.t)
	require.Eventually(q.t, func() bool { return q.receiver.stats(q.t).Counters["flows_admitted"] > admitted }, 10*time.Second, time.Millisecond)
	time.Sleep(d)
	before()
	q.sender.resume(q.t)
}
