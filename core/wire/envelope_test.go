package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

func TestDecodeEnvelope(t *testing.T) {
	b := golden(t, "frame")
	e, err := wire.DecodeEnvelope(b)
	require.NoError(t, err)
	f := sampleFrame()
	require.EqualValues(t, f.From, e.From)
	require.EqualValues(t, f.To, e.To)
	require.Equal(t, encode(f.Message), e.Message)
	require.Equal(t, b, append(wire.AppendEnvelope(nil, f.From, f.To), e.Message...))

	// The parts alias the frame, and appending to one does not reach the next.
	require.Same(t, &b[8], &e.From[0])
	require.Equal(t, len(e.From), cap(e.From))
	require.Equal(t, len(e.To), cap(e.To))
}

func TestEnvelopeRejects(t *testing.T) {
	f := sampleFrame()
	const atFromLen, atToLen, atFrom = 6, 7, 8
	atTo := atFrom + len(f.From)
	whole := f.Append(nil)
	for _, c := range []struct {
		name, field string
		edit        edit
	}{
		{"magic", "magic", u8At(3, 'N')},
		{"version 0", "version", u8At(4, 0)},
		{"version 2", "version", u8At(4, 2)},
		{"reserved", "reserved", u8At(5, 1)},
		{"from_len beyond the frame", "from_len", u8At(atFromLen, 255)},
		{"to_len beyond the frame", "to_len", u8At(atToLen, 255)},
		{"no from", "from", u8At(atFromLen, 0)},
		{"no to", "to", u8At(atToLen, 0)},
		{"from_len too small", "from", u8At(atFromLen, byte(len(f.From)-1))},
		{"NUL in from", "from", u8At(atFrom, 0)},
		{"'#' in from", "from", u8At(atFrom, '#')},
		{"from not UTF-8", "from", u8At(atFrom, 0xff)},
		{"capital digit in to", "to", u8At(atTo+len(f.To)-1, 'A')},
		{"no '#' in to", "to", u8At(atTo+len(f.To)-17, '-')},
		{"to not UTF-8", "to", u8At(atTo+1, 'x')},
		{"empty", "header", func([]byte) []byte { return nil }},
		{"only the magic", "header", func(b []byte) []byte { return b[:4] }},
		{"only the head", "from_len", func(b []byte) []byte { return b[:atFrom] }},
		{"without to", "to_len", func(b []byte) []byte { return b[:atTo] }},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := wire.DecodeEnvelope(c.edit(append([]byte(nil), whole...)))
			require.Equal(t, c.field, fieldOf(t, err, "envelope"))
		})
	}
}

// The envelope's rule for identities is ports.ParseIdentity's.
func TestEnvelopeIdentities(t *testing.T) {
	const digits = "#0123456789abcdef"
	for _, c := range []struct {
		name string
		id   string
		ok   bool
	}{
		{"one byte", "a" + digits, true},
		{"200 bytes", strings.Repeat("n", 200) + digits, true},
		{"201 bytes", strings.Repeat("n", 201) + digits, false},
		{"no name", digits, false},
		{"other letters", "日本" + digits, true},
		{"'#' in the name", "a#b" + digits, false},
		{"NUL in the name", "a\x00b" + digits, false},
		{"not UTF-8", "\xc3" + digits, false},
		{"15 digits", "a#0123456789abcde", false},
		{"17 digits", "a" + digits + "0", false},
		{"capital digits", "a#0123456789ABCDEF", false},
		{"not a digit", "a#0123456789abcdeg", false},
		{"below the digits", "a#0123456789abcd//", false},
		{"empty", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ports.ParseIdentity(c.id)
			require.Equal(t, c.ok, err == nil, "ports.ParseIdentity")
			require.Equal(t, c.ok, envelopeTakes(c.id))
		})
	}
}

func TestEnvelopeIdentitiesAreParseIdentitys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := looseIdentity(t)
		_, err := ports.ParseIdentity(id)
		if envelopeTakes(id) != (err == nil) {
			t.Fatalf("%q: ParseIdentity says %v", id, err)
		}
	})
}

// envelopeTakes tries an identity of at most 255 bytes in both places, which must agree.
func envelopeTakes(id string) bool {
	const valid = ports.Identity("valid#0123456789abcdef")
	_, from := wire.DecodeEnvelope(wire.AppendEnvelope(nil, ports.Identity(id), valid))
	_, to := wire.DecodeEnvelope(wire.AppendEnvelope(nil, valid, ports.Identity(id)))
	frame := &wire.Frame{From: ports.Identity(id), To: ports.Identity(id), Message: sampleAck()}
	if (from == nil) != (to == nil) || (from == nil) != (frame.Check() == nil) {
		panic("from, to and Frame.Check disagree about " + id)
	}
	return from == nil
}
