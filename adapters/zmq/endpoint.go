package zmq

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

const scheme = "tcp://"

// curveMark stands between an endpoint's address and its public key.
const curveMark = "?curve="

// maxEndpointText is longer than any valid endpoint ("tcp://[" + 45 characters of IPv6 + "]:65535" + "?curve=" + key). It keeps a peer's 64 KiB out of parsers and logs.
const maxEndpointText = 64 + len(curveMark) + keyText

// endpoint is where a peer listens.
type endpoint struct {
	at  netip.AddrPort
	key string // public key with CURVE, as Z85 text; "" without
}

// String is the canonical text: tcp://ADDRESS:PORT, and with CURVE ?curve=KEY.
func (e endpoint) String() string {
	if e.key == "" {
		return endpointText(e.at)
	}
	return endpointText(e.at) + curveMark + e.key
}

// parseEndpoint reads where a peer listens: tcp://ADDRESS:PORT or tcp://ADDRESS:PORT?curve=KEY. The text comes from the network, so nothing but a numeric unicast
// address gets through: libzmq would also understand ipc:// (creates files), inproc://, multicast, a source address before ';', zones, and host
// names, which it looks up in the thread that serves all peers.
func parseEndpoint(text []byte) (endpoint, error) {
	if len(text) > maxEndpointText {
		return endpoint{}, fmt.Errorf("%d bytes are too long: want tcp://ADDRESS:PORT, with CURVE %sKEY behind it", len(text), curveMark)
	}
	address, key, curve := strings.Cut(string(text), curveMark)
	at, err := parseAddrPort(address)
	if err != nil {
		return endpoint{}, err
	}
	if err := checkReachable(at.Addr()); err != nil {
		return endpoint{}, fmt.Errorf("%q: %w", text, err)
	}
	if at.Port() == 0 {
		return endpoint{}, fmt.Errorf("%q: port 0 can't be connected to", text)
	}
	if curve {
		if err := checkKey(key); err != nil {
			return endpoint{}, fmt.Errorf("%q: %w", text, err)
		}
	}
	return endpoint{at, key}, nil
}

// parseAddrPort reads tcp://ADDRESS:PORT with any numeric address.
func parseAddrPort(text string) (netip.AddrPort, error) {
	rest, ok := strings.CutPrefix(text, scheme)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("%q: want tcp://ADDRESS:PORT", text)
	}
	at, err := netip.ParseAddrPort(rest)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q: want tcp://ADDRESS:PORT with a numeric address (IPv6 in brackets); host names are not looked up", text)
	}
	if at.Addr().Zone() != "" {
		return netip.AddrPort{}, fmt.Errorf("%q: want an address without a zone", text)
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), nil
}

// checkReachable refuses addresses at which no peer can be.
func checkReachable(addr netip.Addr) error {
	switch {
	case addr.IsUnspecified():
		return errors.New("the unspecified address can't be connected to")
	case addr.IsMulticast(), addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return errors.New("want the address of one machine")
	case addr.Is6() && addr.IsLinkLocalUnicast():
		return errors.New("a link-local address means nothing without a zone")
	}
	return nil
}

// parseBind checks CONTROL_BIND and gives it in the form that libzmq is handed.
func parseBind(bind string) (string, error) {
	if port, ok := strings.CutPrefix(bind, scheme+"*:"); ok {
		// Any address stands in for *, to have the port checked.
		at, err := netip.ParseAddrPort("0.0.0.0:" + port)
		if err != nil {
			return "", fmt.Errorf("%q: want tcp://*:PORT with a port from 0 to 65535 (0: the system picks one)", bind)
		}
		return fmt.Sprintf("%s*:%d", scheme, at.Port()), nil
	}
	at, err := parseAddrPort(bind)
	if err != nil {
		return "", err
	}
	return endpointText(at), nil
}

// endpointText is an address as libzmq is handed it.
func endpointText(at netip.AddrPort) string { return scheme + at.String() }
