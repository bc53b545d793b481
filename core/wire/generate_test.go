package wire_test

import (
	"math"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// Generators. "Loose" ones draw values at and beyond the edges of what is allowed.

func looseU32(t *rapid.T, label string) uint32 {
	return rapid.OneOf(rapid.SampledFrom([]uint32{0, 1, 2, 3, math.MaxUint32 - 1, math.MaxUint32}), rapid.Uint32()).Draw(t, label)
}

func looseU64(t *rapid.T, label string) uint64 {
	return rapid.OneOf(rapid.SampledFrom([]uint64{0, 1, 2, 3, math.MaxUint64 - 1, math.MaxUint64}), rapid.Uint64()).Draw(t, label)
}

// looseIdentity has at most 255 bytes.
func looseIdentity(t *rapid.T) string {
	name := rapid.OneOf(
		rapid.StringN(1, 20, 80),
		rapid.StringOfN(rapid.RuneFrom([]rune{'a', '#', 0, 'é', 'f', '0'}), 0, 5, -1),
		rapid.Map(rapid.IntRange(198, 203), func(n int) string { return strings.Repeat("n", n) }),
		rapid.SampledFrom([]string{"", "\xff", "a\xc3", "\xc3\xa9"}),
	).Draw(t, "name")
	tail := rapid.OneOf(
		rapid.StringMatching(`#[0-9a-f]{16}`),
		rapid.StringMatching(`#?[0-9a-fA-FgG/:]{14,18}`),
		rapid.StringMatching(`#[0-9a-f]{7}.[0-9a-f]{8}`),
	).Draw(t, "tail")
	return name + tail
}

func anEndpoint(t *rapid.T) []byte {
	endpoint := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "endpoint")
	if len(endpoint) == 0 {
		return nil // as Decode gives it
	}
	return endpoint
}

func looseRun(t *rapid.T) ports.Run {
	return ports.Run{
		Offset: looseU64(t, "offset"),
		Addr:   looseU64(t, "addr"),
		Stride: rapid.Int64().Draw(t, "stride"),
		Piece:  looseU32(t, "piece"),
		Pieces: looseU32(t, "pieces"),
		Step:   looseU32(t, "step"),
		Table:  looseU32(t, "table"),
	}
}

// sizedRun is a valid run over a table of n indices, if no other is large.
func sizedRun(n int) func(*rapid.T) ports.Run {
	return func(t *rapid.T) ports.Run {
		r := ports.Run{
			Offset: rapid.Uint64Range(0, 1<<63).Draw(t, "offset"),
			Addr:   rapid.Uint64().Draw(t, "addr"),
			Stride: rapid.Int64().Draw(t, "stride"),
			Piece:  rapid.Uint32Range(1, 1<<20).Draw(t, "piece"),
			Pieces: rapid.Uint32Range(1, 100).Draw(t, "pieces"),
			Step:   rapid.Uint32().Draw(t, "step"),
			Table:  wire.NoTable,
		}
		if n > 0 && rapid.Bool().Draw(t, "indexed") {
			r.Table = rapid.Uint32Range(0, uint32(n-1)).Draw(t, "table")
			r.Pieces = rapid.Uint32Range(1, uint32(n)-r.Table).Draw(t, "pieces")
		}
		return r
	}
}

// looseMessage often breaks a rule; all that it draws can be laid out as bytes.
func looseMessage(t *rapid.T) wire.Message {
	request, region := looseU64(t, "request"), looseU64(t, "region")
	chunk, chunks := looseU32(t, "chunk"), looseU32(t, "chunks")
	switch rapid.IntRange(1, 7).Draw(t, "type") {
	case 1:
		return &wire.Want{
			Request: request, Oldest: looseU64(t, "oldest"), Token: looseU64(t, "token"), Endpoint: anEndpoint(t),
			ChunkBytes: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) uint32 { return looseU32(t, "bytes") }), 0, 5).Draw(t, "chunk bytes"),
		}
	case 2:
		return &wire.Grant{Request: request, Chunks: chunks, Credits: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) wire.Credit {
			return wire.Credit{
				Addr: looseU64(t, "addr"), Length: looseU32(t, "length"), Device: looseU32(t, "device"), Region: looseU64(t, "region"), Chunk: looseU32(t, "chunk"),
			}
		}), 0, 4).Draw(t, "credits")}
	case 3:
		d := &wire.Data{Request: request, Region: region, Chunk: chunk, Chunks: chunks}
		d.Runs.Index = rapid.SliceOfN(rapid.Uint32(), 0, 8).Draw(t, "index")
		run := rapid.Custom(sizedRun(len(d.Runs.Index)))
		if rapid.Bool().Draw(t, "loose runs") {
			run = rapid.Custom(looseRun)
		}
		d.Runs.Runs = rapid.SliceOfN(run, 0, 4).Draw(t, "runs")
		return d
	case 4:
		return &wire.Ack{Request: request, Region: region, Chunk: chunk, Chunks: chunks}
	case 5:
		text := rapid.OneOf(rapid.StringN(0, 100, 300), rapid.SampledFrom([]string{"", "\xff", strings.Repeat("é", 128), strings.Repeat("x", 257)}))
		return &wire.Nack{Request: request, Region: region, Chunk: chunk, Chunks: chunks, Reason: wire.Reason(looseU32(t, "reason")), Text: text.Draw(t, "text")}
	case 6:
		return &wire.Drain{Request: request, Endpoint: anEndpoint(t)}
	default:
		return &wire.DrainAck{Request: request}
	}
}

// aMessage is valid: half of the loose ones are, so this draws until one is.
func aMessage(t *rapid.T) wire.Message {
	return rapid.Custom(looseMessage).Filter(func(m wire.Message) bool { return m.Check() == nil }).Draw(t, "message")
}

func aHandshake(t *rapid.T) *wire.Handshake {
	return &wire.Handshake{
		Wire:           rapid.Uint16().Draw(t, "wire"),
		Control:        ports.ControlKind(rapid.Uint8().Draw(t, "control")),
		Ownership:      rapid.Bool().Draw(t, "ownership"),
		TokenRequired:  rapid.Bool().Draw(t, "token required"),
		DeviceArena:    rapid.Bool().Draw(t, "device arena"),
		Incarnation:    rapid.Uint64().Draw(t, "incarnation"),
		ArenaUsable:    rapid.Uint64().Draw(t, "arena usable"),
		MaxChunk:       rapid.Uint64().Draw(t, "max chunk"),
		RequestTimeout: time.Duration(rapid.Uint32().Draw(t, "timeout")) * time.Millisecond,
		Endpoint:       anEndpoint(t),
	}
}
