package nixlnotify

import "github.com/kvbounce/kvbounce/ports"

// messageOverhead is what a waiting message costs besides its bytes.
const messageOverhead = 256

// message is a notification that arrived.
type message struct {
	from  ports.Identity
	bytes []byte
}

// queue holds messages that the other side of the inbox found, up to a limit in bytes.
type queue struct {
	messages []message
	first    int // messages before it were taken
	bytes    int
	limit    int
}

// put reports whether the message was taken: not when too much waits.
func (q *queue) put(m message) bool {
	size := len(m.bytes) + messageOverhead
	if q.bytes > 0 && q.bytes+size > q.limit {
		return false
	}
	q.bytes += size
	q.messages = append(q.messages, m)
	return true
}

func (q *queue) take() (m message, ok bool) {
	if q.first == len(q.messages) {
		return message{}, false
	}
	m = q.messages[q.first]
	q.messages[q.first] = message{}
	q.first++
	q.bytes -= len(m.bytes) + messageOverhead
	if q.first == len(q.messages) {
		q.messages, q.first = q.messages[:0], 0
	}
	return m, true
}
