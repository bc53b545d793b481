package ports

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of an agent's name (protocol.md, 2).
const (
	// MaxNameBytes is the longest name a user may give an agent, in bytes.
	MaxNameBytes = 200
	// incarnationDigits is how many lower-case hexadecimal digits follow the '#' in an identity.
	incarnationDigits = 16
	// MaxIdentityBytes is the longest identity: name, '#' and incarnation.
	MaxIdentityBytes = MaxNameBytes + 1 + incarnationDigits
)

// ErrBadIdentity is wrapped by the errors of NewIdentity, ParseIdentity and ValidateName.
var ErrBadIdentity = errors.New("bad identity")

// Identity names one life of one agent: the user's name, '#', and the 16 hexadecimal digits of a random incarnation drawn when the transport
// started. It is the agent's name in every frame, in the engine, and in the AgentDesc. Two lives never share one, so a frame or a
// transfer meant for a predecessor cannot reach its successor.
type Identity string

// NewIdentity joins a name and an incarnation. It fails when the name is not valid (see ValidateName).
func NewIdentity(name string, incarnation uint64) (Identity, error) {
	if err := ValidateName(name); err != nil {
		return "", err
	}
	return Identity(fmt.Sprintf("%s#%016x", name, incarnation)), nil
}

// ParseIdentity checks that s is a full identity: 1 to 200 bytes of UTF-8 without NUL and '#', then '#', then 16 lower-case hexadecimal digits.
func ParseIdentity(s string) (Identity, error) {
	at := len(s) - incarnationDigits - 1
	if at < 1 || s[at] != '#' {
		return "", fmt.Errorf("%w %q: want name#<16 lower-case hexadecimal digits>", ErrBadIdentity, s)
	}
	for _, c := range []byte(s[at+1:]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", fmt.Errorf("%w %q: want name#<16 lower-case hexadecimal digits>", ErrBadIdentity, s)
		}
	}
	if err := ValidateName(s[:at]); err != nil {
		return "", err
	}
	return Identity(s), nil
}

// ValidateName reports whether a user may name an agent so: 1 to 200 bytes of UTF-8 without NUL and '#'.
func ValidateName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name is empty, want 1 to %d bytes", ErrBadIdentity, MaxNameBytes)
	case len(name) > MaxNameBytes:
		return fmt.Errorf("%w: the name has %d bytes, want 1 to %d", ErrBadIdentity, len(name), MaxNameBytes)
	case strings.ContainsAny(name, "#\x00"):
		return fmt.Errorf("%w: the name %q holds '#' or NUL", ErrBadIdentity, name)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: the name %q is not UTF-8", ErrBadIdentity, name)
	}
	return nil
}

// Name is the part the user chose. It is empty for an Identity that was not made by NewIdentity or ParseIdentity.
func (id Identity) Name() string {
	if at := len(id) - incarnationDigits - 1; at > 0 {
		return string(id[:at])
	}
	return ""
}

// Incarnation is the random part. It has no order: a larger one is not newer.
func (id Identity) Incarnation() uint64 {
	if at := len(id) - incarnationDigits; at > 0 {
		n, err := strconv.ParseUint(string(id[at:]), 16, 64)
		if err == nil {
			return n
		}
	}
	return 0
}
