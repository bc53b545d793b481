package wire

// Message is one of *Want, *Grant, *Data, *Ack, *Nack, *Drain and *DrainAck.
type Message interface {
	// Check returns a *FieldError when the message can't be encoded.
	Check() error
	// Append encodes the message, header and payload, onto dst, as append does. It must have passed Check.
	Append(dst []byte) []byte
	// Decode reads the one whole message b: header and payload, nothing else. It replaces every field: lists are written into the memory of the lists that were
	// there, if it suffices, and Endpoint aliases b. An error is a *FieldError, and leaves fields that mean nothing.
	Decode(b []byte) error
}

// Decode reads the one whole message b into a new value of its type.
func Decode(b []byte) (Message, error) {
	h, err := DecodeHeader(b)
	if err != nil {
		return nil, err
	}
	m := newMessage(h.Type)
	if err := m.Decode(b); err != nil {
		return nil, err
	}
	return m, nil
}

// newMessage makes an empty message of a type that DecodeHeader returned.
func newMessage(t Type) Message {
	return [...]func() Message{
		TypeWant:     func() Message { return new(Want) },
		TypeGrant:    func() Message { return new(Grant) },
		TypeData:     func() Message { return new(Data) },
		TypeAck:      func() Message { return new(Ack) },
		TypeNack:     func() Message { return new(Nack) },
		TypeDrain:    func() Message { return new(Drain) },
		TypeDrainAck: func() Message { return new(DrainAck) },
	}[t]()
}

// resize returns a slice of n elements, s's memory if it is large enough. It allocates no more than asked for: n was compared with a message's size.
func resize[T any](s []T, n int) []T {
	if n > cap(s) {
		return make([]T, n)
	}
	return s[:n]
}
