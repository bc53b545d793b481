package transport

import (
	"time"

	"github.com/kvbounce/kvbounce/ports"
)

// How often the engine is driven (architecture.md, The reactor). Without it neither our transfers nor the peers' into our memory need move, and with it a
// core is busy.
const (
	spinWait    = 50 * time.Microsecond  // longest wait between turns while things move
	pollEvery   = time.Millisecond       // while something is under way but stands still
	restEvery   = 5 * time.Millisecond   // as a target for direct transfers, when nothing has happened for restAfter
	spinAfter   = 100 * time.Millisecond // things move if something did this recently
	restAfter   = time.Second
	notifyDrive = time.Second // after a notification was accepted, so that it leaves
)

// demand is why the engine must be driven, weakest last.
type demand uint8

const (
	demandBusy     demand = iota // a flow, a region or an operation is open
	demandRetained               // something is in doubt: evidence may still come
	demandTarget                 // peers may transfer directly to or from this memory
	demandNone
)

// driver decides when the engine is driven.
type driver struct {
	lastMove   ports.Instant // anything
	lastEngine ports.Instant // the engine itself
	lastDrive  ports.Instant
	until      ports.Instant // every turn before this
	nextDrive  ports.Instant
	rester     ports.Rester // the engine, if it can drive itself
	started    bool
}

func (d *driver) moved(now ports.Instant)       { d.lastMove = now }
func (d *driver) engineMoved(now ports.Instant) { d.lastEngine = now }
func (d *driver) drove(now ports.Instant)       { d.lastDrive = now }

// notified is called when the engine accepted a notification.
func (d *driver) notified(now ports.Instant) { d.until = now.Add(notifyDrive) }

// due reports whether this turn drives the engine.
func (d *driver) due(now ports.Instant) bool {
	if !d.started {
		d.started = true
		d.lastMove, d.lastEngine = now, now
		return true
	}
	return !now.Before(d.nextDrive)
}

// plan says when the next turn must drive the engine, Never when none need.
func (d *driver) plan(now ports.Instant, w demand) ports.Instant {
	var wait time.Duration
	switch {
	case now.Before(d.until), w == demandBusy && now.Sub(d.lastMove) < spinAfter:
		// Every turn drives; the runner may wait a little between turns.
		d.nextDrive = now
		return now.Add(spinWait)
	case w == demandNone:
		d.nextDrive = ports.Never
		return ports.Never
	case w == demandTarget && now.Sub(d.lastEngine) >= restAfter:
		if d.rester != nil && d.rester.Rest() {
			// The turn that something ends the rest with takes the engine in hand again.
			d.nextDrive = now
			return ports.Never
		}
		wait = restEvery
	default:
		wait = pollEvery
	}
	d.nextDrive = d.lastDrive.Add(wait)
	if d.nextDrive.Before(now) {
		d.nextDrive = now
	}
	return d.nextDrive
}
