package transport

import "sync/atomic"

// Counter numbers what a transport counts since it started.
type Counter int

// The counters. Their names are stable: operators and tests rely on them.
const (
	FramesSent Counter = iota
	FramesReceived
	FramesNotDecoded  // the envelope or the message did not decode
	FramesForOthers   // addressed to another identity, mostly a predecessor's
	FramesForged      // the channel authenticated another key than that of the name in the envelope
	FramesOfStrangers // no entry for the sender, and no room for one
	FramesOfFenced    // late frames of a process that can no longer run
	SendsFull         // the channel's queue was full; repair tries again
	SendsNoPeer       // no way back to the peer
	Repeats           // frames sent again by repair
	WantsBelowOldest
	WantsAfterDrain // their request's DRAIN had overtaken them
	StaleAcks       // an ACK that fits no chunk
	StaleGrants     // a credit that fits no chunk
	StrayFrames     // a GRANT, NACK or DRAIN_ACK for a request number that was never drawn, or that nobody sent a DRAIN for
	NacksSent       // by this side as receiver
	NacksReceived
	BounceSubmits
	BounceSucceeded
	BounceFailed
	DirectSubmits
	DirectSucceeded
	DirectFailed
	BouncedBytes // bytes of succeeded bounce requests
	DirectBytes
	FlowsAdmitted
	FlowsFinished
	FlowsExpired // closed by their lease
	GathersRun
	ScattersRun
	WritesPosted
	StagingTaken   // eagerly gathered chunks whose staging a credited chunk took
	UnprovedWrites // transfers that failed without evidence
	PausesSeen     // polls that came more than a second late, and turns that took longer
	NotifiesSent
	NotifiesDropped // the engine did not take them, or does not know the peer
	counters
)

var counterNames = [counters]string{
	"frames_sent", "frames_received", "frames_not_decoded", "frames_for_others", "frames_forged", "frames_of_strangers", "frames_of_fenced", "sends_full", "sends_no_peer", "repeats",
	"wants_below_oldest", "wants_after_drain", "stale_acks", "stale_grants", "stray_frames", "nacks_sent", "nacks_received", "bounce_submits", "bounce_succeeded", "bounce_failed",
	"direct_submits", "direct_succeeded", "direct_failed", "bounced_bytes", "direct_bytes", "flows_admitted", "flows_finished", "flows_expired",
	"gathers_run", "scatters_run", "writes_posted", "staging_taken", "unproved_writes", "pauses_seen", "notifies_sent", "notifies_dropped",
}

// String is the counter's name in JSON and metrics.
func (c Counter) String() string { return counterNames[c] }

// Counters are read by any goroutine while the reactor counts.
type Counters struct{ n [counters]atomic.Uint64 }

// Get is one counter's value.
func (c *Counters) Get(k Counter) uint64 { return c.n[k].Load() }

// Each calls f for every counter, in a fixed order.
func (c *Counters) Each(f func(name string, value uint64)) {
	for k := range counters {
		f(k.String(), c.n[k].Load())
	}
}

// Add counts n events. Any goroutine.
func (c *Counters) Add(k Counter, n uint64) { c.n[k].Add(n) }
