package wire_test

import (
	"testing"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

func TestDrainBytes(t *testing.T) {
	sameBytes(t, "drain", sampleDrain())
	sameBytes(t, "drain_bare", sampleBareDrain())
}

func TestDrainRejects(t *testing.T) {
	rejects(t, "DRAIN", sampleDrain(), []rejection{
		reject("region", "region", u64At(atRegion, 1)),
		reject("chunk", "chunk", u32At(atChunk, 1)),
		reject("whole request", "chunk", u32At(atChunk, wire.WholeRequest)),
		reject("chunks", "chunks", u32At(atChunks, 1)),
		reject("count", "count", u32At(atCount, 1)),
		reject("no payload", "length", payload()),
		reject("payload without a whole endpoint_len", "length", payload(0, 0, 0)),
		reject("endpoint beyond the payload", "endpoint_len", u32At(atPayload, 20)),
		reject("endpoint of 2^32-1", "endpoint_len", u32At(atPayload, 0xFFFFFFFF)),
		reject("endpoint above the limit", "endpoint_len", u32At(atPayload, ports.MaxEndpointBytes+1), longer(make([]byte, ports.MaxEndpointBytes)...)),
		reject("a byte left over", "length", longer(0)),
		reject("a byte too few", "endpoint_len", shorter(1)),
	})
}

func TestDrainCheck(t *testing.T) {
	checksRefuse(t, "DRAIN", []unencodable{
		{"request", "request", &wire.Drain{}},
		{"endpoint", "endpoint", &wire.Drain{Request: 1, Endpoint: make([]byte, ports.MaxEndpointBytes+1)}},
	})
}

func TestDrainLongestEndpoint(t *testing.T) {
	sameAfterTrip(t, &wire.Drain{Request: 1, Endpoint: make([]byte, ports.MaxEndpointBytes)})
}
