package wire_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

func TestHandshakeBytes(t *testing.T) {
	for name, h := range map[string]*wire.Handshake{"handshake": sampleHandshake(), "handshake_other": sampleOtherHandshake()} {
		t.Run(name, func(t *testing.T) {
			want := golden(t, name)
			require.NoError(t, h.Check())
			require.Equal(t, want, h.Append([]byte("before"))[6:])
			got := *sampleHandshake() // every field is replaced
			require.NoError(t, got.Decode(want))
			require.Equal(t, *h, got)
		})
	}
}

func TestHandshakeFlags(t *testing.T) {
	const atFlags = 9
	for flag, set := range map[byte]func(*wire.Handshake){
		1: func(h *wire.Handshake) { h.Ownership = true },
		2: func(h *wire.Handshake) { h.TokenRequired = true },
		4: func(h *wire.Handshake) { h.DeviceArena = true },
	} {
		h := sampleOtherHandshake()
		set(h)
		b := h.Append(nil)
		require.Equal(t, flag, b[atFlags])
		var got wire.Handshake
		require.NoError(t, got.Decode(b))
		require.Equal(t, *h, got)
	}
}

func TestHandshakeRejects(t *testing.T) {
	const atFormat, atFlags, atReserved, atEndpointLen = 4, 9, 10, 40
	for _, c := range []struct {
		name, field string
		edit        edit
	}{
		{"empty", "header", func([]byte) []byte { return nil }},
		{"three zero bytes", "header", func([]byte) []byte { return make([]byte, 3) }},
		{"an endpoint alone", "magic", func([]byte) []byte { return []byte("tcp://[2001:db8:0000:0000:0000:0000:0000:0001]:49152") }},
		{"magic", "magic", u8At(0, 'k')},
		{"a frame's magic", "magic", u8At(3, 'E')},
		{"format 0", "format", u16At(atFormat, 0)},
		{"format 2", "format", u16At(atFormat, 2)},
		{"unknown flag", "flags", u8At(atFlags, 8)},
		{"all flags", "flags", u8At(atFlags, 0xff)},
		{"reserved", "reserved", u16At(atReserved, 0x0100)},
		{"endpoint beyond the blob", "endpoint_len", u32At(atEndpointLen, uint32(len(sampleEndpoint))+1)},
		{"endpoint of 2^32-1", "endpoint_len", u32At(atEndpointLen, 0xFFFFFFFF)},
		{"endpoint too short", "endpoint_len", u32At(atEndpointLen, uint32(len(sampleEndpoint))-1)},
		{"a byte left over", "endpoint_len", func(b []byte) []byte { return append(b, 0) }},
		{"endpoint above the limit", "endpoint_len", func(b []byte) []byte {
			return append(u32At(atEndpointLen, ports.MaxEndpointBytes+1)(b), make([]byte, ports.MaxEndpointBytes)...)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := *sampleOtherHandshake()
			err := h.Decode(c.edit(sampleHandshake().Append(nil)))
			require.Equal(t, c.field, fieldOf(t, err, "handshake"))
			require.Equal(t, *sampleOtherHandshake(), h, "unchanged")
		})
	}
}

func TestHandshakePrefixes(t *testing.T) {
	whole := sampleHandshake().Append(nil)
	for n := range whole {
		require.Error(t, new(wire.Handshake).Decode(whole[:n]), "%d bytes", n)
	}
}

func TestHandshakeCheck(t *testing.T) {
	for _, c := range []struct {
		name    string
		timeout time.Duration
		ok      bool
	}{
		{"0", 0, true},
		{"1 ms", time.Millisecond, true},
		{"the largest", math.MaxUint32 * time.Millisecond, true},
		{"more", (math.MaxUint32 + 1) * time.Millisecond, false},
		{"negative", -time.Millisecond, false},
		{"part of a millisecond", time.Second + time.Microsecond, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := sampleHandshake()
			h.RequestTimeout = c.timeout
			if !c.ok {
				require.Equal(t, "request_timeout_ms", fieldOf(t, h.Check(), "handshake"))
				return
			}
			require.NoError(t, h.Check())
			var got wire.Handshake
			require.NoError(t, got.Decode(h.Append(nil)))
			require.Equal(t, *h, got)
		})
	}
	h := sampleHandshake()
	h.Endpoint = make([]byte, ports.MaxEndpointBytes+1)
	require.Equal(t, "endpoint", fieldOf(t, h.Check(), "handshake"))
	h.Endpoint = h.Endpoint[1:]
	require.NoError(t, h.Check())
	require.NoError(t, new(wire.Handshake).Decode(h.Append(nil)))
}
