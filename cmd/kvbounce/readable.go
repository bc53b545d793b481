package main

import (
	"bytes"
	"encoding/json"
	"io"
)

// printReadable writes JSON for people: a line for each field, and for each object in a list.
func printReadable(w io.Writer, v any) error {
	text, err := marshal(v)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := layOut(&b, text, ""); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err = w.Write(b.Bytes())
	return err
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// layOut writes one compact value. Objects that are elements of a list stay on one line.
func layOut(b *bytes.Buffer, text []byte, indent string) error {
	isObject, isTable := text[0] == '{', bytes.HasPrefix(text, []byte("[{"))
	if !isObject && !isTable {
		b.Write(text)
		return nil
	}
	tokens := json.NewDecoder(bytes.NewReader(text))
	if _, err := tokens.Token(); err != nil {
		return err
	}
	b.WriteByte(text[0])
	for separator := ""; tokens.More(); separator = "," {
		b.WriteString(separator + "\n" + indent + "  ")
		if isObject {
			key, err := tokens.Token()
			if err != nil {
				return err
			}
			name, err := marshal(key)
			if err != nil {
				return err
			}
			b.Write(name)
			b.WriteString(": ")
		}
		var value json.RawMessage
		if err := tokens.Decode(&value); err != nil {
			return err
		}
		if isTable {
			b.Write(value)
		} else if err := layOut(b, value, indent+"  "); err != nil {
			return err
		}
	}
	b.WriteString("\n" + indent)
	b.WriteByte(text[len(text)-1])
	return nil
}
