package wire_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/core/wire"
)

// What passes Check decodes to the same bytes again, into used messages too; what does not pass Check does not decode either, so that encoder and
// decoder have the same rules.
func TestCheckAndDecodeAgree(t *testing.T) {
	inUse := map[wire.Type]wire.Message{}
	for _, m := range samples() {
		inUse[typeOf(t, m)] = m
	}
	rapid.Check(t, func(t *rapid.T) {
		m := looseMessage(t)
		checked, b := m.Check(), encode(m)
		got, err := wire.Decode(b)
		if (checked == nil) != (err == nil) {
			t.Fatalf("Check: %v; Decode: %v", checked, err)
		}
		if err != nil {
			return
		}
		if again := encode(got); !bytes.Equal(b, again) {
			t.Fatalf("encoded as\n%x and, decoded, again as\n%x", b, again)
		}
		h, err := wire.DecodeHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		used := inUse[h.Type]
		if err := used.Decode(b); err != nil {
			t.Fatal(err)
		}
		if again := encode(used); !bytes.Equal(b, again) {
			t.Fatalf("encoded as\n%x and, decoded into a used message, again as\n%x", b, again)
		}
	})
}

// A message with some bytes changed does not decode, or is exactly what it says.
func TestDamagedMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := encode(aMessage(t))
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		if m, err := wire.Decode(b); err == nil && !bytes.Equal(b, encode(m)) {
			t.Fatalf("%x encodes as %x", b, encode(m))
		}
	})
}

func TestFrameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := sampleFrame()
		f.Message = aMessage(t)
		b := f.Append(nil)
		got, err := wire.DecodeFrame(b)
		if err != nil {
			t.Fatal(err)
		}
		if got.From != f.From || got.To != f.To || !bytes.Equal(b, got.Append(nil)) {
			t.Fatalf("%+v came back as %+v", f, got)
		}
	})
}

func TestHandshakeRoundTrip(t *testing.T) {
	var got wire.Handshake
	rapid.Check(t, func(t *rapid.T) {
		h := aHandshake(t)
		if err := h.Check(); err != nil {
			t.Fatal(err)
		}
		b := h.Append(nil)
		if err := got.Decode(b); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, got.Append(nil)) || !bytes.Equal(got.Endpoint, h.Endpoint) || got.RequestTimeout != h.RequestTimeout {
			t.Fatalf("%+v came back as %+v", h, got)
		}
	})
}
