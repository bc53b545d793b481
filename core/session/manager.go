package session

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
)

// ErrFailStopped: memory in doubt outlived its deadline; nothing new is started.
var ErrFailStopped = errors.New("the agent has fail-stopped")

// lookEvery is how often open requests are looked at for their deadlines.
const lookEvery = 100 * time.Millisecond

// Report says why a process must end.
type Report struct {
	Deadline string // the one that passed
	Request  string // the engine request, empty when the agent closed
	Now      ports.Instant
	Doubts   []transport.Doubt
}

// String is one line for the cause and one for each piece of memory.
func (r Report) String() string {
	var b strings.Builder
	b.WriteString("kvbounce: fail-stop: the " + r.Deadline + " passed and memory of the application may still be touched")
	if r.Request != "" {
		b.WriteString("; request " + r.Request)
	}
	for _, d := range r.Doubts {
		fmt.Fprintf(&b, "\n  %d bytes: %s", d.Bytes, d.Part)
		if d.Peer != "" {
			fmt.Fprintf(&b, ", peer %s", d.Peer)
		}
		if d.Request != 0 {
			fmt.Fprintf(&b, ", request %d", d.Request)
		}
		fmt.Fprintf(&b, ", for %v", r.Now.Sub(d.Since).Round(time.Millisecond))
	}
	return b.String()
}

// Options are what a Manager goes by.
type Options struct {
	Deadline time.Duration // RETIREMENT_DEADLINE: finite, above SETTLE_DELAY
	FailStop func(Report)  // called once, without locks; a nil one is for callers that only ask
}

// Manager keeps the engine requests of one agent. Its methods, but Poll, may be called from any goroutine.
type Manager struct {
	opt Options

	mu     sync.Mutex
	open   []*Request
	look   ports.Instant // when the open requests are looked at next
	failed bool

	mutation mutation
}

// New makes a manager.
func New(o Options) *Manager { return &Manager{opt: o} }

// Request begins an engine request. The name is for reports. After a fail-stop it returns ErrFailStopped.
func (m *Manager) Request(name string) (*Request, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed {
		return nil, ErrFailStopped
	}
	return &Request{manager: m, name: name}, nil
}

// Poll looks at deadlines, and says when it must be called again at the latest. Time in which the process was paused must not pass here either, and all evidence that waits must have been taken in before. Reactor.
func (m *Manager) Poll(now ports.Instant) (next ports.Instant) {
	m.mu.Lock()
	if len(m.open) == 0 || m.failed {
		m.mu.Unlock()
		return ports.Never
	}
	if now.Before(m.look) {
		defer m.mu.Unlock()
		return m.look
	}
	m.look = now.Add(lookEvery)
	var fatal *Report
	open := m.open[:0]
	for _, r := range m.open {
		r.step(now)
		if r.verdict() == Released {
			r.listed, r.parts = false, nil
			continue
		}
		open = append(open, r)
		if fatal == nil && r.fatal {
			fatal = &Report{Deadline: "retirement deadline", Request: r.name, Now: now, Doubts: r.doubts(now)}
		}
	}
	clear(m.open[len(open):])
	m.open, next = open, m.look
	m.mu.Unlock()
	if fatal != nil {
		m.FailStop(*fatal)
	}
	return next
}

// FailStop hands a report to the handler, once in the manager's life.
func (m *Manager) FailStop(r Report) {
	m.mu.Lock()
	first := !m.failed
	m.failed = true
	m.mu.Unlock()
	if first && m.opt.FailStop != nil {
		m.opt.FailStop(r)
	}
}
