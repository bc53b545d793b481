package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

func (a *app) wire() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wire",
		Short: "Show control messages, frames and handshakes as JSON, and make them from it",
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return badUsage("command", "there is no command wire %q, there are wire decode and wire encode; see kvbounce wire --help", args[0])
			}
			return badUsage("command", "say wire decode or wire encode; see kvbounce wire --help")
		},
	}
	cmd.AddCommand(a.wireDecode(), a.wireEncode())
	return cmd
}

func (a *app) wireDecode() *cobra.Command {
	return &cobra.Command{
		Use:   "decode HEX|-",
		Short: "Show the bytes of a message, a frame or a handshake as JSON",
		Long: `Show the bytes of a message, a frame or a handshake as JSON.

HEX is one whole message, frame (envelope and message) or handshake blob; its first four bytes say
which. Hexadecimal digits in any case, with white space anywhere, "0x" before any word, and comments
from # to the end of a line. "-" reads it from standard input.

The JSON is what "wire encode" takes. With --json it is one line.`,
		Example: "  kvbounce wire decode 4b56424e030007000700000000000000000000000000000000000000000000000000000000000000",
		Args:    oneArgument("HEX, or - for standard input"),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := a.argumentOrInput(args[0])
			if err != nil {
				return err
			}
			b, err := parseHex(string(text))
			if err != nil {
				return &fieldError{"hex", err}
			}
			v, err := decodeWire(b)
			if err != nil {
				return withField(err)
			}
			if a.json {
				return a.print(v)
			}
			return printReadable(a.out, v)
		},
	}
}

func (a *app) wireEncode() *cobra.Command {
	return &cobra.Command{
		Use:   "encode JSON|-",
		Short: "Make the bytes of a message, a frame or a handshake from JSON",
		Long: `Make the bytes of a message, a frame or a handshake from JSON.

JSON is the object that "wire decode" prints; every field of it is needed, except a NACK's
reason_name, which must fit the reason if it is there. "-" reads it from standard input.

Prints the bytes as one line of hexadecimal digits; with --json as {"hex":"..."}.`,
		Example: `  kvbounce wire encode '{"kind":"message","version":3,"type":"DRAIN_ACK","request":7,"region":0,"chunk":0,"chunks":0}'`,
		Args:    oneArgument("JSON, or - for standard input"),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := a.argumentOrInput(args[0])
			if err != nil {
				return err
			}
			b, err := encodeWire(text)
			if err != nil {
				return withField(err)
			}
			if a.json {
				return a.print(struct {
					Hex string `json:"hex"`
				}{hex.EncodeToString(b)})
			}
			_, err = fmt.Fprintln(a.out, hex.EncodeToString(b))
			return err
		},
	}
}

// oneArgument refuses any number of positional arguments but one.
func oneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return badUsage("arguments", "%s takes one argument, %s, but got %d; see %s --help", cmd.Name(), what, len(args), cmd.CommandPath())
		}
		return nil
	}
}

// parseHex reads hexadecimal digits as people write them down.
func parseHex(text string) ([]byte, error) {
	var digits strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		for word := range strings.FieldsSeq(line) {
			if len(word) > 1 && word[0] == '0' && (word[1] == 'x' || word[1] == 'X') {
				word = word[2:]
			}
			digits.WriteString(word)
		}
	}
	text = digits.String()
	b, err := hex.DecodeString(text)
	var bad hex.InvalidByteError
	switch {
	case errors.As(err, &bad):
		found, _ := utf8.DecodeRuneInString(text[strings.IndexByte(text, byte(bad)):])
		return nil, fmt.Errorf("hex holds %q, want hexadecimal digits", found)
	case err != nil:
		return nil, fmt.Errorf("hex has %d digits, want two for each byte", len(text))
	case len(b) == 0:
		return nil, errors.New("hex is empty, want a message, a frame or a handshake")
	}
	return b, nil
}

// decodeWire tells the three kinds apart by their magic and returns the JSON value of what it read.
func decodeWire(b []byte) (any, error) {
	switch {
	case ports.IsFrame(b):
		f, err := wire.DecodeFrame(b)
		if err != nil {
			return nil, err
		}
		return frameJSON{Kind: kindFrame, From: f.From, To: f.To, Message: newMessageJSON(f.Message)}, nil
	case wire.IsHandshake(b):
		var h wire.Handshake
		if err := h.Decode(b); err != nil {
			return nil, err
		}
		return newHandshakeJSON(&h), nil
	}
	m, err := wire.Decode(b)
	var f *wire.FieldError
	if errors.As(err, &f) && f.Field == "magic" {
		f.Allowed += fmt.Sprintf(" for a message, %q for a frame or %q for a handshake", ports.FrameMagic, "KVBH")
	}
	if err != nil {
		return nil, err
	}
	return newMessageJSON(m), nil
}

// withField keeps the name of the field that an error of package wire is about.
func withField(err error) error {
	var f *wire.FieldError
	if errors.As(err, &f) {
		return &fieldError{f.Field, err}
	}
	return err
}
