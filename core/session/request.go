package session

import (
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
)

// Verdict says whether the memory of an engine request may be reused.
type Verdict uint8

// The verdicts.
const (
	// Released: nothing touches it any more.
	Released Verdict = iota
	// Pending: something may still touch it; ask again.
	Pending
	// Fatal: its deadline passed in doubt. It is final, and the fail-stop handler has been or is being called.
	Fatal
)

// String is the verdict as logs print it.
func (v Verdict) String() string { return [...]string{"released", "pending", "fatal"}[v] }

// Request is one engine request and all its transfers. Its methods may be called from any goroutine.
type Request struct {
	manager *Manager
	name    string
	parts   []part
	listed  bool // in the manager's open
	fatal   bool
}

// part is a transfer that was sent, or a window that is received in.
type part struct {
	sent   *transport.Handle
	window *transport.Window
	ended  bool
	since  ports.Instant // of its logical end
}

// Send adds a transfer that this side started. It is kept whatever became of the request meanwhile: memory that is in use is in use.
func (r *Request) Send(h *transport.Handle) { r.add(part{sent: h}) }

// Receive adds a window that peers write in.
func (r *Request) Receive(w *transport.Window) { r.add(part{window: w}) }

func (r *Request) add(p part) {
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	r.parts = append(r.parts, p)
	if !r.listed {
		r.listed = true
		r.manager.open = append(r.manager.open, r)
	}
}

// CancelLocal cancels what this side started and closes the windows. It returns at once and may be called any number of times, also for a request that is over.
func (r *Request) CancelLocal() {
	for _, p := range r.snapshot() {
		if p.sent != nil {
			p.sent.Cancel()
		}
	}
	r.closeWindows()
}

// RequireQuiescence says whether all memory of the request may be reused: the sources of what was sent, and the windows, which it closes. Call it when the engine is done with the request, and until the
// answer is not Pending.
func (r *Request) RequireQuiescence() Verdict {
	r.closeWindows()
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	return r.verdict()
}

// snapshot is the parts, for calls that are made without the lock.
func (r *Request) snapshot() []part {
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	return append([]part(nil), r.parts...)
}

func (r *Request) closeWindows() {
	for _, p := range r.snapshot() {
		if p.window != nil {
			p.window.Close()
		}
	}
}

// verdict is all or nothing: the request is released when each part is.
func (r *Request) verdict() Verdict {
	if r.fatal {
		return Fatal
	}
	for i := range r.parts {
		switch p := &r.parts[i]; {
		case p.released():
		case p.sent == nil && r.manager.mutated("retire a request while its window is in use"):
		case i > 0 && r.manager.mutated("retire a request when its first part is released"):
		default:
			return Pending
		}
	}
	return Released
}

// step starts deadlines and ends the patience of those that passed.
func (r *Request) step(now ports.Instant) {
	for i := range r.parts {
		p := &r.parts[i]
		if !p.ended && p.over() {
			p.ended, p.since = true, now
		}
		if !p.released() && p.expired(now, r.manager) {
			r.fatal = true
		}
	}
}

// released reports whether the application's memory of the part may be reused.
func (p *part) released() bool {
	if p.sent != nil {
		return p.sent.IsSourceReleased()
	}
	return p.window.IsQuiesced()
}

// over reports whether the part has ended logically.
func (p *part) over() bool {
	if p.sent != nil {
		return p.sent.Status() != transport.InProgress
	}
	return p.window.IsClosed()
}

// expired reports whether the part's deadline has passed, and no settle delay runs that ends its doubt by itself.
func (p *part) expired(now ports.Instant, m *Manager) bool {
	settling := p.sent != nil && p.sent.Path() == transport.PathDirect && p.sent.IsSettling()
	return p.ended && !now.Before(p.since.Add(m.opt.Deadline)) && !settling
}

// doubts are the parts beyond their deadline.
func (r *Request) doubts(now ports.Instant) (list []transport.Doubt) {
	for i := range r.parts {
		switch p := &r.parts[i]; {
		case p.released() || !p.expired(now, r.manager):
		case p.sent != nil:
			list = append(list, transport.Doubt{Peer: p.sent.Peer(), Request: p.sent.ID(), Part: "source of a " + p.sent.Path().String() + " transfer", Bytes: p.sent.Bytes(), Since: p.since})
		default:
			list = append(list, transport.Doubt{Part: "receive window", Bytes: p.window.Bytes(), Since: p.since})
		}
	}
	return list
}
