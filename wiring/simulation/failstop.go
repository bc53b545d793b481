package simulation

import (
	"fmt"
	"time"

	"github.com/kvbounce/kvbounce/core/session"
	"github.com/kvbounce/kvbounce/ports"
)

// failStop is the handler of the agent: the process ends after this turn.
func (l *life) failStop(r session.Report) {
	l.node.w.oracle.failStopped(l, r)
	l.stopping = true
	l.node.w.tally.FailStops++
}

// failStopLate is by how much a fail-stop may come after its deadline: sessions are looked at ten times a second.
const failStopLate = 500 * time.Millisecond

// failStopped holds a fail-stop against what is in doubt: memory of the application, and not arena blocks, for as long as the deadline is and little longer.
func (o *oracle) failStopped(l *life, report session.Report) {
	if l.stopping || len(report.Doubts) == 0 {
		o.violate("false-fail-stop", "%s fail-stops again, or for nothing: %s", l.label(), report)
		return
	}
	if report.Request == "" { // it closes
		if o.callerDoubts(l) == 0 {
			o.violate("false-fail-stop", "%s fail-stops at its end, although no copy and no direct transfer of it is in doubt: %s", l.label(), report)
		}
		return
	}
	since, found := ports.Instant(0), false
	var number int
	if _, err := fmt.Sscanf(report.Request, "request %d", &number); err == nil {
		r := o.w.byNumber[number]
		since, found = r.ended, r.from == l && r.callerDoubt()
	} else if _, err := fmt.Sscanf(report.Request, "window %d", &number); err == nil {
		x := o.w.windows[number]
		since, found = x.shutAt, x.life == l && x.scatters > 0
	} else if _, err := fmt.Sscanf(report.Request, "session %d", &number); err == nil {
		since, found = l.session(number).since()
	}
	took, deadline := o.w.sim.Now().Sub(since), l.node.config().RetirementDeadline
	switch {
	case !found:
		o.violate("false-fail-stop", "%s fail-stops for memory that nothing can touch: %s", l.label(), report)
	case took < deadline || took > deadline+failStopLate:
		o.violate("false-fail-stop", "%s fail-stops %v after the end of %s; the deadline is %v", l.label(), took, report.Request, deadline)
	}
}

// callerDoubts is how many copies and direct transfers of an agent have no evidence.
func (o *oracle) callerDoubts(l *life) int {
	n := 0
	for _, c := range o.copies {
		if c.life == l && !c.fenced {
			n++
		}
	}
	for _, t := range o.transfers {
		if t.owner == l && t.req != nil && !t.fenced {
			n++
		}
	}
	return n
}

// callerDoubt reports whether the source of an ended request may still be touched.
func (r *request) callerDoubt() bool {
	return r.ended > 0 && !r.released && (r.gathers > 0 || r.transfers > 0)
}

// mustFailStop says what is in doubt and should have ended the process, or end it yet; "" if nothing.
func (o *oracle) mustFailStop(l *life) string {
	if o.w.setup.retire == 0 || l.closeBy != ports.Never {
		return ""
	}
	for _, r := range l.open {
		if r.callerDoubt() {
			return r.String()
		}
	}
	for _, x := range l.windows {
		if x.shut && x.scatters > 0 {
			return fmt.Sprintf("window %d", x.number)
		}
	}
	return ""
}
