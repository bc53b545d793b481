package wire

import "cmp"

// drainFixedBytes is a DRAIN's payload before the endpoint: endpoint_len.
const drainFixedBytes = 4

// Drain states that no write of the request can land any more.
type Drain struct {
	Request uint64 // at least 1
	// Endpoint is the way back to the sender, at most ports.MaxEndpointBytes. May be empty on the wire; when it may be is core/transport's rule.
	Endpoint []byte
}

// Check implements Message.
func (d *Drain) Check() error {
	return cmp.Or(checkRequest(TypeDrain, d.Request), checkEndpoint(TypeDrain.String(), d.Endpoint))
}

// Append implements Message.
func (d *Drain) Append(dst []byte) []byte {
	dst = appendHeader(dst, Header{Type: TypeDrain, Request: d.Request, Length: uint32(drainFixedBytes + len(d.Endpoint))})
	dst = le.AppendUint32(dst, uint32(len(d.Endpoint)))
	return append(dst, d.Endpoint...)
}

// Decode implements Message.
func (d *Drain) Decode(b []byte) error {
	const t = TypeDrain
	h, payload, err := open(b, t)
	if err != nil {
		return err
	}
	if err := cmp.Or(h.checkOnlyRequest(), needPayload(t, payload, drainFixedBytes)); err != nil {
		return err
	}
	endpoint, rest, err := cutEndpoint(t.String(), le.Uint32(payload), payload[drainFixedBytes:])
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return h.leftOver(uint64(len(rest)))
	}
	*d = Drain{Request: h.Request, Endpoint: endpoint}
	return d.Check()
}
