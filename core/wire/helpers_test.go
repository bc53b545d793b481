package wire_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
)

var le = binary.LittleEndian

// golden reads testdata/<name>.hex: hexadecimal digits, spaces, and comments that begin with '#'.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".hex"))
	require.NoError(t, err)
	var digits strings.Builder
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	b, err := hex.DecodeString(digits.String())
	require.NoError(t, err)
	return b
}

// sameBytes checks a message against its golden file both ways, into a new value and into a used one.
func sameBytes(t *testing.T, name string, m wire.Message) {
	t.Helper()
	want := golden(t, name)
	require.NoError(t, m.Check())
	prefix := []byte("before")
	require.Equal(t, want, m.Append(prefix)[len(prefix):], "Append")

	got, err := wire.Decode(want)
	require.NoError(t, err)
	require.Equal(t, m, got, "Decode into a new message")

	inUse, err := wire.Decode(encode(largest(m)))
	require.NoError(t, err)
	require.NoError(t, inUse.Decode(want))
	require.Equal(t, encode(m), encode(inUse), "Decode into a used message")
}

// largest is the largest sample of m's type.
func largest(m wire.Message) wire.Message {
	best := m
	for _, s := range samples() {
		if fmt.Sprintf("%T", s) == fmt.Sprintf("%T", m) && len(encode(s)) > len(encode(best)) {
			best = s
		}
	}
	return best
}

func encode(m wire.Message) []byte { return m.Append(nil) }

// fieldOf is the broken field that err names; it fails unless err is a FieldError about message with every part filled.
func fieldOf(t *testing.T, err error, message string) string {
	t.Helper()
	require.Error(t, err)
	var field *wire.FieldError
	require.True(t, errors.As(err, &field), "%T", err)
	require.Equal(t, message, field.Message)
	require.NotEmpty(t, field.Got)
	require.NotEmpty(t, field.Allowed)
	require.Equal(t, fmt.Sprintf("%s: %s is %s, want %s", message, field.Field, field.Got, field.Allowed), err.Error())
	return field.Field
}

// edit changes the bytes of a valid message.
type edit func(b []byte) []byte

func u8At(at int, v uint8) edit   { return func(b []byte) []byte { b[at] = v; return b } }
func u16At(at int, v uint16) edit { return func(b []byte) []byte { le.PutUint16(b[at:], v); return b } }
func u32At(at int, v uint32) edit { return func(b []byte) []byte { le.PutUint32(b[at:], v); return b } }
func u64At(at int, v uint64) edit { return func(b []byte) []byte { le.PutUint64(b[at:], v); return b } }

// Offsets of the header's fields, for edits.
const (
	atRegion  = 16
	atChunk   = 24
	atChunks  = 28
	atCount   = 32
	atLength  = 36
	atPayload = wire.HeaderBytes
)

// payload replaces the payload and sets length.
func payload(p ...byte) edit {
	return func(b []byte) []byte { return fixLength(append(b[:atPayload:atPayload], p...)) }
}

// longer appends to the payload and sets length; shorter takes from its end.
func longer(p ...byte) edit { return func(b []byte) []byte { return fixLength(append(b, p...)) } }
func shorter(n int) edit    { return func(b []byte) []byte { return fixLength(b[:len(b)-n]) } }

func fixLength(b []byte) []byte {
	le.PutUint32(b[atLength:], uint32(len(b)-atPayload))
	return b
}

// rejection is an edit that makes a valid message one that does not decode, and the field that the error must name.
type rejection struct {
	name  string
	field string
	edits []edit
}

func reject(name, field string, edits ...edit) rejection { return rejection{name, field, edits} }

// rejects decodes each edited copy of the valid message m.
func rejects(t *testing.T, message string, m wire.Message, table []rejection) {
	t.Helper()
	for _, r := range table {
		t.Run(r.name, func(t *testing.T) {
			b := encode(m)
			_, err := wire.Decode(b)
			require.NoError(t, err, "before the edit")
			for _, e := range r.edits {
				b = e(b)
			}
			_, err = wire.Decode(b)
			require.Equal(t, r.field, fieldOf(t, err, message))
			_, err = wire.DecodeHeader(b)
			require.NoError(t, err, "a NACK must be able to name the request")
		})
	}
}

// unencodable is a message that does not pass Check, and the field that the error must name.
type unencodable struct {
	name    string
	field   string
	message wire.Message
}

func checksRefuse(t *testing.T, message string, table []unencodable) {
	t.Helper()
	for _, u := range table {
		t.Run(u.name, func(t *testing.T) {
			require.Equal(t, u.field, fieldOf(t, u.message.Check(), message))
		})
	}
}
