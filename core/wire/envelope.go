package wire

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/kvbounce/kvbounce/ports"
)

const (
	envelopeVersion    = 1
	envelopeFixedBytes = 4 + 1 + 1 + 1 + 1 // magic, version, reserved, from_len, to_len

	incarnationDigits = ports.MaxIdentityBytes - ports.MaxNameBytes - 1
)

// Envelope is a frame, taken apart. Its parts alias the frame. From and To are valid identities; Message is not looked at.
type Envelope struct {
	From, To []byte
	Message  []byte
}

// AppendEnvelope appends an envelope to dst; the message is to be appended behind it. from and to must be valid identities (ports.ParseIdentity).
func AppendEnvelope(dst []byte, from, to ports.Identity) []byte {
	dst = append(dst, ports.FrameMagic...)
	dst = append(dst, envelopeVersion, 0, byte(len(from)), byte(len(to)))
	dst = append(dst, from...)
	return append(dst, to...)
}

// DecodeEnvelope takes the frame b apart. Errors are *FieldError.
func DecodeEnvelope(b []byte) (Envelope, error) {
	const message = "envelope"
	if len(b) < envelopeFixedBytes {
		return Envelope{}, wrong(message, "header", byteCount(len(b)), fmt.Sprintf("at least %d", envelopeFixedBytes))
	}
	if !ports.IsFrame(b) {
		return Envelope{}, wrong(message, "magic", fmt.Sprintf("%q", b[:4]), fmt.Sprintf("%q", ports.FrameMagic))
	}
	if b[4] != envelopeVersion {
		return Envelope{}, wrong(message, "version", b[4], fmt.Sprint(envelopeVersion))
	}
	if b[5] != 0 {
		return Envelope{}, wrong(message, "reserved", b[5], "0")
	}
	fromLen, toLen, rest := int(b[6]), int(b[7]), b[envelopeFixedBytes:]
	if fromLen > len(rest) {
		return Envelope{}, wrong(message, "from_len", fromLen, fmt.Sprintf("at most the %d bytes that follow", len(rest)))
	}
	from, rest := rest[:fromLen:fromLen], rest[fromLen:]
	if toLen > len(rest) {
		return Envelope{}, wrong(message, "to_len", toLen, fmt.Sprintf("at most the %d bytes that follow", len(rest)))
	}
	to, rest := rest[:toLen:toLen], rest[toLen:]
	if !validIdentity(from) {
		return Envelope{}, wrongIdentity("from", from)
	}
	if !validIdentity(to) {
		return Envelope{}, wrongIdentity("to", to)
	}
	return Envelope{From: from, To: to, Message: rest}, nil
}

func wrongIdentity[S []byte | ports.Identity](field string, id S) error {
	return wrong("envelope", field, fmt.Sprintf("%q", id),
		fmt.Sprintf("1 to %d bytes of UTF-8 without NUL and '#', then '#' and %d lower-case hexadecimal digits", ports.MaxNameBytes, incarnationDigits))
}

// validIdentity is ports.ParseIdentity's rule for bytes that are not to be copied.
func validIdentity(id []byte) bool {
	at := len(id) - incarnationDigits - 1
	if at < 1 || at > ports.MaxNameBytes || id[at] != '#' {
		return false
	}
	for _, c := range id[at+1:] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	name := id[:at]
	return bytes.IndexByte(name, '#') < 0 && bytes.IndexByte(name, 0) < 0 && utf8.Valid(name)
}
