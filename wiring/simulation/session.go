package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/kvbounce/kvbounce/core/session"
	"github.com/kvbounce/kvbounce/ports"
)

// engineRequest is a request of an inference engine, as its application and the oracle know it: what it sends and the windows in which it receives, retired together.
type engineRequest struct {
	life     *life
	number   int
	s        *session.Request
	sends    []*request
	windows  []*window
	retiring bool // its application asks whether its memory may be reused
	over     bool // and was told so
}

// name is the session's in reports.
func (e *engineRequest) name() string { return fmt.Sprintf("session %d", e.number) }

// join puts a transfer or window into the session of an operation; without one, under the retirement deadline where the scenario has one.
func (l *life) join(number int, r *request, x *window) {
	var name string
	var e *engineRequest
	switch {
	case number > 0:
		if e = l.session(number); e == nil {
			return
		}
	case l.node.w.setup.retire == 0:
		return
	case r != nil:
		name = fmt.Sprintf("request %d", r.number)
	default:
		name = fmt.Sprintf("window %d", x.number)
	}
	if e == nil {
		s, err := l.agent.Session(name)
		if err != nil { // after a fail-stop the process only has to end
			return
		}
		e = &engineRequest{life: l, s: s}
	}
	if r != nil {
		e.sends = append(e.sends, r)
		e.s.Send(r.h)
	} else {
		e.windows = append(e.windows, x)
		e.s.Receive(x.h)
	}
}

// session is one of the life's sessions by its number; nil after a fail-stop.
func (l *life) session(number int) *engineRequest {
	for _, e := range l.sessions {
		if e.number == number {
			return e
		}
	}
	e := &engineRequest{life: l, number: number}
	var err error
	if e.s, err = l.agent.Session(e.name()); err != nil {
		return nil
	}
	l.sessions = append(l.sessions, e)
	l.node.w.tally.Sessions++
	return e
}

// do takes an operation on the session.
func (e *engineRequest) do(verb string) {
	if verb == OpAbort {
		e.abort()
		return
	}
	e.retiring = true
	e.observe()
}

// abort cancels all that the session started, any number of times.
func (e *engineRequest) abort() {
	name := "session: aborted"
	if e.over {
		name = "session: aborted when over"
	}
	e.life.node.w.oracle.evidence[name]++
	e.shut()
	for _, r := range e.sends {
		r.cancelled = true
	}
	e.s.CancelLocal()
	for _, x := range e.windows {
		x.observe()
	}
}

// shut notes that the windows are being closed.
func (e *engineRequest) shut() {
	for _, x := range e.windows {
		if !x.shut {
			x.shut, x.shutAt = true, e.life.node.w.sim.Now()
		}
	}
}

// observe asks as the application does after each turn. Released must be true of all parts at once.
func (e *engineRequest) observe() {
	if !e.retiring || e.over {
		return
	}
	w := e.life.node.w
	e.shut()
	verdict := e.s.RequireQuiescence()
	for _, x := range e.windows {
		x.observe()
	}
	switch verdict {
	case session.Released:
		e.over = true
		w.tally.Released++
		if len(e.sends) > 0 && len(e.windows) > 0 {
			w.oracle.evidence["session: released, that sent and received"]++
		}
		if what := e.doubt(); what != "" {
			w.oracle.violate("false-retired", "%s of %s is released while %s has no evidence", e.name(), e.life.label(), what)
		}
	case session.Fatal:
		if !e.life.stopping && !e.life.dead {
			w.oracle.violate("false-retired", "%s of %s is fatal, and its agent did not fail-stop", e.name(), e.life.label())
		}
	}
}

// doubt is a part of which something has no evidence: it may touch the application's memory. "" if there is none.
func (e *engineRequest) doubt() string {
	for _, r := range e.sends {
		if r.gathers > 0 || r.transfers > 0 {
			return r.String()
		}
	}
	for _, x := range e.windows {
		if x.scatters > 0 {
			return fmt.Sprintf("a scatter into window %d", x.number)
		}
	}
	return ""
}

// since is when the first part in doubt ended logically.
func (e *engineRequest) since() (at ports.Instant, found bool) {
	take := func(t ports.Instant) {
		if !found || t < at {
			at, found = t, true
		}
	}
	for _, r := range e.sends {
		if r.callerDoubt() {
			take(r.ended)
		}
	}
	for _, x := range e.windows {
		if x.shut && x.scatters > 0 {
			take(x.shutAt)
		}
	}
	return at, found
}

// sessionDraw draws engine requests, one after the other.
type sessionDraw struct {
	u                       *setup
	d                       draw
	senders, receivers      []string
	during                  time.Duration
	abort                   int // percent of sessions
	request, window, number int // the last so far, the last of a session
}

// drawSessions draws engine requests: each has a window that several others write in and sends to several others, and is aborted or runs to its end before it is retired. Some writers have a session of their own.
func (u *setup) drawSessions(d draw, senders, receivers []string, during time.Duration) {
	s := u.scenario
	if s.sessions.high == 0 {
		return
	}
	x := sessionDraw{u: u, d: d, senders: senders, receivers: receivers, during: during, abort: s.abort.count(d)}
	for _, o := range u.ops {
		x.request, x.window = max(x.request, o.Request), max(x.window, o.Window)
	}
	for range s.sessions.count(d) {
		x.next()
	}
}

// next draws one engine request and the sessions of those that write in its window.
func (x *sessionDraw) next() {
	u, d, s := x.u, x.d, x.u.scenario
	op := func(o Op) { u.ops = append(u.ops, o) }
	owner := x.receivers[d.index(len(x.receivers))]
	x.number++
	own, at := x.number, ports.Instant(introduction).Add(time.Duration(d.below(uint64(x.during))))
	end := at.Add(time.Duration(d.below(uint64(x.during))))
	moment := func() ports.Instant { return at.Add(1 + time.Duration(d.below(uint64(end-at)+1)>>d.index(6))) }
	retire := func(agent string, session int) {
		if d.percent(x.abort) {
			op(Op{Verb: OpAbort, At: moment(), Agent: agent, Session: session})
			if d.percent(20) {
				op(Op{Verb: OpAbort, At: end.Add(time.Duration(d.below(uint64(x.during)))), Agent: agent, Session: session})
			}
		}
		op(Op{Verb: OpRetire, At: end, Agent: agent, Session: session})
	}
	x.window++
	open := Op{Verb: OpOpen, At: at, Agent: owner, Window: x.window, Pages: s.windowPages.count(d), Layout: d.below(1 << 32), Session: own}
	op(open)
	u.windowPages, u.windowsStay = max(u.windowPages, open.Pages), u.windowsStay+open.Pages
	for range s.windowRequests.count(d) {
		from := d.other(x.senders, owner)
		if from == "" {
			continue
		}
		x.request++
		write := Op{Verb: OpSubmit, At: moment(), Request: x.request, Agent: from, Peer: owner, Path: "window", Window: x.window, Pages: 1 + d.index((open.Pages+1)/2), Layout: d.below(1 << 32)}
		if d.percent(30) {
			x.number++
			write.Session = x.number
			retire(from, x.number)
		}
		op(write)
	}
	if d.percent(80) && slices.Contains(x.senders, owner) {
		for range 1 + d.index(3) {
			to := d.other(x.receivers, owner)
			if to == "" {
				continue
			}
			x.request++
			send := Op{Verb: OpSubmit, At: moment(), Request: x.request, Agent: owner, Peer: to, Path: "bounce", Pages: s.pages.count(d), Layout: d.below(1 << 32), Session: own}
			if d.percent(s.direct.count(d)) {
				send.Path = "direct"
			}
			op(send)
		}
	}
	retire(owner, own)
}

// other is one of the names that is not than; "" if some tries find none.
func (d draw) other(names []string, than string) string {
	for range 8 {
		if name := names[d.index(len(names))]; name != than {
			return name
		}
	}
	return ""
}
