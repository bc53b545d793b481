package agent

import (
	"context"
	"fmt"

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
	engine  ports.Registration // nil for BounceOnly
	removed bool               // under agent.mu
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
	if use == Direct {
		r, err := a.opt.Engine.Register(m.ranges)
		if err != nil {
			return nil, err
		}
		m.engine = r
	}
	a.registry.Add(m.ranges)
	if use == Direct {
		a.countDirect(1)
	}
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

// Deregister takes memory back. New copies and transfers to or from it are refused at once, requests that would still read it fail, and Deregister waits for those under
// way. When the context ends first it returns its error; the memory is then still in use, and Deregister may be called again.
func (m *Memory) Deregister(ctx context.Context) error {
	a := m.agent
	a.mu.Lock()
	first := !m.removed
	m.removed = true
	a.mu.Unlock()
	if first {
		a.registry.Remove(m.ranges)
	}
	gone := make(chan struct{})
	if err := a.transport.Leave(m.ranges, func() { close(gone) }); err != nil {
		return err
	}
	select {
	case <-gone:
	case <-ctx.Done():
		return fmt.Errorf("the memory is still in use: %w", ctx.Err())
	}
	a.mu.Lock()
	r := m.engine
	m.engine = nil
	a.mu.Unlock()
	if r == nil {
		return nil
	}
	a.countDirect(-1)
	return a.opt.Engine.Deregister(r)
}
