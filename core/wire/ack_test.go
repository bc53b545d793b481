package wire_test

import (
	"testing"

	"github.com/kvbounce/kvbounce/core/wire"
)

func TestAckBytes(t *testing.T) {
	sameBytes(t, "ack", sampleAck())
	sameBytes(t, "ack_queued", sampleQueued())
}

func TestAckRejects(t *testing.T) {
	rejects(t, "ACK", sampleAck(), []rejection{
		reject("region 0 for one chunk", "region", u64At(atRegion, 0)),
		reject("chunk not below chunks", "chunk", u32At(atChunk, 3)),
		reject("chunks 0", "chunk", u32At(atChunk, 0), u32At(atChunks, 0)),
		reject("region for the whole request", "region", u32At(atChunk, wire.WholeRequest)),
		reject("count", "count", u32At(atCount, 1)),
		reject("payload", "length", longer(0)),
	})
	rejects(t, "ACK", sampleQueued(), []rejection{
		reject("queued, region", "region", u64At(atRegion, 901)),
		reject("queued, chunks 0", "chunks", u32At(atChunks, 0)),
		reject("queued, count", "count", u32At(atCount, 1)),
		reject("queued, payload", "length", longer(0)),
	})
}

func TestAckCheck(t *testing.T) {
	checksRefuse(t, "ACK", []unencodable{
		{"request", "request", &wire.Ack{Region: 1, Chunks: 1}},
		{"region 0 for one chunk", "region", &wire.Ack{Request: 1, Chunks: 1}},
		{"chunk", "chunk", &wire.Ack{Request: 1, Region: 1, Chunk: 1, Chunks: 1}},
		{"region for the whole request", "region", &wire.Ack{Request: 1, Region: 1, Chunk: wire.WholeRequest, Chunks: 1}},
		{"chunks 0", "chunks", &wire.Ack{Request: 1, Chunk: wire.WholeRequest}},
	})
}
