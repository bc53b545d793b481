package wire_test

import (
	"bytes"
	"testing"

	"github.com/kvbounce/kvbounce/core/wire"
)

// FuzzDecodeMessage: whatever decodes passes Check and encodes to the same bytes; a message of a type decodes by Decode exactly if it does by the typed Decode; and the
// header of what decodes is the header that DecodeHeader gives.
func FuzzDecodeMessage(f *testing.F) {
	for _, m := range samples() {
		f.Add(encode(m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := wire.Decode(b)
		accepted := 0
		for _, used := range samplePerType() {
			if used.Decode(b) == nil {
				accepted++
				mustEncodeTo(t, used, b)
			}
		}
		if err != nil {
			if accepted != 0 {
				t.Fatalf("Decode: %v, but a typed Decode takes it", err)
			}
			return
		}
		if accepted != 1 {
			t.Fatalf("%d types take it", accepted)
		}
		mustEncodeTo(t, m, b)
		if h, err := wire.DecodeHeader(b); err != nil || int(h.Length) != len(b)-wire.HeaderBytes {
			t.Fatalf("header %+v, %v", h, err)
		}
	})
}

// FuzzDecodeFrame: whatever decodes encodes to the same bytes, and DecodeEnvelope gives the same parts.
func FuzzDecodeFrame(f *testing.F) {
	for _, m := range samples() {
		frame := sampleFrame()
		frame.Message = m
		f.Add(frame.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, envelopeErr := wire.DecodeEnvelope(b)
		frame, err := wire.DecodeFrame(b)
		if err != nil {
			return
		}
		if envelopeErr != nil || string(frame.From) != string(e.From) || string(frame.To) != string(e.To) {
			t.Fatalf("%+v, but envelope %+v, %v", frame, e, envelopeErr)
		}
		mustEncodeTo(t, frame.Message, e.Message)
		if err := frame.Check(); err != nil {
			t.Fatal(err)
		}
		if again := frame.Append(nil); !bytes.Equal(b, again) {
			t.Fatalf("%x encodes as %x", b, again)
		}
	})
}

// FuzzDecodeHandshake: whatever decodes passes Check and encodes to the same bytes.
func FuzzDecodeHandshake(f *testing.F) {
	f.Add(sampleHandshake().Append(nil))
	f.Add(sampleOtherHandshake().Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h wire.Handshake
		if h.Decode(b) != nil {
			return
		}
		if err := h.Check(); err != nil {
			t.Fatal(err)
		}
		if again := h.Append(nil); !bytes.Equal(b, again) {
			t.Fatalf("%x encodes as %x", b, again)
		}
	})
}

func mustEncodeTo(t *testing.T, m wire.Message, b []byte) {
	t.Helper()
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	if again := encode(m); !bytes.Equal(b, again) {
		t.Fatalf("%x encodes as %x", b, again)
	}
}

// samplePerType are messages in use, one of each type.
func samplePerType() []wire.Message {
	return []wire.Message{sampleWant(), sampleGrant(), sampleData(), sampleAck(), sampleNack(), sampleDrain(), sampleDrainAck()}
}
