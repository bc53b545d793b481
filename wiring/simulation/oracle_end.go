package simulation

import (
	"fmt"
	"time"

	"github.com/kvbounce/kvbounce/ports"
)

// What applications are told, and what must be true when all is over.

// succeeded holds a success against the destination's bytes.
func (o *oracle) succeeded(r *request) {
	if !r.h.IsQuiesced() {
		o.violate("false-quiesced", "%s succeeded and is not quiesced", r)
	}
	switch {
	case r.path == "stray":
		o.violate("outside-window", "%s succeeded, although its token opens no window over its pages", r)
		return
	case r.hostileTarget(), r.window != nil && r.window.over: // its pages are others' by now
		return
	}
	for i, page := range r.dstPages {
		if at := filled(r.dstPool.view(o.w, page), uint64(r.number), uint64(i)); at >= 0 {
			o.violate("wrong-bytes", "%s succeeded, but byte %d of its page %d is wrong (%d of the page's %d bytes were written)", r, at, i, r.written[i], r.dstPool.page)
			return
		}
		if r.written[i] != r.dstPool.page {
			o.violate("written-twice", "%s succeeded, but %d bytes were written to its page %d of %d bytes", r, r.written[i], i, r.dstPool.page)
			return
		}
	}
}

// sourceReleased holds "source released" against the gathers that have no evidence.
func (o *oracle) sourceReleased(r *request) {
	if r.gathers > 0 || (r.transfers > 0 && r.path != "bounce") {
		o.violate("false-released", "the owner of %s was told that its source is released; %d gathers and %d transfers have no evidence", r, r.gathers, r.transfers)
	}
}

// quiesced holds "quiesced" against everything that has no evidence.
func (o *oracle) quiesced(r *request) {
	var writes, scatters int
	if f := o.flowOf(r); f != nil {
		writes, scatters = f.writes, f.scatters
	}
	if r.gathers+r.transfers+writes+scatters > 0 {
		o.violate("false-quiesced", "the owner of %s was told that it is quiesced; without evidence are %d gathers, %d writes, %d scatters, %d direct transfers",
			r, r.gathers, writes, scatters, r.transfers)
	}
}

// failed holds a failure against a scenario in which nothing happens that could excuse one.
func (o *oracle) failed(r *request) {
	if o.w.setup.scenario.mustSucceed.low > 0 && !isCancelled(r.h.Err()) && !r.hostileTarget() && r.path != "stray" {
		o.violate("lost-request", "%s failed, although all that went wrong can be repaired: %v", r, r.h.Err())
	}
}

// flowOf is the flow of a bounce request, nil if it sent nothing.
func (o *oracle) flowOf(r *request) *flow {
	if r.h.ID() == 0 {
		return nil
	}
	return o.flows[flowKey{r.from.id, r.to.id, r.h.ID()}]
}

// deregistered holds the end of Deregister against what its agent has under way.
func (o *oracle) deregistered(p *pool) {
	o.evidence["deregistered"]++
	if n := o.touching(p); n > 0 {
		o.violate("false-deregister", "%s was told that its memory is deregistered while %d copies and transfers of it have no evidence", p.life.label(), n)
	}
}

// touching is how many copies and transfers of its own agent with memory of the pool have no evidence.
func (o *oracle) touching(p *pool) int {
	n := 0
	for _, c := range o.copies {
		if r := c.req; r != nil && !c.fenced && c.life == p.life && (c.region == nil && r.srcPool == p || c.region != nil && r.dstPool == p) {
			n++
		}
	}
	for _, t := range o.transfers {
		if t.owner == p.life && !t.fenced && t.req != nil && (t.req.srcPool == p || t.req.dstPool == p) {
			n++
		}
	}
	return n
}

// closedClean notes that an agent closed without doubt: its memory may be freed now.
func (o *oracle) closedClean(l *life) {
	l.books.freed = true
	for i := range l.books.slots {
		if s := l.books.slots[i]; s.gathers+s.reads+s.scatters > 0 {
			o.violate("false-close", "%s closed without doubt while its arena has %d gathers, %d writes and %d scatters without evidence", l.label(), s.gathers, s.reads, s.scatters)
			return
		}
	}
}

// mayStayInDoubt reports whether nothing can ever prove that a failed request's end came: a write or gather without evidence, a receiver that can't answer DRAIN, or one
// whose own copy is in doubt.
func (o *oracle) mayStayInDoubt(r *request) bool {
	if r.gathers > 0 || r.transfers > 0 || r.hostileTarget() {
		return true
	}
	f := o.flowOf(r)
	return f != nil && (f.writes > 0 || f.scatters > 0 || f.posted > 0 && f.receiver.dead && !r.from.hasFenced(f.to))
}

// mayStay is how many arena blocks of an agent nothing can ever prove free.
func (o *oracle) mayStay(l *life) int {
	n := 0
	for _, t := range o.transfers {
		if t.owner == l && t.req == nil && !t.fenced {
			n++
		}
	}
	for _, c := range o.copies {
		if c.life == l && c.region == nil {
			n++
		}
	}
	for _, r := range l.books.regions {
		f := r.flow
		lost := !o.isHonest(f.from) || f.sender.dead
		if !r.free() && (lost || f.writes > 0 || r.scatters > 0) {
			n++
		}
	}
	return n
}

// settled reports whether everything has ended that can.
func (o *oracle) settled() bool {
	rule, _ := o.open()
	return rule == ""
}

// open is the rule that is broken if this is how things stay, and what stays open; "" when everything has ended that can.
func (o *oracle) open() (rule, text string) {
	for _, l := range o.living() {
		for _, f := range l.fences {
			if !f.done && l.closeBy == ports.Never {
				return "liveness", fmt.Sprintf("the fence of %s by %s is not over", f.dead.label(), l.label())
			}
		}
		if o.w.setup.retire > 0 && l.closeBy != ports.Never {
			return "liveness", fmt.Sprintf("%s is closing and has not ended", l.label())
		}
		if what := o.mustFailStop(l); what != "" {
			return "liveness", fmt.Sprintf("memory of %s's application is in doubt (%s), and it does not fail-stop", l.label(), what)
		}
		for _, p := range []*pool{l.src, l.dst, l.windowed} {
			if p != nil && p.leaving && !p.gone && l.closeBy == ports.Never && o.touching(p) == 0 {
				return "liveness", fmt.Sprintf("memory of %s is being deregistered, nothing touches it, and it is not over", l.label())
			}
		}
		for _, x := range l.windows {
			if x.shut && !x.over && x.scatters == 0 {
				return "liveness", fmt.Sprintf("window %d of %s is closed, no scatter runs in it, and it is not quiesced", x.number, l.label())
			}
		}
		for _, e := range l.sessions {
			if e.retiring && !e.over && e.doubt() == "" && l.closeBy == ports.Never {
				return "liveness", fmt.Sprintf("%s of %s is to be retired, nothing touches its memory, and it is not released", e.name(), l.label())
			}
		}
		for _, r := range l.open {
			switch {
			case r.ended == 0:
				return "liveness", fmt.Sprintf("%s has not ended", r)
			case !o.mayStayInDoubt(r):
				return "liveness", fmt.Sprintf("%s failed (%v) and is not quiesced, although everything that it started has evidence", r, r.h.Err())
			}
		}
		most := o.mayStay(l)
		stats := l.agent.Stats()
		if len(stats.Unproved) == 0 && o.hasDoubts(l) {
			return "hidden-doubt", fmt.Sprintf("%s has a transfer that failed without evidence, and does not show it", l.label())
		}
		if held := int(stats.BlocksHeld); held > most {
			return "leak", fmt.Sprintf("%s holds %d arena blocks; at most %d can be in doubt%s", l.label(), held, most, o.heldRegions(l))
		}
		if most == 0 && stats.BounceRefusal != "" {
			return "leak", fmt.Sprintf("%s refuses bounce requests, and nothing is in doubt: %s", l.label(), stats.BounceRefusal)
		}
		if most == 0 && len(l.open) == 0 && !l.agent.Quiet() {
			return "leak", fmt.Sprintf("%s is not quiet, and nothing is in doubt", l.label())
		}
	}
	return "", ""
}

// hasDoubts reports whether a transfer of the agent failed without evidence.
func (o *oracle) hasDoubts(l *life) bool {
	for _, t := range o.transfers {
		if t.owner == l && t.failed && !t.fenced {
			return true
		}
	}
	return false
}

func (o *oracle) living() []*life {
	var out []*life
	for _, n := range o.w.nodes {
		if n.now != nil && n.now.agent != nil {
			out = append(out, n.now)
		}
	}
	return out
}

// stormFrames is how many frames an agent may send a second, for each request of the run, once nothing goes wrong any more; and stormFramesPage for each page of them, since
// each chunk has at least one. Repair backs off, so it needs far fewer; a loop of two agents that answer each other sends more in a moment.
const (
	stormFrames     = 100
	stormFramesPage = 10
)

// checkStorm holds the frames that agents send against that.
func (o *oracle) checkStorm() {
	seconds := 1 + int(o.w.sim.Now().Sub(o.w.setup.faultsEnd)/time.Second)
	most := stormFrames * (10 + len(o.w.requests))
	for _, r := range o.w.requests {
		most += stormFramesPage * len(r.srcPages)
	}
	for _, l := range o.living() {
		if l.framesAfter > most*seconds {
			o.violate("storm", "%s sent %d frames in the %d s since faults stopped", l.label(), l.framesAfter, seconds)
		}
	}
}

// unsettled says what did not end in time.
func (o *oracle) unsettled() {
	rule, text := o.open()
	o.violate(rule, "%v after faults stopped: %s", o.w.setup.settleBound(), text)
}

// heldRegions names the regions that are not free.
func (o *oracle) heldRegions(l *life) string {
	text := ""
	for handle := uint64(1); len(text) < 400 && handle <= uint64(len(l.books.regions)); handle++ {
		if r := l.books.regions[handle]; r != nil && !r.free() {
			text += "; region " + r.flow.String()
		}
	}
	return text
}
