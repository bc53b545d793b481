package zmq

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvbounce/kvbounce/ports"
)

const (
	// curveOverhead is what CURVE adds to a frame on the wire: command name, nonce, authenticator and flags (ZeroMQ RFC 26, MESSAGE command).
	curveOverhead = 8 + 8 + 16 + 1

	// zapEndpoint is where libzmq looks for whom to ask about a client (ZeroMQ RFC 27), within one context.
	zapEndpoint = "inproc://zeromq.zap.01"
	// zapDomain names what is asked for; without a domain libzmq would not have to ask.
	zapDomain = "kvbounce"
	// zapTick is how often the directory of authorized keys is looked at when nobody connects.
	zapTick = time.Second
	// userID is the property of a message in which libzmq keeps the answer about its sender.
	userID = "User-Id"
)

// curve is a channel's side of CURVE: its own keys, those it knows, and the handler that libzmq asks whether a client may connect.
//
// The handler has a socket and a goroutine of its own in the channel's context. The one that comes with zmq4 serves a single context of the process and one set of keys, so
// that agents of one process would share them; and the reactor can't serve it, since it may be asleep while peers connect.
type curve struct {
	public, secret string
	authorized     *authorizedKeys
	counters       *counters
	log            *slog.Logger

	handler *zmq4.Socket  // nil until it is opened
	done    chan struct{} // closed when the handler's goroutine ended
}

// newCurve reads the keys. Its errors name the setting that is wrong.
func newCurve(secretFile, authorizedDir string, counters *counters, log *slog.Logger) (*curve, error) {
	switch {
	case authorizedDir == "":
		return nil, errors.New("CURVE_AUTHORIZED_KEYS_DIR is empty: want a directory, since CURVE_SECRET_KEY_FILE is set")
	case secretFile == "":
		return nil, errors.New("CURVE_SECRET_KEY_FILE is empty: want a file, since CURVE_AUTHORIZED_KEYS_DIR is set")
	case !HasCurve():
		return nil, errNoCurve
	}
	v := &curve{counters: counters, log: log}
	var err error
	if v.secret, err = readSecretKey(secretFile); err != nil {
		return nil, fmt.Errorf("CURVE_SECRET_KEY_FILE: %w", err)
	}
	if v.public, err = publicKeyOf(v.secret); err != nil {
		return nil, fmt.Errorf("CURVE_SECRET_KEY_FILE: %w", err)
	}
	if v.authorized, err = openAuthorizedKeys(authorizedDir, log); err != nil {
		return nil, fmt.Errorf("CURVE_AUTHORIZED_KEYS_DIR: %w", err)
	}
	return v, nil
}

// CheckKeys reports whether a channel could use these keys (the settings CURVE_SECRET_KEY_FILE and CURVE_AUTHORIZED_KEYS_DIR), as New would.
func CheckKeys(secretFile, authorizedDir string) error {
	_, err := newCurve(secretFile, authorizedDir, &counters{}, slog.New(slog.DiscardHandler))
	return err
}

// server makes the inbound socket speak CURVE and nothing else.
func (v *curve) server(s *zmq4.Socket) error {
	return errors.Join(s.SetCurveServer(1), s.SetCurveSecretkey(v.secret), s.SetZapDomain(zapDomain))
}

// client makes a DEALER speak CURVE, with the holder of serverKey alone.
func (v *curve) client(s *zmq4.Socket, serverKey string) error {
	return errors.Join(s.SetCurveServerkey(serverKey), s.SetCurvePublickey(v.public), s.SetCurveSecretkey(v.secret))
}

// start opens the handler. It must stand before the first server socket listens: libzmq lets everyone in whose client can't be asked about.
func (v *curve) start(ctx *zmq4.Context) error {
	s, err := ctx.NewSocket(zmq4.REP)
	if err != nil {
		return err
	}
	if err := errors.Join(s.SetLinger(0), s.SetRcvtimeo(zapTick), s.Bind(zapEndpoint)); err != nil {
		return errors.Join(err, s.Close())
	}
	v.handler, v.done = s, make(chan struct{})
	go v.serve()
	return nil
}

// serve answers until the context ends.
func (v *curve) serve() {
	defer close(v.done)
	defer func() {
		if err := v.handler.Close(); err != nil {
			v.log.Error("closing the socket that authenticates peers", "err", err)
		}
	}()
	for {
		request, err := v.handler.RecvMessageBytes(0)
		switch zmq4.AsErrno(err) {
		case 0:
		case errAgain:
			v.authorized.refresh(time.Now())
			continue
		case zmq4.ETERM:
			return
		default:
			v.log.Error("libzmq failed to ask about a peer; no more peers can connect", "err", err)
			return
		}
		v.authorized.refresh(time.Now())
		if _, err := v.handler.SendMessageDontwait(v.answer(request)...); err != nil && zmq4.AsErrno(err) != zmq4.ETERM {
			v.log.Error("libzmq failed to take the answer about a peer", "err", err)
		}
	}
}

// answer is the reply to a request about a client: version, request id, domain, address, routing id, mechanism and the client's public key (RFC 27). The client's user id is
// its public key, so that whom it belongs to can be looked up again with each message.
func (v *curve) answer(request [][]byte) []any {
	reply := func(id []byte, status, text, user string) []any { return []any{"1.0", id, status, text, user, ""} }
	if len(request) != 7 || string(request[0]) != "1.0" || string(request[5]) != "CURVE" || len(request[6]) != keyBytes {
		var id []byte
		if len(request) > 1 {
			id = request[1]
		}
		return reply(id, "500", "not a request about a CURVE client", "")
	}
	key := zmq4.Z85encode(string(request[6]))
	if name, ok := v.authorized.owner(key); ok {
		v.log.Debug("peer connected", "name", name, "from", strings.TrimPrefix(string(request[3]), "::ffff:"))
		return reply(request[1], "200", "OK", key)
	}
	v.log.Warn("a peer whose key is not authorized tried to connect; if it is one of yours, put its public key into CURVE_AUTHORIZED_KEYS_DIR", "from", strings.TrimPrefix(string(request[3]), "::ffff:"), "key", key)
	v.counters.refusedKeys.Add(1)
	return reply(request[1], "400", "not authorized", "")
}

// checkPeer reports whether frames for a peer may be sent to an endpoint: both sides must agree on CURVE, and the endpoint's key must be the name's.
func (c *Channel) checkPeer(id ports.Identity, to endpoint) error {
	switch {
	case c.curve == nil && to.key != "":
		return errors.New("the peer's control channel wants CURVE and this agent has no keys: set CURVE_SECRET_KEY_FILE and CURVE_AUTHORIZED_KEYS_DIR at both or at neither")
	case c.curve != nil && to.key == "":
		return errors.New("the peer's control channel does not speak CURVE and this agent's does: set CURVE_SECRET_KEY_FILE and CURVE_AUTHORIZED_KEYS_DIR at both or at neither")
	case c.curve != nil:
		return c.curve.authorized.check(id.Name(), to.key)
	}
	return nil
}

// mayReach reports whether a peer's key still is its name's. It may have been taken away since the peer was connected.
func (c *Channel) mayReach(p *peer) bool {
	return c.curve == nil || c.curve.authorized.isOf(p.name, p.endpoint.key)
}
