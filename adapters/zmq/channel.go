// Package zmq is the control channel over ZeroMQ (libzmq through github.com/pebbe/zmq4).
//
// A channel has one socket that is bound, on which frames of every peer come in, and one per peer that is connected, on which frames go out. Nothing is ever sent on
// the first and nothing read from the others: who a frame is from stands in its envelope. A frame is a message of one part.
//
// All are DEALERs. A ROUTER would do for the first, but it gives every connection a routing id, which nothing here needs, and libzmq 4.3.4 ends the process when a
// connection claims an id that it is about to give to another: it counts them up from a number that is always the same.
//
// Sockets are not safe for concurrent use. All of them belong to the goroutine that calls the reactor's methods of ports.ControlChannel; libzmq
// moves the bytes in a thread of its own, one per channel, which never waits for the reactor and never makes it wait.
//
// # CURVE
//
// With keys, every connection is encrypted and both its ends prove that they hold a secret key. A public key belongs to one peer name: the file in the directory of authorized keys that holds
// it. The bound socket takes connections of authorized keys only, and Recv names the key's owner with each frame. The others connect to a peer only with the key that belongs to the
// peer's name, whatever its endpoint says. An endpoint carries the public key so that two agents that disagree about CURVE or about keys learn so in words, and not by silence.
//
// # What a hostile peer can do
//
// Endpoints that come in frames are parsed here and handed to libzmq in canonical form, so that they can't name another transport, a file or a host
// name (see parseEndpoint). A frame above Config.MaxFrame is refused before its body is read, and the connection is closed. Whoever can open a
// connection can make this process hold Config.QueueFrames frames of Config.MaxFrame bytes for it, and more by never ending a message
// of many parts, since libzmq's limits count whole messages and single parts. So the port belongs on a network whose peers are trusted, or behind CURVE.
package zmq

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"syscall"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvbounce/kvbounce/ports"
)

// DefaultQueueFrames is Config.QueueFrames when that is 0. It leaves room above the 1024 frames that the core sends to a silent peer before it
// slows down (protocol.md, 7, Repair).
const DefaultQueueFrames = 4096

// maxSockets is libzmq's own upper limit (ZMQ_SOCKET_LIMIT); its default of 1023 is fewer than MAX_PEERS.
const maxSockets = 65535

// listenBacklog is how many connections may wait to be accepted: every peer of a restarted agent connects at once, and libzmq's
// default of 100 makes the rest wait for a SYN to be repeated.
const listenBacklog = 4096

// renewAfter is how long a peer's queue stays full before its socket is replaced by a new one (see Channel.renew). It is longer than a step of the
// core's repair (at most 2 s, protocol.md, 7), so that whatever waited in the old queue has been due again since.
const renewAfter = 5 * time.Second

// Config is what a Channel is made from.
type Config struct {
	// Bind is where the channel listens: tcp://ADDRESS:PORT with a numeric address (IPv6 in brackets) or * for every address, and port 0 for
	// one that the system picks. The setting CONTROL_BIND.
	Bind string
	// Advertise is where peers are told to connect: a numeric address, or tcp://ADDRESS:PORT with 0 for the bound port. Empty: the bound address if
	// it is a specific one, else the source address of the default route. The setting CONTROL_ADVERTISE.
	Advertise string
	// MaxFrame is the longest frame in bytes, at least 1. The setting MAX_FRAME_SIZE.
	MaxFrame int
	// QueueFrames is how many frames wait for one peer before Send answers Full, and how many frames of one connection wait for Recv before libzmq
	// stops reading from it. 0 means DefaultQueueFrames.
	QueueFrames int
	// CurveSecretKeyFile and CurveAuthorizedKeysDir switch CURVE on; both or neither. The settings of these names.
	CurveSecretKeyFile, CurveAuthorizedKeysDir string
	// Logger takes the few things that an operator should know. nil discards them. Strangers can cause lines without end, one for each connection that is refused: it should bound them.
	Logger *slog.Logger
}

// Channel is a ports.ControlChannel. Stats may be called from any goroutine.
type Channel struct {
	maxFrame    int
	queueFrames int
	renewAfter  time.Duration
	log         *slog.Logger
	endpoint    endpoint
	curve       *curve // nil without CURVE

	ctx       *zmq4.Context
	inbound   *zmq4.Socket // nil after Close
	inside    bool         // the last part taken was not its message's last
	inboundFD int
	peers     map[ports.Identity]*peer

	counters  counters
	closeOnce sync.Once
	closeErr  error
}

var _ ports.ControlChannel = (*Channel)(nil)

// New opens a channel and listens. It may block for as long as the system takes to bind a port. Its errors name the setting that is wrong.
func New(cfg Config) (*Channel, error) {
	if cfg.MaxFrame < 1 {
		return nil, fmt.Errorf("MAX_FRAME_SIZE %d: want at least 1 byte", cfg.MaxFrame)
	}
	if cfg.QueueFrames < 0 {
		return nil, fmt.Errorf("the control channel's queue of %d frames: want at least 1, or 0 for %d", cfg.QueueFrames, DefaultQueueFrames)
	}
	bind, err := parseBind(cfg.Bind)
	if err != nil {
		return nil, fmt.Errorf("CONTROL_BIND %w", err)
	}
	advertise, err := parseAdvertise(cfg.Advertise)
	if err != nil {
		return nil, fmt.Errorf("CONTROL_ADVERTISE %w", err)
	}

	c := &Channel{
		maxFrame:    cfg.MaxFrame,
		queueFrames: cfg.QueueFrames,
		renewAfter:  renewAfter,
		log:         cfg.Logger,
		peers:       make(map[ports.Identity]*peer),
	}
	if c.queueFrames == 0 {
		c.queueFrames = DefaultQueueFrames
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if cfg.CurveSecretKeyFile != "" || cfg.CurveAuthorizedKeysDir != "" {
		if c.curve, err = newCurve(cfg.CurveSecretKeyFile, cfg.CurveAuthorizedKeysDir, &c.counters, c.log); err != nil {
			return nil, err
		}
	}
	if err := c.open(bind, advertise); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// open makes the context and the inbound socket. What it made before an error is left to Close.
func (c *Channel) open(bind string, advertise netip.AddrPort) (err error) {
	if c.ctx, err = newContext(); err != nil {
		return fmt.Errorf("libzmq: %w", err)
	}
	if c.curve != nil {
		if err := c.curve.start(c.ctx); err != nil {
			return fmt.Errorf("libzmq: making the socket that authenticates peers: %w", err)
		}
	}
	if c.inbound, err = c.newInbound(); err != nil {
		return fmt.Errorf("libzmq: making the receiving socket: %w", err)
	}
	if err := c.inbound.Bind(bind); err != nil {
		return bindError(bind, err)
	}
	// Its descriptor stays the same for its life.
	if c.inboundFD, err = c.inbound.GetFd(); err != nil {
		return fmt.Errorf("libzmq: asking for the receiving socket's descriptor: %w", err)
	}
	last, err := c.inbound.GetLastEndpoint()
	if err != nil {
		return fmt.Errorf("libzmq: asking for the bound address: %w", err)
	}
	bound, err := parseAddrPort(last)
	if err != nil {
		return fmt.Errorf("libzmq: the bound address %w", err)
	}
	at, err := advertised(bound, advertise, routeSource)
	if err != nil {
		return err
	}
	c.endpoint.at = at
	if c.curve != nil {
		c.endpoint.key = c.curve.public
	} else if !bound.Addr().IsLoopback() {
		c.log.Warn("control messages are neither encrypted nor authenticated, and other machines can reach the port: keep it on a network where every host is trusted, "+
			"or set CURVE_SECRET_KEY_FILE and CURVE_AUTHORIZED_KEYS_DIR (kvbounce keygen makes keys)", "bound", last)
	}
	c.log.Info("control channel listens", "channel", "zmq", "bound", last, "advertised", c.endpoint.String())
	return nil
}

// newContext makes a context of the channel's own, so that channels of one process share neither a thread nor a limit. Calls that a
// signal interrupts (Go preempts with SIGURG) are repeated by zmq4; that is the default of a new context and is set here to be sure.
func newContext() (*zmq4.Context, error) {
	ctx, err := zmq4.NewContext()
	if err != nil {
		return nil, err
	}
	ctx.SetRetryAfterEINTR(true)
	if err := ctx.SetMaxSockets(maxSockets); err != nil {
		return nil, errors.Join(err, ctx.Term())
	}
	return ctx, nil
}

func (c *Channel) newInbound() (*zmq4.Socket, error) {
	return c.newSocket(func(s *zmq4.Socket) error {
		longest := int64(c.maxFrame)
		if c.curve != nil {
			longest += curveOverhead
			if err := c.curve.server(s); err != nil {
				return err
			}
		}
		return errors.Join(
			s.SetMaxmsgsize(longest),
			s.SetRcvhwm(c.queueFrames),
			s.SetSndhwm(1), // nothing is ever sent
			s.SetBacklog(listenBacklog),
		)
	})
}

// newSocket makes a DEALER with the options of all sockets and then its own. It leaves nothing behind when it fails.
func (c *Channel) newSocket(options func(*zmq4.Socket) error) (*zmq4.Socket, error) {
	s, err := c.ctx.NewSocket(zmq4.DEALER)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		s.SetLinger(0),
		s.SetIpv6(true),
		// The kernel notices a machine that is gone: an idle connection after 30 s, one with unacknowledged bytes too. ZMTP's own heartbeats are
		// left off: they would wake idle agents, and cut off a peer that was only stopped for a while, with frames in its socket.
		s.SetTcpKeepalive(1),
		s.SetTcpKeepaliveIdle(15),
		s.SetTcpKeepaliveIntvl(5),
		s.SetTcpKeepaliveCnt(3),
		s.SetTcpMaxrt(30*time.Second),
		options(s),
	)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// bindError says in one sentence what is wrong with CONTROL_BIND and what to do.
func bindError(bind string, err error) error {
	switch zmq4.AsErrno(err) {
	case zmq4.EADDRINUSE:
		return fmt.Errorf("CONTROL_BIND %s: another socket has this port; stop its owner, choose another port, or use port 0 to let the system pick one: %w", bind, err)
	case zmq4.EADDRNOTAVAIL, zmq4.Errno(syscall.ENODEV):
		return fmt.Errorf("CONTROL_BIND %s: this machine has no such address; use one of its own, or tcp://*:0 for all of them: %w", bind, err)
	case zmq4.Errno(syscall.EACCES):
		return fmt.Errorf("CONTROL_BIND %s: this user may not use this port; choose one above 1023, or port 0 to let the system pick one: %w", bind, err)
	}
	return fmt.Errorf("CONTROL_BIND %s: %w", bind, err)
}

// Kind is ports.ControlZMQ.
func (c *Channel) Kind() ports.ControlKind { return ports.ControlZMQ }

// Endpoint is tcp://ADDRESS:PORT with a numeric address, as text, with CURVE ?curve=KEY behind it. The caller owns the bytes.
func (c *Channel) Endpoint() []byte { return []byte(c.endpoint.String()) }

// WaitFD is the inbound socket's descriptor (ZMQ_FD). It is edge-triggered: it becomes readable again only after Recv has answered that no frame waits.
// Sends go over other sockets and do not disturb it.
func (c *Channel) WaitFD() int {
	if c.inbound == nil {
		return -1
	}
	return c.inboundFD
}

// Close closes every socket and ends libzmq's threads. Frames that wait are dropped. Its result is the same when it is called again.
func (c *Channel) Close() error {
	c.closeOnce.Do(func() {
		var errs []error
		for id, p := range c.peers {
			errs = append(errs, p.dealer.Close())
			delete(c.peers, id)
		}
		if c.inbound != nil {
			errs = append(errs, c.inbound.Close())
			c.inbound = nil
		}
		if c.ctx != nil {
			errs = append(errs, c.ctx.Term())
		}
		if c.curve != nil && c.curve.done != nil {
			<-c.curve.done // the end of the context ended it
		}
		c.closeErr = errors.Join(errs...)
	})
	return c.closeErr
}
