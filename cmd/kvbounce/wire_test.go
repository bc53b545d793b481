package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// feed runs a command line with text on standard input.
func feed(in string, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(args, streams{in: strings.NewReader(in), out: &o, err: &e})
	return code, o.String(), e.String()
}

// failure is what --json says of an error.
func failure(t *testing.T, out string) (field, message string) {
	t.Helper()
	var e struct {
		Error struct {
			Field   string `json:"field"`
			Message string `json:"message"`
		} `json:"error"`
	}
	reader := json.NewDecoder(strings.NewReader(out))
	reader.DisallowUnknownFields()
	require.NoError(t, reader.Decode(&e), out)
	require.False(t, reader.More(), out)
	require.Equal(t, 1, strings.Count(out, "\n"))
	return e.Error.Field, e.Error.Message
}

func golden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../core/wire/testdata", name))
	require.NoError(t, err)
	b, err := parseHex(string(text))
	require.NoError(t, err)
	return b
}

// The JSON is cli.md's, to the byte.
func TestWireDecodeJSON(t *testing.T) {
	header := func(kind string, rest string) string {
		return `{"kind":"message","version":3,"type":"` + kind + `","request":7,` + rest + "}\n"
	}
	for name, want := range map[string]string{
		"want.hex": header("WANT", `"region":0,"chunk":0,"chunks":2,"oldest":5,"token":1234605616436508552,"endpoint":"tcp://10.0.0.1:5555","chunk_bytes":[41943040,1]`),
		"grant.hex": header("GRANT", `"region":0,"chunk":0,"chunks":3,"credits":[{"addr":139637977776128,"length":41943040,"device":1,"region":901,"chunk":2},`+
			`{"addr":139638043836416,"length":4096,"device":1,"region":902,"chunk":0}]`),
		"data.hex": header("DATA", `"region":901,"chunk":2,"chunks":3,"runs":[{"offset":0,"addr":139706696204288,"stride":0,"piece":65536,"pieces":1,"step":0,"table":null},`+
			`{"offset":65536,"addr":139706698301440,"stride":-8192,"piece":4096,"pieces":16,"step":4096,"table":null},`+
			`{"offset":131072,"addr":139775415681024,"stride":16384,"piece":512,"pieces":3,"step":1024,"table":1}],"indices":[0,17,3,4294967295]`),
		"ack.hex":        header("ACK", `"region":901,"chunk":2,"chunks":3`),
		"ack_queued.hex": header("ACK", `"region":0,"chunk":4294967295,"chunks":3`),
		"nack.hex":       header("NACK", `"region":0,"chunk":4294967295,"chunks":3,"reason":5,"reason_name":"receive_window","text":"no such window: «7»"`),
		"nack_chunk.hex": header("NACK", `"region":901,"chunk":2,"chunks":3,"reason":4711,"reason_name":"unknown","text":""`),
		"drain.hex":      header("DRAIN", `"region":0,"chunk":0,"chunks":0,"endpoint":"tcp://10.0.0.1:5555"`),
		"drain_bare.hex": header("DRAIN", `"region":0,"chunk":0,"chunks":0,"endpoint":""`),
		"drain_ack.hex":  strings.Replace(header("DRAIN_ACK", `"region":0,"chunk":0,"chunks":0`), `"request":7`, `"request":18446744073709551615`, 1),
		"frame.hex":      `{"kind":"frame","from":"prefill/0#00000000deadbeef","to":"décode#fedcba9876543210","message":` + strings.TrimSpace(header("DRAIN_ACK", `"region":0,"chunk":0,"chunks":0`)) + "}\n",
		"handshake.hex": `{"kind":"handshake","format":1,"wire":3,"control":"zmq","ownership":true,"token_required":true,"memory":"vram","incarnation":18364758544493064720,` +
			`"arena_usable_bytes":536870912,"max_chunk_bytes":41943040,"request_timeout_ms":30000,"endpoint":"tcp://10.0.0.1:5555"}` + "\n",
		"handshake_other.hex": `{"kind":"handshake","format":1,"wire":4,"control":200,"ownership":false,"token_required":false,"memory":"dram","incarnation":1,` +
			`"arena_usable_bytes":0,"max_chunk_bytes":0,"request_timeout_ms":4294967295,"endpoint":""}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := feed("", "wire", "decode", "--json", hex.EncodeToString(golden(t, name)))
			require.Equal(t, exitOK, code, errs)
			require.Empty(t, errs)
			require.Equal(t, want, out)
		})
	}
}

// What decode prints, for people and for programs, encode turns into the same bytes.
func TestWireGoldenFilesThereAndBack(t *testing.T) {
	files, err := filepath.Glob("../../core/wire/testdata/*.hex")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 15)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		want := hex.EncodeToString(golden(t, filepath.Base(file)))
		for _, flags := range [][]string{nil, {"--json"}} {
			code, decoded, errs := feed(string(text), append([]string{"wire", "decode", "-"}, flags...)...)
			require.Equal(t, exitOK, code, errs)
			code, out, errs := feed(decoded, "wire", "encode", "-")
			require.Equal(t, exitOK, code, errs)
			require.Equal(t, want+"\n", out)
			code, out, errs = feed("", "wire", "encode", decoded, "--json")
			require.Equal(t, exitOK, code, errs)
			require.Equal(t, `{"hex":"`+want+`"}`+"\n", out)
		}
	}
}

func TestWireDecodeForPeople(t *testing.T) {
	code, out, _ := feed("", "wire", "decode", hex.EncodeToString(golden(t, "data.hex")))
	require.Equal(t, exitOK, code)
	require.Equal(t, `{
  "kind": "message",
  "version": 3,
  "type": "DATA",
  "request": 7,
  "region": 901,
  "chunk": 2,
  "chunks": 3,
  "runs": [
    {"offset":0,"addr":139706696204288,"stride":0,"piece":65536,"pieces":1,"step":0,"table":null},
    {"offset":65536,"addr":139706698301440,"stride":-8192,"piece":4096,"pieces":16,"step":4096,"table":null},
    {"offset":131072,"addr":139775415681024,"stride":16384,"piece":512,"pieces":3,"step":1024,"table":1}
  ],
  "indices": [0,17,3,4294967295]
}
`, out)
}

func TestParseHex(t *testing.T) {
	for _, text := range []string{"4b56", "4B 56", "0x4b56", "0x4b 0X56", " 4\nb5\t6 ", "4b # the first\n56 # and 99", "4b56\r\n"} {
		b, err := parseHex(text)
		require.NoError(t, err, text)
		require.Equal(t, []byte{0x4b, 0x56}, b, text)
	}
	for text, want := range map[string]string{"": "empty", "# nothing": "empty", "0x": "empty", "4b5": "3 digits", "4b5g": `'g'`, "é": `'é'`, "4b,56": `','`} {
		_, err := parseHex(text)
		require.ErrorContains(t, err, want, text)
	}
}

// someWire draws what package wire can encode: its bytes.
func someWire(t *rapid.T) []byte {
	endpoint := rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 20), rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) })).Draw(t, "endpoint")
	if rapid.IntRange(0, 4).Draw(t, "kind") == 0 {
		h := wire.Handshake{
			Wire: rapid.Uint16().Draw(t, "wire"), Control: ports.ControlKind(rapid.Uint8().Draw(t, "control")), Ownership: rapid.Bool().Draw(t, "ownership"),
			TokenRequired: rapid.Bool().Draw(t, "token"), DeviceArena: rapid.Bool().Draw(t, "device"), Incarnation: rapid.Uint64().Draw(t, "incarnation"),
			ArenaUsable: rapid.Uint64().Draw(t, "arena"), MaxChunk: rapid.Uint64().Draw(t, "chunk"),
			RequestTimeout: time.Duration(rapid.Uint32().Draw(t, "timeout")) * time.Millisecond, Endpoint: endpoint,
		}
		return h.Append(nil)
	}
	request, region := max(rapid.Uint64().Draw(t, "request"), 1), max(rapid.Uint64().Draw(t, "region"), 1)
	chunks := max(rapid.Uint32().Draw(t, "chunks"), 1)
	chunk := rapid.Uint32Max(chunks-1).Draw(t, "chunk")
	if chunk == wire.WholeRequest-1 {
		chunk--
	}
	var m wire.Message
	switch wire.Type(rapid.IntRange(1, 7).Draw(t, "type")) {
	case wire.TypeWant:
		m = &wire.Want{Request: request, Oldest: rapid.Uint64Range(1, request).Draw(t, "oldest"), Token: rapid.Uint64().Draw(t, "token"), Endpoint: endpoint,
			ChunkBytes: rapid.SliceOfN(rapid.Uint32Min(1), 1, 5).Draw(t, "chunk bytes")}
	case wire.TypeGrant:
		m = &wire.Grant{Request: request, Chunks: chunks, Credits: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) wire.Credit {
			return wire.Credit{Addr: rapid.Uint64Min(1).Draw(t, "addr"), Length: rapid.Uint32Min(1).Draw(t, "length"), Device: rapid.Uint32().Draw(t, "device"),
				Region: rapid.Uint64Min(1).Draw(t, "region"), Chunk: rapid.Uint32Max(chunks-1).Draw(t, "chunk")}
		}), 1, 4).Draw(t, "credits")}
	case wire.TypeData:
		index := rapid.SliceOfN(rapid.Uint32(), 3, 6).Draw(t, "index")
		m = &wire.Data{Request: request, Region: region, Chunk: chunk, Chunks: chunks, Runs: ports.Runs{Index: index, Runs: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ports.Run {
			return ports.Run{Offset: rapid.Uint64Max(1<<63).Draw(t, "offset"), Addr: rapid.Uint64().Draw(t, "addr"), Stride: rapid.Int64().Draw(t, "stride"),
				Piece: rapid.Uint32Range(1, 1<<20).Draw(t, "piece"), Pieces: rapid.Uint32Range(1, 3).Draw(t, "pieces"), Step: rapid.Uint32().Draw(t, "step"),
				Table: rapid.SampledFrom([]uint32{0, wire.NoTable}).Draw(t, "table")}
		}), 1, 4).Draw(t, "runs")}}
	case wire.TypeAck:
		m = &wire.Ack{Request: request, Region: region, Chunk: chunk, Chunks: chunks}
	case wire.TypeNack:
		m = &wire.Nack{Request: request, Chunk: wire.WholeRequest, Chunks: chunks, Reason: wire.Reason(rapid.Uint32Min(1).Draw(t, "reason")), Text: wire.CutText(rapid.String().Draw(t, "text"))}
	case wire.TypeDrain:
		m = &wire.Drain{Request: request, Endpoint: endpoint}
	default:
		m = &wire.DrainAck{Request: request}
	}
	require.NoError(t, m.Check())
	if rapid.Bool().Draw(t, "in a frame") {
		name := rapid.StringOfN(rapid.RuneFrom([]rune{'a', 'é', '\n', '"', '<', 'z'}), 1, 8, -1)
		f := wire.Frame{From: ports.Identity(name.Draw(t, "from") + "#0123456789abcdef"), To: ports.Identity(name.Draw(t, "to") + "#fedcba9876543210"), Message: m}
		require.NoError(t, f.Check())
		return f.Append(nil)
	}
	return m.Append(nil)
}

func TestWireThereAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := hex.EncodeToString(someWire(t))
		code, decoded, errs := feed(want, "wire", "decode", "-", "--json")
		require.Equal(t, exitOK, code, errs+decoded)
		code, readable, errs := feed(want, "wire", "decode", "-")
		require.Equal(t, exitOK, code, errs)
		require.JSONEq(t, decoded, readable)
		for _, text := range []string{decoded, readable} {
			code, out, errs := feed(text, "wire", "encode", "-")
			require.Equal(t, exitOK, code, errs+text)
			require.Equal(t, want+"\n", out)
		}
	})
}

// Whatever the bytes: decode says what they are, and that encodes to the same, or it names a field.
func TestWireDecodeAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := someWire(t)
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		b = b[:rapid.IntRange(1, len(b)).Draw(t, "length")]
		v, err := decodeWire(b)
		if err != nil {
			var f *fieldError
			require.ErrorAs(t, withField(err), &f)
			require.NotEmpty(t, f.field)
			return
		}
		text, err := marshal(v)
		require.NoError(t, err)
		again, err := encodeWire(text)
		require.NoError(t, err, string(text))
		require.Equal(t, b, again)
	})
}
