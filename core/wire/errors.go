package wire

import "fmt"

// FieldError says which field of a message, envelope or handshake breaks which rule. Every error of this package is one: use errors.As.
type FieldError struct {
	Message string // "WANT" and so on, "message" while the type is not known, "envelope", or "handshake"
	Field   string // as protocol.md, 3 and 4, and the command's JSON name it: "oldest", "runs[2].piece"
	Got     string // the value found
	Allowed string // what would be right
}

// Error is one sentence.
func (e *FieldError) Error() string {
	return fmt.Sprintf("%s: %s is %s, want %s", e.Message, e.Field, e.Got, e.Allowed)
}

// wrong makes a FieldError. It formats, so it is called only once a rule is known to be broken.
func wrong(message, field string, got any, allowed string) error {
	return &FieldError{Message: message, Field: field, Got: fmt.Sprint(got), Allowed: allowed}
}

// element names a field of one element of a list: "runs[2].piece", or "chunk_bytes[2]" when field is empty.
func element(list string, i int, field string) string {
	if field == "" {
		return fmt.Sprintf("%s[%d]", list, i)
	}
	return fmt.Sprintf("%s[%d].%s", list, i, field)
}

// byteCount words a number of bytes.
func byteCount[N int | uint32 | uint64](n N) string {
	return fmt.Sprintf("%d bytes", n)
}
