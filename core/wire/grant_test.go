package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
)

func TestGrantBytes(t *testing.T) { sameBytes(t, "grant", sampleGrant()) }

func TestGrantRejects(t *testing.T) {
	const second = atPayload + wire.CreditBytes
	rejects(t, "GRANT", sampleGrant(), []rejection{
		reject("region", "region", u64At(atRegion, 1)),
		reject("chunk", "chunk", u32At(atChunk, 1)),
		reject("no credits", "count", u32At(atCount, 0), payload()),
		reject("count 0 with payload", "count", u32At(atCount, 0)),
		reject("count above the payload", "count", u32At(atCount, 3)),
		reject("count of 2^32-1", "count", u32At(atCount, 0xFFFFFFFF)),
		reject("count whose bytes are 2 modulo 2^32 records", "count", u32At(atCount, 1<<27+2)),
		reject("count below the payload", "count", u32At(atCount, 1)),
		reject("a byte left over", "length", longer(0)),
		reject("a byte too few", "count", shorter(1)),
		reject("addr 0", "credits[1].addr", u64At(second, 0)),
		reject("length 0", "credits[1].length", u32At(second+8, 0)),
		reject("region 0", "credits[1].region", u64At(second+16, 0)),
		reject("chunk not below chunks", "credits[1].chunk", u32At(second+24, 3)),
		reject("chunk for the whole request", "credits[1].chunk", u32At(second+24, wire.WholeRequest)),
		reject("chunks 0", "credits[0].chunk", u32At(atChunks, 0)),
		reject("reserved", "credits[1].reserved", u32At(second+28, 1)),
	})
}

func TestGrantCheck(t *testing.T) {
	ok := func(change func(*wire.Grant)) *wire.Grant {
		g := sampleGrant()
		change(g)
		return g
	}
	checksRefuse(t, "GRANT", []unencodable{
		{"request", "request", ok(func(g *wire.Grant) { g.Request = 0 })},
		{"no credits", "credits", ok(func(g *wire.Grant) { g.Credits = nil })},
		{"addr", "credits[0].addr", ok(func(g *wire.Grant) { g.Credits[0].Addr = 0 })},
		{"length", "credits[0].length", ok(func(g *wire.Grant) { g.Credits[0].Length = 0 })},
		{"region", "credits[1].region", ok(func(g *wire.Grant) { g.Credits[1].Region = 0 })},
		{"chunk", "credits[0].chunk", ok(func(g *wire.Grant) { g.Chunks = 2 })},
	})
}

func TestGrantManyCredits(t *testing.T) {
	g := &wire.Grant{Request: 1, Chunks: 70_000}
	for i := range g.Chunks {
		g.Credits = append(g.Credits, wire.Credit{Addr: uint64(i) + 1, Length: i + 1, Region: uint64(i) + 1, Chunk: i})
	}
	require.NoError(t, g.Check())
	got, err := wire.Decode(encode(g))
	require.NoError(t, err)
	require.Equal(t, g, got)
}
