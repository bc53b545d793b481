package zmq

import (
	"syscall"

	zmq4 "github.com/pebbe/zmq4"
)

// Recv implements ports.ControlChannel. The key is always "": without CURVE nobody is authenticated. Messages of several parts are not ours; they
// are dropped and counted on the way to the next frame.
//
// When it answers that none waits, libzmq has taken in every signal of its thread, so that WaitFD fires for the next frame.
func (c *Channel) Recv(buf []byte) (frame []byte, key string, ok bool) {
	for c.router != nil {
		// A ROUTER puts the routing id of the connection before each message.
		if _, err := c.router.RecvBytes(zmq4.DONTWAIT); err != nil {
			c.countRecvError(err)
			break
		}
		part, more, err := c.recvPart()
		if err != nil {
			c.countRecvError(err)
			break
		}
		if !more {
			c.counters.received.Add(1)
			return fill(buf, part), "", true
		}
		if c.counters.droppedMultipart.Add(1) == 1 {
			c.log.Warn("a peer sent a message of several parts, which was dropped; more of them are only counted")
		}
		for more && err == nil {
			_, more, err = c.recvPart()
		}
	}
	return buf[:0], "", false
}

// recvPart takes the next part of a message that has begun to come out. libzmq delivers whole messages only, so it never has to wait.
func (c *Channel) recvPart() (part []byte, more bool, err error) {
	if part, err = c.router.RecvBytes(zmq4.DONTWAIT); err != nil {
		return nil, false, err
	}
	more, err = c.router.GetRcvmore()
	return part, more, err
}

func (c *Channel) countRecvError(err error) {
	if zmq4.AsErrno(err) == zmq4.Errno(syscall.EAGAIN) {
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
