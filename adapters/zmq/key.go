package zmq

import (
	"errors"
	"fmt"
	"strings"

	zmq4 "github.com/pebbe/zmq4"
)

const (
	// keyText is the length of a CURVE key as Z85 text, and keyBytes its length in bytes (ZeroMQ RFC 32, RFC 26).
	keyText  = 40
	keyBytes = 32

	z85Digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)

// checkKey reports whether text is a key as Z85 text: five digits of base 85 for each four bytes. Every key has exactly one such text, so texts can be compared.
// libzmq itself takes some texts that stand for no bytes.
func checkKey(text string) error {
	if len(text) != keyText {
		return fmt.Errorf("a key is one line of %d characters (Z85), this has %d bytes", keyText, len(text))
	}
	for group := 0; group < keyText; group += 5 {
		value := uint64(0)
		for _, c := range []byte(text[group : group+5]) {
			digit := strings.IndexByte(z85Digits, c)
			if digit < 0 {
				return fmt.Errorf("a key is one line of %d characters of Z85, which has no %q", keyText, c)
			}
			value = value*85 + uint64(digit)
		}
		if value > 1<<32-1 {
			return errors.New("the text has the form of a key but stands for none")
		}
	}
	return nil
}

// publicKeyOf derives the public key that belongs to a secret one.
func publicKeyOf(secret string) (string, error) {
	public, err := zmq4.AuthCurvePublic(secret)
	if err != nil {
		return "", fmt.Errorf("libzmq: deriving the public key: %w", err)
	}
	return public, nil
}
