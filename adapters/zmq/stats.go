package zmq

import "sync/atomic"

// Stats are counts since the channel was opened.
type Stats struct {
	Sent             uint64 // frames that Send handed to libzmq
	Received         uint64 // frames that Recv gave out
	Full             uint64 // frames that were not taken because the peer's queue was full
	Renewed          uint64 // sockets replaced because their queue stayed full
	DroppedOversize  uint64 // frames to send that were longer than Config.MaxFrame
	DroppedMultipart uint64 // messages received in several parts
	// With CURVE: connections refused because their key is not authorized, and messages dropped because it no longer is.
	RefusedKeys, DroppedUnauthorized uint64

	SendErrors uint64 // sends that libzmq refused for another reason than a full queue
	RecvErrors uint64 // receives that failed for another reason than that none waits
}

type counters struct {
	sent, received, full, renewed, droppedOversize, droppedMultipart, refusedKeys, droppedUnauthorized, sendErrors, recvErrors atomic.Uint64
}

// Stats may be called from any goroutine.
func (c *Channel) Stats() Stats {
	return Stats{
		Sent:                c.counters.sent.Load(),
		Received:            c.counters.received.Load(),
		Full:                c.counters.full.Load(),
		Renewed:             c.counters.renewed.Load(),
		DroppedOversize:     c.counters.droppedOversize.Load(),
		DroppedMultipart:    c.counters.droppedMultipart.Load(),
		RefusedKeys:         c.counters.refusedKeys.Load(),
		DroppedUnauthorized: c.counters.droppedUnauthorized.Load(),
		SendErrors:          c.counters.sendErrors.Load(),
		RecvErrors:          c.counters.recvErrors.Load(),
	}
}

// Counters are the Stats by name. Any goroutine.
func (c *Channel) Counters() map[string]uint64 {
	s := c.Stats()
	return map[string]uint64{
		"sent": s.Sent, "received": s.Received, "full": s.Full, "renewed": s.Renewed, "dropped_oversize": s.DroppedOversize, "dropped_multipart": s.DroppedMultipart,
		"refused_keys": s.RefusedKeys, "dropped_unauthorized": s.DroppedUnauthorized, "send_errors": s.SendErrors, "recv_errors": s.RecvErrors,
	}
}
