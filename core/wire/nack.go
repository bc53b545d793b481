package wire

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// MaxTextBytes is the longest text of a NACK.
	MaxTextBytes = 256

	nackFixedBytes = 4 // reason
)

// Nack refuses a DATA, or, with Region 0 and Chunk WholeRequest, a whole request.
type Nack struct {
	Request uint64 // at least 1
	Region  uint64
	Chunk   uint32 // below Chunks, or WholeRequest
	Chunks  uint32 // copied from the frame that it answers; for a whole request any number
	Reason  Reason // at least 1
	Text    string // for people: UTF-8, at most MaxTextBytes (see CutText)
}

// Check implements Message.
func (n *Nack) Check() error {
	const t = TypeNack
	if err := cmp.Or(checkRequest(t, n.Request), checkWholeOrPlace(t, n.Region, n.Chunk, n.Chunks)); err != nil {
		return err
	}
	if n.Reason == 0 {
		return wrong(t.String(), "reason", 0, "at least 1")
	}
	if len(n.Text) > MaxTextBytes {
		return wrongText(len(n.Text))
	}
	if !utf8.ValidString(n.Text) {
		return wrong(t.String(), "text", "not UTF-8", "UTF-8")
	}
	return nil
}

func wrongText(length int) error {
	return wrong(TypeNack.String(), "text", byteCount(length), fmt.Sprintf("at most %d", MaxTextBytes))
}

// Append implements Message.
func (n *Nack) Append(dst []byte) []byte {
	dst = appendHeader(dst, Header{
		Type: TypeNack, Request: n.Request, Region: n.Region, Chunk: n.Chunk, Chunks: n.Chunks,
		Length: uint32(nackFixedBytes + len(n.Text)),
	})
	dst = le.AppendUint32(dst, uint32(n.Reason))
	return append(dst, n.Text...)
}

// Decode implements Message. It allocates only when the text differs from the one that n held.
func (n *Nack) Decode(b []byte) error {
	const t = TypeNack
	h, payload, err := open(b, t)
	if err != nil {
		return err
	}
	if err := cmp.Or(h.checkNoCount(), needPayload(t, payload, nackFixedBytes)); err != nil {
		return err
	}
	text := payload[nackFixedBytes:]
	if len(text) > MaxTextBytes {
		return wrongText(len(text)) // before the copy
	}
	n.Request, n.Region, n.Chunk, n.Chunks = h.Request, h.Region, h.Chunk, h.Chunks
	n.Reason = Reason(le.Uint32(payload))
	if n.Text != string(text) {
		n.Text = string(text)
	}
	return n.Check()
}

// CutText makes any text one that a NACK can carry: what is not UTF-8 becomes U+FFFD, and at most MaxTextBytes are kept, of whole runes.
func CutText(text string) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= MaxTextBytes {
		return text
	}
	end := MaxTextBytes
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
