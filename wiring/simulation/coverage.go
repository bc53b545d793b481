package simulation

import (
	"github.com/kvbounce/kvbounce/adapters/sim"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// Coverage is how often each fault and each kind of evidence really occurred, by name: a scenario that never makes one checks nothing by it.
type Coverage map[string]int

// evidences are the names of what is counted besides the faults, which have their names in faultNames.
var evidences = []string{
	"write: success", "write: nothing-posted", "write: failed-ended", "write: success after a failure", "write: fenced and settled", "direct: success", "direct: nothing-posted", "direct: failed-ended", "direct: success after a failure",
	"direct: fenced and settled", "gather: completed", "gather: failed", "scatter: completed", "scatter: failed", "scatter: completed after its window closed", "frame lost: DRAIN", "frame lost: DRAIN_ACK",
	"sent: WANT", "sent: GRANT", "sent: DATA", "sent: ACK", "sent: NACK", "sent: DRAIN", "sent: DRAIN_ACK", "cancelled while gathering", "cancelled while writing", "cancelled while scattering",
	"window quiesced", "deregistered", "fence: regions kept", "session: released, that sent and received", "session: aborted", "session: aborted when over", "retain limit: refused", "retain limit: sent directly", "retain limit: bounced again", "fail-stop",
}

// transferEnded counts the evidence of a transfer.
func (o *oracle) transferEnded(t *transfer, status ports.TransferStatus) {
	path := "write: "
	if t.req != nil {
		path = "direct: "
	}
	switch {
	case status == ports.Success && t.failed:
		o.evidence[path+"success after a failure"]++
	case status == ports.Success:
		o.evidence[path+"success"]++
	case status == ports.FailedNothingPosted:
		o.evidence[path+"nothing-posted"]++
	case status == ports.FailedEnded:
		o.evidence[path+"failed-ended"]++
	}
}

// transferFenced counts a transfer that a fence closes.
func (o *oracle) transferFenced(t *transfer, by string) {
	if t.req != nil {
		o.evidence["direct: "+by]++
	} else {
		o.evidence["write: "+by]++
	}
}

// copyEnded counts what a copy came to.
func (o *oracle) copyEnded(c *copying, status ports.CopyStatus) {
	what, end := "gather: ", "completed"
	if c.region != nil {
		what = "scatter: "
	}
	if status == ports.CopyFailed {
		end = "failed"
	}
	o.evidence[what+end]++
	if c.window != nil && c.window.shut && status == ports.CopyDone {
		o.evidence["scatter: completed after its window closed"]++
	}
}

// cancelled counts at which stage a request is cancelled.
func (o *oracle) cancelled(r *request) {
	f := o.flowOf(r)
	switch {
	case r.ended > 0:
	case r.gathers > 0:
		o.evidence["cancelled while gathering"]++
	case f != nil && f.writes > 0:
		o.evidence["cancelled while writing"]++
	case f != nil && f.scatters > 0:
		o.evidence["cancelled while scattering"]++
	}
}

// coverage sums a run up.
func (w *World) coverage() Coverage {
	c, t := Coverage{}, w.tally
	put := func(name string, n int) {
		if n > 0 {
			c[name] += n
		}
	}
	for name, f := range faultNames {
		put(name, w.chooser.counts[f.kind][f.option])
	}
	for name, n := range w.oracle.evidence {
		put(name, n)
	}
	put("retain limit: refused", t.Retained)
	put("retain limit: sent directly", t.Rerouted)
	put("retain limit: bounced again", t.Regained)
	put("fail-stop", t.FailStops)
	return c
}

// frameCounted counts a frame by its type, and whether it is lost.
func (o *oracle) frameCounted(e sim.Event, h wire.Header) {
	o.evidence["sent: "+h.Type.String()]++
	if sim.FrameFate(e.Detail) == sim.FrameLost && (h.Type == wire.TypeDrain || h.Type == wire.TypeDrainAck) {
		o.evidence["frame lost: "+h.Type.String()]++
	}
}
