package wire

import "github.com/kvbounce/kvbounce/ports"

// Frame is an envelope and its message, for tools. The reactor uses Envelope and the message types, which do not allocate.
type Frame struct {
	From, To ports.Identity
	Message  Message
}

// DecodeFrame reads the one whole frame b. Errors are *FieldError.
func DecodeFrame(b []byte) (Frame, error) {
	e, err := DecodeEnvelope(b)
	if err != nil {
		return Frame{}, err
	}
	m, err := Decode(e.Message)
	if err != nil {
		return Frame{}, err
	}
	return Frame{From: ports.Identity(e.From), To: ports.Identity(e.To), Message: m}, nil
}

// Check returns a *FieldError when the frame can't be encoded.
func (f *Frame) Check() error {
	if !validIdentity([]byte(f.From)) {
		return wrongIdentity("from", f.From)
	}
	if !validIdentity([]byte(f.To)) {
		return wrongIdentity("to", f.To)
	}
	return f.Message.Check()
}

// Append encodes a frame that passed Check onto dst, as append does.
func (f *Frame) Append(dst []byte) []byte {
	return f.Message.Append(AppendEnvelope(dst, f.From, f.To))
}
