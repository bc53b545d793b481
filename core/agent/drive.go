package agent

import (
	"time"

	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
)

// For so long after a frame the engine that carries frames is driven in every turn, with waits of at most frameWait between turns: the frame has to leave, and its answer to arrive. Afterwards the transport
// drives it as for a target of direct transfers.
const (
	frameSpin = 100 * time.Millisecond
	frameWait = 50 * time.Microsecond
)

// frameDriver drives the engine for a control channel over the engine's notifications, which arrive only while it is driven. The transport alone would not know to: a request that waits for
// GRANT or ACK has nothing under way in the engine.
type frameDriver struct {
	notify bool          // the control channel goes over the engine
	frames uint64        // sent and received so far
	until  ports.Instant // drive in every turn before this
}

// drive is called after each turn of the transport, with what that answered. Reactor.
func (a *Agent) drive(now ports.Instant, work bool, next ports.Instant) (bool, ports.Instant) {
	d := &a.driver
	if !d.notify {
		return work, next
	}
	c := a.transport.Counters()
	if frames := c.Get(transport.FramesSent) + c.Get(transport.FramesReceived); frames != d.frames {
		d.frames, d.until = frames, now.Add(frameSpin)
	}
	if !now.Before(d.until) {
		return work, next
	}
	moved := a.opt.Engine.Progress()
	return work || moved, min(next, now.Add(frameWait))
}
