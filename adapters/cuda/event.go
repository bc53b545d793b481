//go:build cuda

package cuda

import (
	"unsafe"

	"github.com/kvbounce/kvbounce/ports"
)

// eventsAtOnce is how many events are allocated together, so that a launch hardly ever allocates. They can't be recycled, since a caller may ask an old event for
// ever.
const eventsAtOnce = 64

// event is what a caller holds of one copy. copier is nil once its end was seen: then it belongs to another copy.
type event struct {
	compute *Compute
	copier  *copier
	err     error
}

func (c *Compute) newEvent(p *copier) *event {
	if len(c.events) == 0 {
		c.events = make([]event, eventsAtOnce)
	}
	e := &c.events[0]
	c.events = c.events[1:]
	*e = event{compute: c, copier: p}
	return e
}

// Status asks CUDA while the copy runs. The call that first sees the end gives the context back.
func (e *event) Status() ports.CopyStatus {
	c := e.compute
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := e.copier; p != nil {
		if !p.ended && c.broken == nil {
			p.ended, p.err = eventStatus(c.context, handle(p.event))
		}
		switch {
		case p.err != nil:
			c.broken = p.err
			e.err = p.err
		case p.ended:
		case c.broken != nil:
			e.err = c.broken
		default:
			return ports.CopyPending
		}
		e.copier = nil
		c.free = append(c.free, p)
	}
	if e.err != nil {
		return ports.CopyFailed
	}
	return ports.CopyDone
}

// Err is CUDA's error, once Status answered CopyFailed.
func (e *event) Err() error {
	e.compute.mu.Lock()
	defer e.compute.mu.Unlock()
	return e.err
}

// Ready makes a caller's CUDA event, a CUevent or cudaEvent_t of this device's primary context, an event that a request can wait for. The event must have been
// recorded, since CUDA answers that one without a record is done, and must not be destroyed nor recorded again until the request has started to move bytes or has ended.
func (d *Device) Ready(cudaEvent unsafe.Pointer) ports.Event {
	return &readyEvent{context: handle(d.context), event: cudaEvent}
}

type readyEvent struct {
	context, event unsafe.Pointer
	done           bool
	err            error
}

func (e *readyEvent) Status() ports.CopyStatus {
	if !e.done && e.err == nil {
		e.done, e.err = eventStatus(e.context, e.event)
	}
	switch {
	case e.err != nil:
		return ports.CopyFailed
	case e.done:
		return ports.CopyDone
	}
	return ports.CopyPending
}

func (e *readyEvent) Err() error { return e.err }
