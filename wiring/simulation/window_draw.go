package simulation

import (
	"slices"
	"time"

	"github.com/kvbounce/kvbounce/ports"
)

// drawWindows draws receive windows, one after the other on each receiver, mostly over the same pages, and the requests that use them as they should and as they should not.
func (u *setup) drawWindows(d draw, senders, receivers []string, during time.Duration) {
	s := u.scenario
	if s.windows.high == 0 {
		return
	}
	op := func(o Op) { u.ops = append(u.ops, o) }
	request := 0
	for _, o := range u.ops {
		request = max(request, o.Request)
	}
	cancel, ready, stray := s.cancel.count(d), s.ready.count(d), s.stray.count(d)
	free := map[string]ports.Instant{} // when the receiver's last window is closed
	windows := s.windows.count(d)
	for k := range windows {
		to := receivers[d.index(len(receivers))]
		writers := slices.DeleteFunc(slices.Clone(senders), func(name string) bool { return name == to })
		if len(writers) == 0 {
			continue
		}
		at := max(free[to], ports.Instant(introduction)).Add(time.Duration(d.below(uint64(during)) >> (4 + d.index(12))))
		open := Op{Verb: OpOpen, At: at, Agent: to, Window: k + 1, Pages: s.windowPages.count(d), Layout: d.below(1 << 32)}
		if d.percent(ready) {
			open.Delay = time.Duration(d.below(uint64(during)) >> 3)
		}
		op(open)
		u.windowPages = max(u.windowPages, open.Pages)
		stays := s.windowOpen.duration(d)
		if stays > 0 {
			free[to] = at.Add(stays)
			op(Op{Verb: OpShut, At: free[to], Agent: to, Window: k + 1})
		} else {
			stays = during
			u.windowsStay += open.Pages
		}
		for range s.windowRequests.count(d) {
			request++
			r := Op{Verb: OpSubmit, At: at.Add(1 + time.Duration(d.below(uint64(stays)))), Request: request, Agent: writers[d.index(len(writers))], Peer: to, Path: "window", Window: k + 1,
				Pages: 1 + d.index((open.Pages+1)/2), Layout: d.below(1 << 32)}
			if d.percent(stray) {
				r.Path, r.At, r.Window = "stray", r.At.Add(stays/2), d.index(k+2)
			}
			op(r)
			if d.percent(cancel) {
				op(Op{Verb: OpCancel, At: r.At.Add(time.Duration(d.below(uint64(during)) >> d.index(12))), Request: request})
			}
		}
	}
}
