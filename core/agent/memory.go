package agent

import (
	"context"
	"fmt"
	"sync"

	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
)

// Use says how registered memory may be reached.
type Use uint8

const (
	// Direct memory is known to the engine: peers that hold this agent's description can transfer to and from it by themselves, and requests can take the direct path.
	Direct Use = iota
	// BounceOnly memory is known to this agent's checks alone: no peer gets a key to it.
	BounceOnly
)

// Memory is registered memory.
type Memory struct {
	agent   *Agent
	use     Use
	ranges  []ports.Descriptor
	removed bool // under agent.mu

	mu     sync.Mutex
	engine ports.Registration // nil for BounceOnly, and once deregistered
}

// Ranges are the registered ranges. The caller must not change the slice.
func (m *Memory) Ranges() []ports.Descriptor { return m.ranges }

// Register makes memory usable: as destination of peers' bounce requests, and, for Direct use, in direct transfers. It must stay mapped until Deregister
// returned without an error. It may block while the engine pins the memory.
func (a *Agent) Register(ranges []ports.Descriptor, use Use) (*Memory, error) {
	if err := a.checkRanges(ranges); err != nil {
		return nil, err
	}
	m := &Memory{agent: a, use: use, ranges: append([]ports.Descriptor(nil), ranges...)}
	if use == BounceOnly {
		a.registry.Add(m.ranges)
		return m, nil
	}
	// Known to be reachable before the engine hands out a key, and for ever, even if it then refuses.
	if err := a.registry.AddDirect(m.ranges); err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	r, err := a.opt.Engine.Register(m.ranges)
	if err != nil {
		a.registry.Remove(m.ranges)
		return nil, err
	}
	m.engine = r
	a.countDirect(1)
	return m, nil
}

func (a *Agent) countDirect(n int) {
	a.mu.Lock()
	a.direct += n
	a.directNow.Store(a.direct > 0)
	a.mu.Unlock()
	if a.opt.Wake != nil {
		a.opt.Wake()
	}
}

// checkRanges refuses what can't be registered. The arena is never an application's memory.
func (a *Agent) checkRanges(ranges []ports.Descriptor) error {
	if len(ranges) == 0 {
		return fmt.Errorf("register: no ranges")
	}
	for i, d := range ranges {
		end, ok := d.End()
		switch {
		case d.Bytes == 0:
			return fmt.Errorf("register: range %d has 0 bytes", i)
		case !ok:
			return fmt.Errorf("register: range %d, %d bytes at %#x, does not fit 64 bits", i, d.Bytes, d.Addr)
		}
		if a.arena != nil {
			base, size := a.arena.memory.Base, a.arena.memory.Bytes
			if d.Place == a.arena.memory.Place && d.Addr < base+size && base < end {
				return fmt.Errorf("register: range %d overlaps the agent's arena", i)
			}
		}
	}
	return nil
}

// Window is a receive window. Only requests that carry its token may write it, while it is open.
type Window = transport.Window

// OpenReceive opens a receive window over the pieces of the runs (their Offset and Step mean nothing here), which must be registered BounceOnly, never have been registered for direct use, and not be
// in a window that is not quiesced (transport.ErrOverlap). The application hands the token to the senders'; several may write in one window. The memory must be idle now, or when ready has fired: requests
// with the token wait for that. Close the window before the memory is used for anything else; it may be reused when the window is quiesced.
func (a *Agent) OpenReceive(runs ports.Runs, ready ports.Event) (*Window, error) {
	if a.arena == nil {
		return nil, fmt.Errorf("receive window: %w: %s", ErrNoBounce, reasonTexts[DirectBounceOff])
	}
	return a.registry.OpenWindow(runs, a.arena.memory.Place, ready, a.opt.Rand)
}

// Deregister takes memory back, and closes receive windows over it. New copies and transfers to or from it are refused at once, requests that would still read it fail, and Deregister waits for those under
// way. When the context ends first it returns its error; the memory is then still in use, and Deregister may be called again.
func (m *Memory) Deregister(ctx context.Context) error {
	a := m.agent
	gone := make(chan error, 1)
	if err := m.leave(func(err error) { gone <- err }); err != nil {
		return a.afterClose()
	}
	select {
	case err := <-gone:
		if err != nil {
			return a.afterClose()
		}
	case <-ctx.Done():
		return fmt.Errorf("the memory is still in use: %w", ctx.Err())
	}
	return m.release()
}

// DeregisterAsync is Deregister for callers that can't wait; done is called in the reactor, which is held up while the engine unpins the memory, or at once when the agent closes. Only a nil error says that the memory may be unmapped.
func (m *Memory) DeregisterAsync(done func(error)) {
	err := m.leave(func(err error) {
		if err == nil {
			err = m.release()
		}
		done(err)
	})
	if err != nil {
		done(err)
	}
}

// leave refuses new uses of the memory, and has done called when those under way are over.
func (m *Memory) leave(done func(error)) error {
	a := m.agent
	a.mu.Lock()
	first := !m.removed
	m.removed = true
	a.mu.Unlock()
	if first {
		a.registry.Remove(m.ranges)
	}
	return a.transport.Leave(m.ranges, done)
}

// release takes the memory back from the engine.
func (m *Memory) release() error {
	a := m.agent
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.engine == nil {
		return nil
	}
	if err := a.opt.Engine.Deregister(m.engine); err != nil {
		return err
	}
	m.engine = nil
	a.countDirect(-1)
	return nil
}

// afterClose is Deregister on an agent that closes or was closed: its end tells whether anything may still touch the memory.
func (a *Agent) afterClose() error {
	<-a.finished
	if a.inDoubt {
		return fmt.Errorf("%w: memory that was registered with the agent may still be touched", ErrInDoubt)
	}
	return nil
}
