package wire

import "cmp"

// Ack says that a chunk is scattered and its region is the receiver's again. With Region 0 and Chunk WholeRequest it says that the request is queued and nothing is granted yet.
type Ack struct {
	Request uint64 // at least 1
	Region  uint64
	Chunk   uint32 // below Chunks, or WholeRequest
	Chunks  uint32 // chunks in the request, at least 1
}

// Check implements Message.
func (a *Ack) Check() error {
	const t = TypeAck
	err := cmp.Or(checkRequest(t, a.Request), checkWholeOrPlace(t, a.Region, a.Chunk, a.Chunks))
	if err == nil && a.Chunks == 0 {
		err = wrong(t.String(), "chunks", 0, "at least 1")
	}
	return err
}

// Append implements Message.
func (a *Ack) Append(dst []byte) []byte {
	return appendHeader(dst, Header{Type: TypeAck, Request: a.Request, Region: a.Region, Chunk: a.Chunk, Chunks: a.Chunks})
}

// Decode implements Message.
func (a *Ack) Decode(b []byte) error {
	h, _, err := open(b, TypeAck)
	if err != nil {
		return err
	}
	if err := cmp.Or(h.checkNoCount(), h.checkNoPayload()); err != nil {
		return err
	}
	*a = Ack{Request: h.Request, Region: h.Region, Chunk: h.Chunk, Chunks: h.Chunks}
	return a.Check()
}
