package wire

import "fmt"

// Type is the type of a message.
type Type uint16

// The types of wire 3.
const (
	TypeWant     Type = 1 // the sender asks for regions
	TypeGrant    Type = 2 // the receiver grants some
	TypeData     Type = 3 // a chunk is written: where its pieces go
	TypeAck      Type = 4 // a chunk is scattered; or: the request is queued
	TypeNack     Type = 5 // a chunk or a request is refused
	TypeDrain    Type = 6 // no write of the request can land any more
	TypeDrainAck Type = 7 // the receiver has forgotten the request
)

var typeNames = [...]string{TypeWant: "WANT", TypeGrant: "GRANT", TypeData: "DATA", TypeAck: "ACK", TypeNack: "NACK", TypeDrain: "DRAIN", TypeDrainAck: "DRAIN_ACK"}

// String is the name in protocol.md, 3, and in the command's JSON.
func (t Type) String() string {
	if !t.known() {
		return fmt.Sprintf("type %d", uint16(t))
	}
	return typeNames[t]
}

func (t Type) known() bool { return t >= TypeWant && t <= TypeDrainAck }
