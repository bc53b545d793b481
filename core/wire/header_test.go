package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
)

func TestDecodeHeader(t *testing.T) {
	h, err := wire.DecodeHeader(golden(t, "data"))
	require.NoError(t, err)
	require.Equal(t, wire.Header{Type: wire.TypeData, Request: 7, Region: 901, Chunk: 2, Chunks: 3, Count: 3, Length: 144}, h)
}

// Every message refuses what a header may not be.
func TestHeaderRejects(t *testing.T) {
	for _, c := range []struct {
		name, message, field string
		edit                 edit
	}{
		{"magic", "message", "magic", u8At(0, 'k')},
		{"version", "message", "version", u16At(4, wire.Version+1)},
		{"type 0", "message", "type", u16At(6, 0)},
		{"type 8", "message", "type", u16At(6, 8)},
		{"request", "", "request", u64At(8, 0)},
	} {
		for _, m := range samples() {
			b := c.edit(encode(m))
			message := c.message
			if message == "" {
				message = typeOf(t, m).String()
			}
			_, err := wire.DecodeHeader(b)
			require.Equal(t, c.field, fieldOf(t, err, message), c.name)
			_, err = wire.Decode(b)
			require.Equal(t, c.field, fieldOf(t, err, message), c.name)
			require.Equal(t, c.field, fieldOf(t, m.Decode(b), message), c.name)
		}
	}
}

func TestLengthMustBeThePayloads(t *testing.T) {
	for _, m := range samples() {
		b := encode(m)
		for _, length := range []uint32{uint32(len(b)-wire.HeaderBytes) + 1, uint32(len(b)-wire.HeaderBytes) - 1, 0xFFFFFFFF} {
			_, err := wire.Decode(u32At(atLength, length)(encode(m)))
			require.Equal(t, "length", fieldOf(t, err, typeOf(t, m).String()))
		}
	}
}

func TestTypedDecodeRefusesOtherTypes(t *testing.T) {
	for _, b := range samples() {
		for _, m := range samples() {
			if typeOf(t, m) != typeOf(t, b) {
				require.Equal(t, "type", fieldOf(t, m.Decode(encode(b)), "message"))
			}
		}
	}
}

// No strict prefix of a message decodes, as it is or with its length corrected; nor does a message with a byte behind it. (A NACK's text is the rest of
// its payload: with the length corrected it may be shorter or longer.)
func TestPrefixesAndTrailingBytes(t *testing.T) {
	for _, m := range samples() {
		whole, isNack := encode(m), typeOf(t, m) == wire.TypeNack
		for n := range whole {
			b := append([]byte(nil), whole[:n]...)
			_, err := wire.Decode(b)
			require.Error(t, err, "%v, %d bytes", typeOf(t, m), n)
			if n >= wire.HeaderBytes && !isNack {
				_, err = wire.Decode(fixLength(b))
				require.Error(t, err, "%v, %d bytes", typeOf(t, m), n)
			}
		}
		for v := range 256 {
			b := append(encode(m), byte(v))
			_, err := wire.Decode(b)
			require.Equal(t, "length", fieldOf(t, err, typeOf(t, m).String()))
			if !isNack {
				_, err = wire.Decode(fixLength(b))
				require.Equal(t, "length", fieldOf(t, err, typeOf(t, m).String()))
			}
		}
	}
	_, err := wire.Decode(nil)
	require.Equal(t, "header", fieldOf(t, err, "message"))
}

// typeOf is the type of a valid message.
func typeOf(t testing.TB, m wire.Message) wire.Type {
	h, err := wire.DecodeHeader(encode(m))
	require.NoError(t, err)
	return h.Type
}
