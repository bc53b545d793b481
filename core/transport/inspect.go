package transport

import (
	"slices"

	"github.com/kvbounce/kvbounce/core/credit"
	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/ports"
)

// Inspection is what a transport holds at one moment, for people who look from outside.
type Inspection struct {
	Peers    []PeerView // in order of their appearance
	Unproved []Doubt    // what may still touch memory though its request or flow has ended; each part is a drain.Access
	// Bytes of the arena. Retained ones are among the granted and the staging.
	Free, Granted, Staging, Retained uint64
}

// PeerView is one peer incarnation.
type PeerView struct {
	Peer                                ports.Identity
	Added, Superseded, Fenced, Settling bool
	// When its last frame came, 0 never, and when the first of what is in doubt came to be so, if something is.
	Heard, Since ports.Instant
	// Requests to it that are tracked, those among them that failed and whose DRAIN is not answered, and flows of it that are open or closed and waiting.
	Requests, Draining, Flows int
	Held                      drain.Totals // for both
}

// Inspect looks at everything once, in the reactor, where done is called; it must not block. Any goroutine.
func (t *Transport) Inspect(done func(Inspection)) error {
	return t.do(func(t *Transport) { done(t.inspect()) })
}

func (t *Transport) inspect() Inspection {
	in := Inspection{Unproved: t.mayTouch(true)}
	for _, p := range t.order {
		in.Peers = append(in.Peers, PeerView{p.id, p.added, p.superseded, p.fenced, p.settling, p.heardAt, p.party.Since(), p.tracked, p.draining, p.live, p.party.Totals()})
		for f := range p.flowList.All {
			if f.state == flowOpen {
				continue
			}
			for _, rc := range f.chunks {
				if rc != nil && rc.hold != nil && rc.hold.IsOpen(drain.PeerWrite) {
					in.Unproved = append(in.Unproved, doubtOf(p, f.id, drain.PeerWrite, rc.hold, rc.hold.Block().Bytes))
				}
			}
		}
	}
	if c := t.credits; c != nil {
		in.Free, in.Granted, in.Staging, in.Retained = c.FreeBytes(), c.UsedBytes(credit.ForGrant), c.UsedBytes(credit.ForStaging), c.RetainedBytes()
	}
	return in
}

// mayTouch lists this side's accesses that may still touch memory: of requests and flows that ended all, writes to peers included, or else those to memory of callers, whatever their state.
func (t *Transport) mayTouch(ended bool) (list []Doubt) {
	for _, d := range t.directs {
		if d.transfer != nil && (d.over || !ended) {
			list = append(list, doubtOf(d.peer, 0, drain.Direct, d.hold, d.sub.Bytes))
		}
	}
	for _, c := range slices.Concat(t.gathers, t.stuckGathers) {
		if c.req.state != requestActive || !ended {
			list = append(list, doubtOf(c.req.peer, c.req.id, drain.Gather, c.staging, uint64(c.plan.Bytes)))
		}
	}
	for _, rc := range slices.Concat(t.scatters, t.stuckScatters) {
		if rc.flow.state != flowOpen || rc.state == regionInDoubt || !ended {
			list = append(list, doubtOf(rc.flow.peer, rc.flow.id, drain.Scatter, rc.hold, rc.hold.Block().Bytes))
		}
	}
	for _, c := range t.writes {
		if ended && c.req.state != requestActive || c.doubted && t.mutated("fail-stop for arena blocks in doubt") {
			list = append(list, doubtOf(c.req.peer, c.req.id, drain.Write, c.staging, c.staging.Block().Bytes))
		}
	}
	return list
}

func doubtOf(p *peer, request uint64, kind drain.Access, h *drain.Hold, bytes uint64) Doubt {
	return Doubt{p.id, request, kind.String(), bytes, h.Since()}
}
