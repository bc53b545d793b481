package nixlnotify

import "github.com/kvbounce/kvbounce/ports"

// Bounds of what one side of the inbox keeps for the other. The agent asks both in each turn, so that little ever waits.
const (
	maxWaitingFrameBytes   = 64 << 20
	maxWaitingMessageBytes = 16 << 20
	// sortAtOnce bounds the messages for the other side that one call goes through, so that a flood of them does not hold up the reactor.
	sortAtOnce = 1024
)

// inbox tells the notifications that the engine received apart: frames for the channel, and messages for the application. Reactor.
type inbox struct {
	engine   ports.TransferEngine
	maxFrame int
	heard    func(from ports.Identity) // called for each notification
	frames   queue
	messages queue
	closed   bool // nobody takes frames any more
	counters *counters
}

// next takes the next frame, or the next message that is none. What it finds for the other side it keeps for that, or drops it when too much waits there: either may be lost by its contract.
func (b *inbox) next(frame bool) (m message, ok bool) {
	own, other := &b.messages, &b.frames
	if frame {
		own, other = other, own
	}
	if m, ok = own.take(); ok {
		return m, true
	}
	for range sortAtOnce {
		if m.from, m.bytes, ok = b.engine.RecvNotify(); !ok {
			return message{}, false
		}
		b.heard(m.from)
		is := ports.IsFrame(m.bytes)
		switch {
		case is && len(m.bytes) > b.maxFrame:
			b.counters.droppedOversize.Add(1)
		case is && b.closed:
			b.counters.droppedOverflow.Add(1)
		case is == frame:
			return m, true
		case !other.put(m):
			b.counters.droppedOverflow.Add(1)
		}
	}
	return message{}, false
}
