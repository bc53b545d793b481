package zmq

import (
	"syscall"

	zmq4 "github.com/pebbe/zmq4"
)

// maxDropped is how many parts of dropped messages one call of Recv takes. A peer that floods must not keep the reactor in it.
const maxDropped = 256

// Recv implements ports.ControlChannel. With CURVE the key is the name that the sender's key belongs to; without it is "", since nobody is authenticated. Messages of
// several parts are not ours, and those of a key that is no longer authorized are nobody's; they are dropped and counted on the way to the next frame, or an empty one where there are many.
//
// When it answers that none waits, libzmq has taken in every signal of its thread, so that WaitFD fires for the next frame.
func (c *Channel) Recv(buf []byte) (frame []byte, key string, ok bool) {
	for dropped := 0; c.inbound != nil; dropped++ {
		if dropped == maxDropped {
			return buf[:0], "", true
		}
		part, sender, more, err := c.recvPart()
		if err != nil {
			c.countRecvError(err)
			break
		}
		rest := c.inside
		c.inside = more
		switch owner, known := c.ownerOf(sender); {
		case rest:
		case more:
			if c.counters.droppedMultipart.Add(1) == 1 {
				c.log.Warn("a peer sent a message of several parts, which was dropped; more of them are only counted")
			}
		case !known:
			c.counters.droppedUnauthorized.Add(1)
		default:
			c.counters.received.Add(1)
			return fill(buf, part), owner, true
		}
	}
	return buf[:0], "", false
}

// recvPart takes the next part of a message, with CURVE also its sender's public key.
func (c *Channel) recvPart() (part []byte, sender string, more bool, err error) {
	if c.curve == nil {
		part, err = c.inbound.RecvBytes(zmq4.DONTWAIT)
	} else {
		var properties map[string]string
		part, properties, err = c.inbound.RecvBytesWithMetadata(zmq4.DONTWAIT, userID)
		sender = properties[userID]
	}
	if err != nil {
		return nil, "", false, err
	}
	more, err = c.inbound.GetRcvmore()
	return part, sender, more, err
}

// ownerOf is the name that a sender's key belongs to now.
func (c *Channel) ownerOf(sender string) (name string, ok bool) {
	if c.curve == nil {
		return "", true
	}
	return c.curve.authorized.owner(sender)
}

// errAgain is libzmq's answer where it would have to wait.
const errAgain = zmq4.Errno(syscall.EAGAIN)

func (c *Channel) countRecvError(err error) {
	if zmq4.AsErrno(err) == errAgain {
		return
	}
	if c.counters.recvErrors.Add(1) == 1 {
		c.log.Error("libzmq failed to receive; more such errors are only counted", "error", err)
	}
}

// fill is append(buf[:0], part...) without the copy when buf is too small: part was made for this call, so it can be given away.
func fill(buf, part []byte) []byte {
	if cap(buf) < len(part) {
		return part
	}
	return append(buf[:0], part...)
}
