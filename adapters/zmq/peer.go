package zmq

import (
	"errors"
	"fmt"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvbounce/kvbounce/ports"
)

const (
	// reconnectFirst and reconnectMost bound how long a DEALER waits between attempts: a peer that comes back is reached within
	// reconnectMost, and one that stays away costs one SYN in that time.
	reconnectFirst = 100 * time.Millisecond
	reconnectMost  = 2 * time.Second
	// connectTimeout ends an attempt that nobody answers: the system's own limit, two minutes, would hold up a peer whose address came back.
	connectTimeout = 5 * time.Second
	// backwardBytes and backwardFrames bound what the far end may send back over a DEALER: nothing reads it, so it must not pile up. The
	// handshakes of ZMTP, CURVE's too, fit.
	backwardBytes  = 4096
	backwardFrames = 1
)

// peer is one peer that frames can be sent to.
type peer struct {
	name      string
	endpoint  endpoint
	dealer    *zmq4.Socket
	fullSince time.Time // when its queue was found full; zero when the last frame was taken
}

// Connect implements ports.ControlChannel. A peer whose endpoint is replaced loses the frames that wait for it.
func (c *Channel) Connect(id ports.Identity, endpoint []byte) error {
	if c.inbound == nil {
		return fmt.Errorf("control channel: %w", ports.ErrClosed)
	}
	to, err := parseEndpoint(endpoint)
	if err == nil {
		err = c.checkPeer(id, to)
	}
	if err != nil {
		return fmt.Errorf("control endpoint of %q: %w", id, err)
	}
	known := c.peers[id]
	if known != nil && known.endpoint == to {
		return nil
	}
	dealer, err := c.newDealer(to)
	if err != nil {
		return fmt.Errorf("connecting to %q at %s: %w", id, to, err)
	}
	c.peers[id] = &peer{name: id.Name(), endpoint: to, dealer: dealer}
	if known != nil {
		c.closeDealer(known)
	}
	return nil
}

// Disconnect implements ports.ControlChannel. libzmq's thread gives descriptors and memory back a moment after it returned.
func (c *Channel) Disconnect(id ports.Identity) {
	if p, ok := c.peers[id]; ok {
		delete(c.peers, id)
		c.closeDealer(p)
	}
}

// Send implements ports.ControlChannel. A frame longer than Config.MaxFrame is dropped and counted: the far end would close the connection for it, and
// frames behind it would be lost.
func (c *Channel) Send(id ports.Identity, frame []byte) ports.SendResult {
	p, ok := c.peers[id]
	if !ok || !c.mayReach(p) {
		return ports.NoPeer
	}
	if len(frame) > c.maxFrame {
		if c.counters.droppedOversize.Add(1) == 1 {
			c.log.Warn("a frame is longer than MAX_FRAME_SIZE and was dropped; more of them are only counted", "peer", string(id), "bytes", len(frame), "limit", c.maxFrame)
		}
		return ports.Accepted
	}
	if c.offer(p, frame) || (c.renew(p) && c.offer(p, frame)) {
		p.fullSince = time.Time{}
		c.counters.sent.Add(1)
		return ports.Accepted
	}
	c.counters.full.Add(1)
	return ports.Full
}

// offer hands a frame to a peer's socket and reports whether it was taken. A socket looks only about every millisecond whether libzmq's thread has
// made room in its queue. Asking for ZMQ_EVENTS makes it look at once, so that a queue that seems full is one.
func (c *Channel) offer(p *peer, frame []byte) bool {
	if c.try(p, frame) {
		return true
	}
	events, err := p.dealer.GetEvents()
	return err == nil && events&zmq4.POLLOUT != 0 && c.try(p, frame)
}

func (c *Channel) try(p *peer, frame []byte) bool {
	_, err := p.dealer.SendBytes(frame, zmq4.DONTWAIT)
	if err != nil && zmq4.AsErrno(err) != errAgain {
		if c.counters.sendErrors.Add(1) == 1 {
			c.log.Error("libzmq refused a frame; more of them are only counted", "endpoint", p.endpoint.String(), "error", err)
		}
	}
	return err == nil
}

// renew replaces the socket of a peer whose queue has been full for long, and reports whether it did. libzmq gives a connection up for good, without
// a word, when the far end breaks ZMTP's rules, as when another program's ZeroMQ socket had the port for a while; from outside that looks like a
// full queue. The frames in the old queue are lost.
func (c *Channel) renew(p *peer) bool {
	now := time.Now()
	if p.fullSince.IsZero() {
		p.fullSince = now
	}
	if now.Sub(p.fullSince) < c.renewAfter {
		return false
	}
	dealer, err := c.newDealer(p.endpoint)
	if err != nil {
		return false
	}
	c.closeDealer(p)
	p.dealer, p.fullSince = dealer, time.Time{}
	c.counters.renewed.Add(1)
	return true
}

// newDealer makes a socket that connects to an endpoint in the background and queues frames meanwhile.
func (c *Channel) newDealer(to endpoint) (*zmq4.Socket, error) {
	s, err := c.newSocket(func(s *zmq4.Socket) error {
		if c.curve != nil {
			if err := c.curve.client(s, to.key); err != nil {
				return err
			}
		}
		return errors.Join(
			s.SetSndhwm(c.queueFrames),
			s.SetRcvhwm(backwardFrames),
			s.SetMaxmsgsize(backwardBytes),
			s.SetReconnectIvl(reconnectFirst),
			s.SetReconnectIvlMax(reconnectMost),
			s.SetConnectTimeout(connectTimeout),
		)
	})
	if err != nil {
		return nil, err
	}
	if err := s.Connect(endpointText(to.at)); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (c *Channel) closeDealer(p *peer) {
	if err := p.dealer.Close(); err != nil {
		c.log.Error("closing a peer's socket", "endpoint", p.endpoint.String(), "error", err)
	}
}
