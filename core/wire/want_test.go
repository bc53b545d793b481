package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

func TestWantBytes(t *testing.T) {
	sameBytes(t, "want", sampleWant())
	sameBytes(t, "want_bare", sampleBareWant())
}

func TestWantRejects(t *testing.T) {
	const atOldest, atEndpointLen = atPayload, atPayload + 16
	rejects(t, "WANT", sampleWant(), []rejection{
		reject("region", "region", u64At(atRegion, 1)),
		reject("chunk", "chunk", u32At(atChunk, 1)),
		reject("whole request", "chunk", u32At(atChunk, wire.WholeRequest)),
		reject("chunks above count", "chunks", u32At(atChunks, 3)),
		reject("chunks below count", "chunks", u32At(atChunks, 0)),
		reject("no chunks", "count", u32At(atChunks, 0), u32At(atCount, 0), shorter(8)),
		reject("count above the payload", "count", u32At(atCount, 3)),
		reject("count of 2^32-1", "count", u32At(atCount, 0xFFFFFFFF)),
		reject("count below the payload", "count", u32At(atCount, 1)),
		reject("a byte left over", "length", longer(0)),
		reject("a byte too few", "count", shorter(1)),
		reject("payload without its fixed fields", "length", payload(make([]byte, 19)...)),
		reject("no payload", "length", payload()),
		reject("oldest 0", "oldest", u64At(atOldest, 0)),
		reject("oldest above request", "oldest", u64At(atOldest, 8)),
		reject("endpoint beyond the payload", "endpoint_len", u32At(atEndpointLen, 28)),
		reject("endpoint of 2^32-1", "endpoint_len", u32At(atEndpointLen, 0xFFFFFFFF)),
		reject("endpoint swallows chunk bytes", "count", u32At(atEndpointLen, 20)),
		reject("endpoint above the limit", "endpoint_len", u32At(atEndpointLen, ports.MaxEndpointBytes+1), longer(make([]byte, ports.MaxEndpointBytes)...)),
		reject("a chunk of no bytes", "chunk_bytes[1]", u32At(len(encode(sampleWant()))-4, 0)),
	})
}

func TestWantCheck(t *testing.T) {
	ok := func(change func(*wire.Want)) *wire.Want {
		w := sampleWant()
		change(w)
		return w
	}
	checksRefuse(t, "WANT", []unencodable{
		{"request", "request", ok(func(w *wire.Want) { w.Request = 0 })},
		{"oldest 0", "oldest", ok(func(w *wire.Want) { w.Oldest = 0 })},
		{"oldest above request", "oldest", ok(func(w *wire.Want) { w.Oldest = 8 })},
		{"endpoint", "endpoint", ok(func(w *wire.Want) { w.Endpoint = make([]byte, ports.MaxEndpointBytes+1) })},
		{"no chunks", "chunk_bytes", ok(func(w *wire.Want) { w.ChunkBytes = nil })},
		{"a chunk of no bytes", "chunk_bytes[0]", ok(func(w *wire.Want) { w.ChunkBytes[0] = 0 })},
	})
}

func TestWantLimits(t *testing.T) {
	w := &wire.Want{
		Request: 1<<64 - 1, Oldest: 1<<64 - 1, Token: 1<<64 - 1, Endpoint: make([]byte, ports.MaxEndpointBytes), ChunkBytes: make([]uint32, 70_000),
	}
	for i := range w.ChunkBytes {
		w.ChunkBytes[i] = 1<<32 - 1
	}
	require.NoError(t, w.Check())
	got, err := wire.Decode(encode(w))
	require.NoError(t, err)
	require.Equal(t, w, got)
}
