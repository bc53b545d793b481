package wire

import (
	"fmt"

	"github.com/kvbounce/kvbounce/ports"
)

// WANT, DRAIN and the handshake carry an endpoint alike: a u32 endpoint_len, which is their last fixed field, and the bytes behind it.

func checkEndpoint(message string, endpoint []byte) error {
	if len(endpoint) > ports.MaxEndpointBytes {
		return wrong(message, "endpoint", byteCount(len(endpoint)), fmt.Sprintf("at most %d", ports.MaxEndpointBytes))
	}
	return nil
}

// cutEndpoint splits b, which begins with an endpoint of n bytes. An empty endpoint is nil.
func cutEndpoint(message string, n uint32, b []byte) (endpoint, rest []byte, err error) {
	if n > ports.MaxEndpointBytes {
		return nil, nil, wrong(message, "endpoint_len", n, fmt.Sprintf("at most %d", ports.MaxEndpointBytes))
	}
	if uint64(n) > uint64(len(b)) {
		return nil, nil, wrong(message, "endpoint_len", n, fmt.Sprintf("at most the %d bytes that follow", len(b)))
	}
	if n > 0 {
		endpoint = b[:n:n]
	}
	return endpoint, b[n:], nil
}
