package wire_test

import (
	"testing"

	"github.com/kvbounce/kvbounce/core/wire"
)

func TestDrainAckBytes(t *testing.T) { sameBytes(t, "drain_ack", sampleDrainAck()) }

func TestDrainAckRejects(t *testing.T) {
	rejects(t, "DRAIN_ACK", sampleDrainAck(), []rejection{
		reject("region", "region", u64At(atRegion, 1)),
		reject("chunk", "chunk", u32At(atChunk, 1)),
		reject("whole request", "chunk", u32At(atChunk, wire.WholeRequest)),
		reject("chunks", "chunks", u32At(atChunks, 1)),
		reject("count", "count", u32At(atCount, 1)),
		reject("payload", "length", longer(0)),
	})
}

func TestDrainAckCheck(t *testing.T) {
	checksRefuse(t, "DRAIN_ACK", []unencodable{{"request", "request", &wire.DrainAck{}}})
}
