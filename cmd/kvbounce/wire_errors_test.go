package main

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWireDecodeNamesTheField(t *testing.T) {
	at := func(file string, offset int, bytes ...byte) string {
		b := golden(t, file)
		copy(b[offset:], bytes)
		return hex.EncodeToString(b)
	}
	for _, c := range []struct{ name, hex, field, text string }{
		{"no hex", "KVBN", "hex", "hexadecimal digits"},
		{"odd", "4b5", "hex", "3 digits"},
		{"empty", "", "hex", "empty"},
		{"short", "4b56424e", "header", "40 bytes"},
		{"magic", strings.Repeat("00", 40), "magic", `"KVBN" for a message, "KVBE" for a frame or "KVBH" for a handshake`},
		{"version", at("ack.hex", 4, 2), "version", "want 3"},
		{"type", at("ack.hex", 6, 9), "type", "1 to 7"},
		{"request", at("ack.hex", 8, 0), "request", "at least 1"},
		{"region", at("ack.hex", 16, 0, 0), "region", "at least 1"},
		{"chunk", at("ack.hex", 24, 3), "chunk", "below"},
		{"count", at("ack.hex", 32, 1), "count", "want 0"},
		{"length", at("ack.hex", 36, 1), "length", "want 0"},
		{"truncated", hex.EncodeToString(golden(t, "want.hex")[:60]), "length", "bytes that follow"},
		{"trailing", hex.EncodeToString(append(golden(t, "ack.hex"), 0)), "length", "bytes that follow"},
		{"oldest", at("want.hex", 40, 8), "oldest", "1 to the request"},
		{"endpoint", at("want.hex", 56, 0xff, 0xff, 0xff), "endpoint_len", "at most 65536"},
		{"chunk bytes", at("want.hex", 60+19+4, 0), "chunk_bytes[1]", "at least 1"},
		{"credit", at("grant.hex", 40+32+8, 0, 0), "credits[1].length", "at least 1"},
		{"piece", at("data.hex", 48+40*2+24, 0, 0), "runs[2].piece", "at least 1"},
		{"table", at("data.hex", 48+40*2+36, 2), "runs[2].table", "within the 4 indices"},
		{"reason", at("nack.hex", 40, 0), "reason", "at least 1"},
		{"text", at("nack.hex", 44, 0xff), "text", "UTF-8"},
		{"from", at("frame.hex", 8, '#'), "from", "without NUL and '#'"},
		{"in a frame", at("frame.hex", 8+26+24+6, 0), "type", "1 to 7"},
		{"format", at("handshake.hex", 4, 2), "format", "want 1"},
		{"flags", at("handshake.hex", 9, 0xff), "flags", "0x07"},
		{"handshake", hex.EncodeToString(golden(t, "handshake.hex")[:50]), "endpoint_len", "bytes that follow"},
	} {
		t.Run(c.name, func(t *testing.T) { checkFailure(t, c.field, c.text, "wire", "decode", c.hex) })
	}
}

// checkFailure checks a command line that fails, for people and for programs.
func checkFailure(t *testing.T, field, text string, args ...string) {
	t.Helper()
	code, out, errs := feed("", args...)
	require.Equal(t, exitFailed, code)
	require.Empty(t, out)
	require.Contains(t, errs, text)
	require.Equal(t, 1, strings.Count(errs, "\n"), "one sentence: %s", errs)

	code, out, errs = feed("", append(args, "--json")...)
	require.Equal(t, exitFailed, code)
	require.Empty(t, errs)
	gotField, message := failure(t, out)
	require.Equal(t, field, gotField)
	require.Contains(t, message, text)
}

func TestWireEncodeNamesTheField(t *testing.T) {
	const (
		ack       = `{"kind":"message","version":3,"type":"ACK","request":7,"region":901,"chunk":2,"chunks":3}`
		want      = `{"kind":"message","version":3,"type":"WANT","request":7,"region":0,"chunk":0,"chunks":2,"oldest":5,"token":0,"endpoint":"","chunk_bytes":[3,1]}`
		nack      = `{"kind":"message","version":3,"type":"NACK","request":7,"region":901,"chunk":2,"chunks":3,"reason":3,"reason_name":"outside_chunk","text":"x"}`
		drain     = `{"kind":"message","version":3,"type":"DRAIN","request":7,"region":0,"chunk":0,"chunks":0,"endpoint_hex":"ff00"}`
		grant     = `{"kind":"message","version":3,"type":"GRANT","request":7,"region":0,"chunk":0,"chunks":3,"credits":[{"addr":1,"length":2,"device":0,"region":4,"chunk":2}]}`
		data      = `{"kind":"message","version":3,"type":"DATA","request":7,"region":1,"chunk":0,"chunks":3,"runs":[{"offset":0,"addr":1,"stride":-5,"piece":6,"pieces":1,"step":0,"table":null}],"indices":[0,1]}`
		frame     = `{"kind":"frame","from":"a#0123456789abcdef","to":"b#0123456789abcdef","message":` + ack + `}`
		handshake = `{"kind":"handshake","format":1,"wire":3,"control":"nixl","ownership":true,"token_required":false,"memory":"dram","incarnation":1,"arena_usable_bytes":2,"max_chunk_bytes":3,"request_timeout_ms":4,"endpoint":"e"}`
	)
	for _, text := range []string{ack, want, nack, drain, grant, data, frame, handshake} {
		code, _, errs := feed("", "wire", "encode", text)
		require.Equal(t, exitOK, code, errs)
	}
	for _, c := range []struct{ valid, old, new, field, text string }{
		{ack, ack, ``, "json", "ends too early"},
		{ack, ack, `[1]`, "json", "want an object"},
		{ack, ack, `7`, "json", "want an object"},
		{ack, ack, ack + ack, "json", "something follows"},
		{ack, `"chunks":3}`, `"chunks":3`, "json", "ends too early"},
		{ack, `"chunk":2`, `chunk:2`, "json", "invalid character"},
		{ack, `"kind":"message",`, ``, "kind", "missing"},
		{ack, `"message"`, `"letter"`, "kind", `"message", "frame" or "handshake"`},
		{ack, `"version":3`, `"version":4`, "version", "want 3"},
		{ack, `"version":3,`, ``, "version", "missing"},
		{ack, `"ACK"`, `"SYN"`, "type", `"WANT", "GRANT", "DATA", "ACK", "NACK", "DRAIN" or "DRAIN_ACK"`},
		{ack, `"ACK"`, `4`, "type", `is 4`},
		{ack, `"request":7,`, ``, "request", "missing"},
		{ack, `"request":7`, `"request":0`, "request", "at least 1"},
		{ack, `"request":7`, `"request":-7`, "request", "0 to 18446744073709551615"},
		{ack, `"request":7`, `"request":7.0`, "request", "whole number"},
		{ack, `"request":7`, `"request":7e3`, "request", "whole number"},
		{ack, `"request":7`, `"request":"7"`, "request", `is "7"`},
		{ack, `"request":7`, `"request":null`, "request", `is null`},
		{ack, `"request":7`, `"request":18446744073709551616`, "request", "0 to 18446744073709551615"},
		{ack, `"request":7`, `"request":7,"request":8`, "request", "twice"},
		{ack, `"request":7`, `"Request":7`, "request", "missing"},
		{ack, `"chunk":2`, `"chunk":4294967296`, "chunk", "0 to 4294967295"},
		{ack, `"chunk":2`, `"chunk":3`, "chunk", "below"},
		{ack, `"chunks":3`, `"chunks":3,"reason":1`, "reason", "unknown field"},
		{want, `"region":0`, `"region":1`, "region", "want 0"},
		{want, `"chunks":2`, `"chunks":3`, "chunks", "2, the number of chunk_bytes"},
		{want, `"oldest":5`, `"oldest":8`, "oldest", "1 to the request, 7"},
		{want, `"endpoint":""`, `"endpoint":7`, "endpoint", "a string"},
		{want, `"endpoint":"",`, ``, "endpoint", "missing"},
		{want, `"endpoint":""`, `"endpoint":"\ud800"`, "endpoint", "Unicode"},
		{want, `"endpoint":""`, `"endpoint":"` + "\xff" + `"`, "endpoint", "Unicode"},
		{want, `"endpoint":""`, `"endpoint":"` + strings.Repeat("e", 65537) + `"`, "endpoint", "at most 65536"},
		{want, `[3,1]`, `[3,-1]`, "chunk_bytes[1]", "whole number"},
		{want, `[3,1]`, `[3,0]`, "chunk_bytes[1]", "at least 1"},
		{want, `[3,1]`, `{}`, "chunk_bytes", "a list"},
		{want, `[3,1]`, `null`, "chunk_bytes", "a list"},
		{nack, `"outside_chunk"`, `"malformed"`, "reason_name", `want "outside_chunk"`},
		{nack, `"reason":3`, `"reason":0`, "reason", "want at least 1"},
		{nack, `"text":"x"`, `"text":"` + strings.Repeat("x", 257) + `"`, "text", "at most 256"},
		{drain, `"ff00"`, `"ff0"`, "endpoint_hex", "two hexadecimal digits"},
		{drain, `"endpoint_hex":"ff00"`, `"endpoint_hex":"ff00","endpoint":"x"`, "endpoint_hex", "one of them"},
		{grant, `"length":2,`, ``, "credits[0].length", "missing"},
		{grant, `"length":2`, `"length":0`, "credits[0].length", "at least 1"},
		{grant, `"device":0`, `"device":0,"color":1`, "credits[0].color", "unknown field"},
		{grant, `[{`, `[3,{`, "credits[0]", "an object"},
		{grant, `"device":0`, `"device":0,"device":0`, "credits[0].device", "twice"},
		{data, `"stride":-5`, `"stride":9223372036854775808`, "runs[0].stride", "-9223372036854775808 to 9223372036854775807"},
		{data, `,"table":null`, ``, "runs[0].table", "missing"},
		{data, `"table":null`, `"table":4294967295`, "runs[0].table", "null or a whole number"},
		{data, `"table":null`, `"table":2`, "runs[0].table", "within the 2 indices"},
		{data, `"piece":6`, `"piece":0`, "runs[0].piece", "at least 1"},
		{data, `[0,1]`, `[0,true]`, "indices[1]", "whole number"},
		{frame, `a#0123456789abcdef`, `a#0123456789ABCDEF`, "from", "lower-case"},
		{frame, `"to":"b#0123456789abcdef",`, ``, "to", "missing"},
		{frame, `"message":` + ack, `"message":[]`, "message", "an object"},
		{frame, `"kind":"message"`, `"kind":"frame"`, "kind", `want "message"`},
		{frame, `"chunk":2`, `"chunk":9`, "chunk", "below"},
		{frame, `"chunk":2,`, ``, "chunk", "missing"},
		{handshake, `"format":1`, `"format":2`, "format", "want 1"},
		{handshake, `"wire":3`, `"wire":65536`, "wire", "0 to 65535"},
		{handshake, `"nixl"`, `"smoke"`, "control", `"zmq", "nixl" or "memory"`},
		{handshake, `"nixl"`, `256`, "control", "0 to 255"},
		{handshake, `"nixl"`, `null`, "control", "0 to 255"},
		{handshake, `"ownership":true`, `"ownership":1`, "ownership", "true or false"},
		{handshake, `"dram"`, `"ram"`, "memory", `"dram" or "vram"`},
		{handshake, `"request_timeout_ms":4`, `"request_timeout_ms":4294967296`, "request_timeout_ms", "0 to 4294967295"},
		{handshake, `,"endpoint":"e"`, ``, "endpoint", "missing"},
	} {
		text := strings.Replace(c.valid, c.old, c.new, 1)
		require.NotEqual(t, c.valid, text)
		t.Run(shorten([]byte(c.new))+" "+c.field, func(t *testing.T) { checkFailure(t, c.field, c.text, "wire", "encode", text) })
	}
}

// endless is standard input that never ends, of whatever the buffer holds.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.read += int64(len(p))
	return len(p), nil
}

func TestWireInputIsBounded(t *testing.T) {
	for _, what := range []string{"decode", "encode"} {
		in := &endless{}
		var out, errs strings.Builder
		require.Equal(t, exitFailed, run([]string{"wire", what, "-", "--json"}, streams{in: in, out: &out, err: &errs}))
		field, message := failure(t, out.String())
		require.Equal(t, "input", field)
		require.Contains(t, message, "longer than 64 MiB")
		require.LessOrEqual(t, in.read, int64(maxInputBytes)+1)
	}
}

func TestWireUsage(t *testing.T) {
	for _, c := range []struct {
		args        []string
		field, text string
	}{
		{[]string{"wire"}, "command", "wire decode or wire encode"},
		{[]string{"wire", "translate"}, "command", `"translate"`},
		{[]string{"wire", "decode"}, "arguments", "HEX"},
		{[]string{"wire", "decode", "4b", "56"}, "arguments", "got 2"},
		{[]string{"wire", "encode"}, "arguments", "JSON"},
		{[]string{"wire", "encode", "--pretty", "{}"}, "flags", "--pretty"},
	} {
		code, out, errs := feed("", c.args...)
		require.Equal(t, exitUsage, code)
		require.Empty(t, out)
		require.Contains(t, errs, c.text)
		code, out, _ = feed("", append(c.args, "--json")...)
		require.Equal(t, exitUsage, code)
		field, message := failure(t, out)
		require.Equal(t, c.field, field)
		require.Contains(t, message, c.text)
	}
}
