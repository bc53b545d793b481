package zmq

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// parseAdvertise checks CONTROL_ADVERTISE: a numeric address, or tcp://ADDRESS:PORT. Port 0 stands for the bound port. "" gives the zero value: nothing is set.
func parseAdvertise(text string) (netip.AddrPort, error) {
	if text == "" {
		return netip.AddrPort{}, nil
	}
	at, err := parseAddrPort(text)
	if !strings.HasPrefix(text, scheme) {
		at, err = parseAddrPort(scheme + bracketed(text) + ":0")
	}
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q: want a numeric address (host names are not looked up) or tcp://ADDRESS:PORT, without a zone", text)
	}
	if err := checkReachable(at.Addr()); err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q: %w", text, err)
	}
	return at, nil
}

// bracketed puts a bare IPv6 address into the brackets that it has in an endpoint.
func bracketed(host string) string {
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		return "[" + host + "]"
	}
	return host
}

// advertised is where peers are told to connect (protocol.md, 10): what is set, else the bound address if it is a specific one, else the source address of
// the default route, IPv4 before IPv6.
func advertised(bound, set netip.AddrPort, source func(to netip.Addr) (netip.Addr, error)) (netip.AddrPort, error) {
	if set.IsValid() {
		if set.Port() == 0 {
			set = netip.AddrPortFrom(set.Addr(), bound.Port())
		}
		return set, nil
	}
	if !bound.Addr().IsUnspecified() {
		if err := checkReachable(bound.Addr()); err != nil {
			return netip.AddrPort{}, fmt.Errorf("CONTROL_BIND %s: %w; set CONTROL_ADVERTISE to an address that peers can reach", endpointText(bound), err)
		}
		return bound, nil
	}
	families := []netip.Addr{farIPv4}
	if bound.Addr().Is6() { // listens on IPv4 too
		families = append(families, farIPv6)
	}
	var why error
	for _, to := range families {
		addr, err := source(to)
		if err == nil {
			return netip.AddrPortFrom(addr, bound.Port()), nil
		}
		why = err
	}
	return netip.AddrPort{}, fmt.Errorf("this machine has no default route whose address peers could be told; set CONTROL_ADVERTISE, or CONTROL_BIND with a specific address: %w", why)
}

// Addresses that no machine has (documentation, RFC 5737 and RFC 3849), so that only a default route leads there.
var (
	farIPv4 = netip.MustParseAddr("203.0.113.1")
	farIPv6 = netip.MustParseAddr("2001:db8::1")
)

// routeSource is the address of this machine that packets to another would carry. It connects a UDP socket, which looks the route up and sends nothing.
func routeSource(to netip.Addr) (netip.Addr, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
	if err != nil {
		return netip.Addr{}, err
	}
	defer conn.Close()
	local, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok {
		return netip.Addr{}, fmt.Errorf("the route to %s has no address", to)
	}
	addr := local.AddrPort().Addr().Unmap()
	if err := checkReachable(addr); err != nil {
		return netip.Addr{}, fmt.Errorf("the route to %s begins at %s: %w", to, addr, err)
	}
	if addr.IsLoopback() {
		return netip.Addr{}, fmt.Errorf("the route to %s begins at %s, where no other machine gets", to, addr)
	}
	return addr, nil
}
