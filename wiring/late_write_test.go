package wiring

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lateMark is every byte of what the sender that dies sends.
const lateMark = 0x55

// TestLateWriteOfADeadSender plays attack 1 over real parts. A sender writes several MB into a region while the receiver's process is stopped, so that the bytes wait in the receiver's own socket; it is
// killed with kill -9 and reaped, and then the receiver goes on and fences it. Its bytes land after its death, while the settle delay runs and the reactor drives the engine. The next sender's region is the same one: not a byte of it may be the dead one's.
func TestLateWriteOfADeadSender(t *testing.T) {
	t.Parallel()
	const tries = 5
	for try := range tries {
		if late := lateWrite(t, time.Duration(try+1)*100*time.Millisecond); late > 0 {
			t.Logf("%d of %d bytes landed after their sender's death, within the settle delay", late, partyBytes)
			return
		}
		t.Logf("try %d: nothing landed after the sender's death", try+1)
	}
	require.Failf(t, "the scene never happened", "in %d tries no byte landed after its sender's death: this shows nothing", tries)
}

// lateWrite plays it once. It returns how many bytes landed late; with 0 the scene did not happen.
func lateWrite(t *testing.T, flow time.Duration) (late int) {
	c := partyConfig()
	receiver := startParty(t, "receiver", c, false, tcpOnly)
	doomed := startParty(t, "doomed", c, false, tcpOnly)
	next := startParty(t, "next", c, false, tcpOnly)
	doomed.meets(receiver)
	next.meets(receiver)
	doomed.delivers(receiver, 0)
	receiver.quiet()
	receiver.do(partyCall{Op: "poison", Value: 0xEE})

	// The sender gets its region, and writes when the receiver's process is stopped.
	doomed.gate("gather", true)
	doomed.do(partyCall{Op: "send", Name: "late", Peer: receiver.identity, Value: lateMark})
	receiver.until("a region", func() bool { return receiver.op("stats").Stats.BytesHeld == partyBytes })
	receiver.op("hold")
	receiver.stop()
	posted := doomed.counter("writes_posted")
	doomed.gate("gather", false)
	doomed.until("the write", func() bool { return doomed.counter("writes_posted") > posted })
	time.Sleep(flow) // bytes flow into the receiver's socket
	doomed.kill()
	receiver.proceed()

	receiver.do(partyCall{Op: "fence", Peer: doomed.identity, Value: lateMark})
	receiver.op("resume")
	next.sends(receiver, "next", 1)
	// Until it is settled nobody else gets the region.
	receiver.until("the fence", func() bool {
		posted, held := next.counter("writes_posted"), receiver.op("stats").Stats.BytesHeld
		if receiver.op("fenced").Fence != nil {
			return true
		}
		require.Zero(t, posted)
		require.EqualValues(t, partyBytes, held)
		return false
	})
	r := receiver.settled()
	require.Equal(t, 1, r.Fence.Regions)
	require.EqualValues(t, partyBytes, r.Fence.RegionBytes)
	next.until("the next transfer", func() bool { return next.request("next").Quiesced })
	require.Empty(t, next.request("next").Failure)
	receiver.do(partyCall{Op: "check", Seed: 1})
	require.Zero(t, receiver.do(partyCall{Op: "count", Value: lateMark}).Count, "the next sender got the same region, and nothing came into it later")
	receiver.quiet()
	next.quiet()
	next.ends()
	receiver.ends()
	return r.Landed // all of it after the sender's death: until then the receiver was stopped
}
