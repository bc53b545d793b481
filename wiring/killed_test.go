package wiring

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
)

// A receiver is killed while it holds a grant and the sender's write to it is under way: the sender keeps its staging, and gets it back by the fence alone.
func TestKilledReceiverIsFenced(t *testing.T) {
	t.Parallel()
	c := partyConfig()
	c.RequestTimeout = 3 * time.Second
	sender, receiver := startPair(t, c, tcpOnly)

	sender.gate("gather", true)
	sender.sends(receiver, "lost", 1)
	receiver.until("a region", func() bool { return receiver.op("stats").Stats.BytesHeld == partyBytes })
	receiver.stop()
	posted := sender.counter("writes_posted")
	sender.gate("gather", false)
	sender.until("the write", func() bool { return sender.counter("writes_posted") > posted })
	receiver.kill()
	sender.until("the request's failure", func() bool { return sender.request("lost").Failure != "" })
	r := sender.request("lost")
	require.Contains(t, r.Failure, string(receiver.identity))
	require.False(t, r.Quiesced, "nothing proves that the write ended")
	require.EqualValues(t, partyBytes, sender.op("stats").Stats.BytesHeld)

	f := sender.fences(receiver).Fence
	require.Equal(t, 1, f.Staging)
	require.EqualValues(t, partyBytes, f.StagingBytes)
	require.Equal(t, 1, f.Requests)
	require.True(t, sender.request("lost").Quiesced)
	sender.quiet()
	successor := startParty(t, "receiver", c, false, tcpOnly)
	sender.meets(successor)
	sender.delivers(successor, 2)
	successor.ends()
	sender.ends()
}

// A sender is killed while the receiver's copy out of its region runs: the fence does not give the region back, the copy's end does.
func TestKilledSenderWhileItsScatterRuns(t *testing.T) {
	t.Parallel()
	c := partyConfig()
	sender, receiver := startPair(t, c)

	receiver.gate("scatter", true)
	before := receiver.counter("scatters_run")
	sender.sends(receiver, "cut", 1)
	receiver.until("a copy", func() bool { return receiver.counter("scatters_run") > before })
	sender.kill()
	f := receiver.fences(sender).Fence
	require.Equal(t, 1, f.Kept)
	require.Zero(t, f.Regions)
	held := receiver.op("stats").Stats
	require.EqualValues(t, partyBytes, held.BytesHeld, "a copy still reads the region")
	receiver.gate("scatter", false)
	receiver.quiet()
	successor := startParty(t, "sender", c, false)
	successor.meets(receiver)
	successor.delivers(receiver, 2)
	successor.ends()
	receiver.ends()
}

// Close with nothing but blocks of the arena in doubt says so, and the process goes on to its own end: no fail-stop, and the arena stays mapped.
func TestCloseWithArenaBlocksInDoubt(t *testing.T) {
	t.Parallel()
	c := partyConfig()
	c.CloseDeadline = 500 * time.Millisecond
	sender, receiver := startPair(t, c)

	sender.gate("gather", true)
	sender.sends(receiver, "granted", 1)
	receiver.until("a region", func() bool { return receiver.op("stats").Stats.BytesHeld == partyBytes })
	sender.kill()
	r, err := receiver.try(partyCall{Op: "close"})
	require.ErrorContains(t, err, fmt.Sprintf("1 arena blocks of %d bytes may still be touched", partyBytes))
	require.True(t, r.InDoubt)
	receiver.do(partyCall{Op: "count"}) // reads the arena
	require.NoError(t, receiver.wait())
	require.NotContains(t, receiver.stderr.String(), "fail-stop")
}

// A direct write whose end stays unknown for ever, to a peer that is not known to be gone: nothing else proves that the source is free, so that the process ends at the retirement deadline, with a report.
func TestUnknownCompletionForEver(t *testing.T) {
	t.Parallel()
	c := partyConfig()
	c.RequestTimeout, c.ReceiverLease, c.RetirementDeadline = time.Second, 2*time.Second, 2*time.Second
	sender, receiver := startParty(t, "sender", c, true, tcpOnly), startParty(t, "receiver", c, true, tcpOnly)
	sender.meets(receiver)
	sender.delivers(receiver, 0)
	receiver.quiet()

	receiver.stop()
	sender.do(partyCall{Op: "send", Name: "direct", Peer: receiver.identity, Seed: 1, Direct: true})
	sender.do(partyCall{Op: "session", Name: "request 42", Sends: []string{"direct"}})
	sender.do(partyCall{Op: "abort", Name: "request 42"})
	sender.until("its end", func() bool {
		r, err := sender.try(partyCall{Op: "verdict", Name: "request 42"})
		if err == nil {
			require.NotEqual(t, "released", r.Verdict)
		}
		return err != nil
	})
	var exit *exec.ExitError
	require.True(t, errors.As(sender.wait(), &exit), "it ended with an error")
	require.Equal(t, ExitFailStop, exit.ExitCode())
	report := sender.stderr.String()
	require.Contains(t, report, "kvbounce: fail-stop: the retirement deadline passed and memory of the application may still be touched; request request 42\n")
	require.Contains(t, report, fmt.Sprintf("  %d bytes: source of a direct transfer, peer %s, for 2", partyBytes, receiver.identity))
	receiver.proceed()
	receiver.ends()
}

// A sender restarts under its name and on its port while frames of its predecessor are under way both ways: those to the predecessor reach its successor's port and count for nothing there, those of
// the predecessor are the predecessor's, and what the two exchange is exact.
func TestRestartOnTheSamePort(t *testing.T) {
	t.Parallel()
	c := partyConfig()
	c.ArenaSize = 8 * partyBytes // what the old one holds leaves room
	c.RequestTimeout, c.ReceiverLease = 3*time.Second, 4*time.Second
	old, other := startParty(t, "restarts", c, false), startParty(t, "other", c, false)
	old.meets(other)
	old.delivers(other, 0)
	other.delivers(old, 1)

	// Frames to the predecessor: the other's requests to it go on repeating. Frames of the predecessor: they wait in the other's socket, which nobody reads.
	old.gate("scatter", true)
	other.sends(old, "to the old one", 2)
	old.until("a copy", func() bool { return old.op("stats").Stats.BytesHeld > 0 })
	admitted := other.counter("flows_admitted")
	other.op("hold")
	old.sends(other, "of the old one", 3)
	sent := old.counter("frames_sent")
	old.until("some frames", func() bool { return old.counter("frames_sent") > sent })
	old.kill()
	at := c
	at.ControlBind = endpointOf(t, old)
	fresh := startParty(t, "restarts", at, false)
	require.NotEqual(t, old.identity, fresh.identity)
	require.Equal(t, at.ControlBind, endpointOf(t, fresh))
	other.op("resume")
	fresh.until("its predecessor's frames", func() bool { return fresh.counter("frames_for_others") > 0 })
	other.until("a flow of the predecessor", func() bool { return other.counter("flows_admitted") > admitted })

	fresh.meets(other)
	for seed := byte(4); seed < 8; seed += 2 {
		fresh.delivers(other, seed)
		other.delivers(fresh, seed+1)
	}
	other.until("the failure of what went to the old one", func() bool { return other.request("to the old one").Failure != "" })
	other.fences(old)
	require.True(t, other.request("to the old one").Quiesced)
	other.quiet()
	fresh.quiet()
	fresh.ends()
	other.ends()
}

// endpointOf is where a party's control channel is.
func endpointOf(t *testing.T, p *process) string {
	t.Helper()
	var h wire.Handshake
	require.NoError(t, h.Decode(p.description().Bounce))
	endpoint := string(h.Endpoint)
	require.True(t, strings.HasPrefix(endpoint, "tcp://127.0.0.1:"), endpoint)
	return endpoint
}
