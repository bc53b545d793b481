package wire

import "cmp"

// DrainAck says that the receiver has forgotten the request.
type DrainAck struct {
	Request uint64 // at least 1
}

// Check implements Message.
func (d *DrainAck) Check() error { return checkRequest(TypeDrainAck, d.Request) }

// Append implements Message.
func (d *DrainAck) Append(dst []byte) []byte {
	return appendHeader(dst, Header{Type: TypeDrainAck, Request: d.Request})
}

// Decode implements Message.
func (d *DrainAck) Decode(b []byte) error {
	h, _, err := open(b, TypeDrainAck)
	if err != nil {
		return err
	}
	if err := cmp.Or(h.checkOnlyRequest(), h.checkNoPayload()); err != nil {
		return err
	}
	*d = DrainAck{Request: h.Request}
	return d.Check()
}
