package nixlnotify

import (
	"encoding/binary"
	"testing"

	"go.uber.org/goleak"

	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/ports/porttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestControlChannelContract runs the channel over the fake engine; wiring has the same over NIXL.
func TestControlChannelContract(t *testing.T) {
	porttest.ControlChannel(t, func(t *testing.T) porttest.ControlFixture {
		n := &network{}
		open := func(t *testing.T) porttest.ControlEnd {
			e := n.end(t, "agent")
			return porttest.ControlEnd{Identity: e.id, Channel: e.channel}
		}
		a, b := open(t), open(t)
		return porttest.ControlFixture{
			A: a, B: b, Open: open, MaxFrame: testMaxFrame, QueueFrames: testQueueFrames,
			Nowhere:   appendEndpoint(nil, fakeMetadata{Identity: b.Identity, Connection: 1 << 20}.bytes()),
			Malformed: malformed(b.Channel.Endpoint(), a.Channel.Endpoint()),
		}
	})
}

// malformed are endpoints that must not be loaded: a peer's, damaged, and another agent's.
func malformed(endpoint, others []byte) [][]byte {
	bad := [][]byte{endpoint[:4], endpoint[:len(endpoint)-1], append(append([]byte(nil), endpoint...), 0), others, appendEndpoint(nil, []byte("{"))}
	for at := range endpoint {
		flipped := append([]byte(nil), endpoint...)
		flipped[at] ^= 1
		bad = append(bad, flipped)
	}
	// Longer than an endpoint may be, with a checksum that is right.
	return append(bad, appendEndpoint(nil, make([]byte, ports.MaxEndpointBytes)), binary.LittleEndian.AppendUint32(nil, 0))
}
