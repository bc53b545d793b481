package nixlnotify

import "sync/atomic"

// Stats are counts since the channel was opened.
type Stats struct {
	Sent            uint64 // frames that the engine accepted
	Received        uint64 // frames that Recv gave out
	Full            uint64 // frames that were not taken because the peer left too many unanswered, or the engine refused
	Renewed         uint64 // connections made anew because the peer did not answer for long
	DroppedOversize uint64 // frames, to send or received, that were longer than Config.MaxFrame or had no magic
	DroppedOverflow uint64 // frames and application messages received that nobody took
}

type counters struct {
	sent, received, full, renewed, droppedOversize, droppedOverflow atomic.Uint64
}

// Stats may be called from any goroutine.
func (c *Channel) Stats() Stats {
	return Stats{
		Sent:            c.counters.sent.Load(),
		Received:        c.counters.received.Load(),
		Full:            c.counters.full.Load(),
		Renewed:         c.counters.renewed.Load(),
		DroppedOversize: c.counters.droppedOversize.Load(),
		DroppedOverflow: c.counters.droppedOverflow.Load(),
	}
}

// Counters are the Stats by name. Any goroutine.
func (c *Channel) Counters() map[string]uint64 {
	s := c.Stats()
	return map[string]uint64{
		"sent": s.Sent, "received": s.Received, "full": s.Full, "renewed": s.Renewed, "dropped_oversize": s.DroppedOversize, "dropped_overflow": s.DroppedOverflow,
	}
}
