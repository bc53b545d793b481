package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// fields takes the fields of a JSON object one by one, exactly: the first that is missing, of the wrong type, out of range, unknown or there twice is the error of
// done, by its name. Until then a field that is wrong reads as zero. (encoding/json alone ignores case and doubles, and does not say what is missing.)
type fields struct {
	what   string // of which object, in errors: "DATA"
	prefix string // of its fields' names: "runs[2]."
	names  []string
	values map[string]json.RawMessage
	taken  map[string]bool
	err    error
}

// readFields takes an object apart. name is its own, for an error; prefix comes before its fields' names.
func readFields(what, name, prefix string, text []byte) (*fields, error) {
	f := &fields{what: what, prefix: prefix, values: map[string]json.RawMessage{}, taken: map[string]bool{}}
	tokens := json.NewDecoder(bytes.NewReader(text))
	first, err := tokens.Token()
	if err != nil {
		return nil, badJSON(err)
	}
	if first != json.Delim('{') {
		return nil, wrongField(what, name, json.RawMessage(text), "an object")
	}
	for tokens.More() {
		key, err := tokens.Token()
		if err != nil {
			return nil, badJSON(err)
		}
		field, _ := key.(string) // the decoder lets nothing else be a key
		var value json.RawMessage
		if err := tokens.Decode(&value); err != nil {
			return nil, badJSON(err)
		}
		if _, twice := f.values[field]; twice {
			return nil, &fieldError{prefix + field, fmt.Errorf("%s: %s is there twice, want it once", what, prefix+field)}
		}
		f.names, f.values[field] = append(f.names, field), value
	}
	if _, err := tokens.Token(); err != nil {
		return nil, badJSON(err)
	}
	if _, err := tokens.Token(); !errors.Is(err, io.EOF) {
		return nil, badJSON(errors.New("something follows the object"))
	}
	return f, nil
}

func badJSON(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the text ends too early")
	}
	return &fieldError{"json", fmt.Errorf("not a JSON object: %w", err)}
}

func wrongField(what, name string, value json.RawMessage, allowed string) error {
	return &fieldError{name, fmt.Errorf("%s: %s is %s, want %s", what, name, shorten(value), allowed)}
}

// shorten makes a value fit an error: one line, and not a long one.
func shorten(value []byte) string {
	const most = 60
	value = bytes.Join(bytes.Fields(value), []byte(" "))
	if len(value) <= most {
		return string(value)
	}
	for end := most; ; end-- {
		if utf8.RuneStart(value[end]) {
			return string(value[:end]) + "…"
		}
	}
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

func (f *fields) wrong(name, allowed string) {
	f.fail(wrongField(f.what, f.prefix+name, f.values[name], allowed))
}

func (f *fields) has(name string) bool {
	_, ok := f.values[name]
	return ok
}

// take is the field's value; nil, and an error, when it is missing.
func (f *fields) take(name string) json.RawMessage {
	f.taken[name] = true
	value, ok := f.values[name]
	if !ok {
		f.fail(&fieldError{f.prefix + name, fmt.Errorf("%s: %s is missing", f.what, f.prefix+name)})
	}
	return value
}

// done is the first error, or an unknown field.
func (f *fields) done() error {
	for _, name := range f.names {
		if !f.taken[name] {
			f.fail(&fieldError{f.prefix + name, fmt.Errorf("%s: unknown field %s", f.what, strconv.Quote(f.prefix+shorten([]byte(name))))})
		}
	}
	return f.err
}

// unsigned is a whole number from 0 to most.
func (f *fields) unsigned(name string, most uint64) uint64 {
	value := f.take(name)
	if value == nil {
		return 0
	}
	n, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil || n > most {
		f.wrong(name, fmt.Sprintf("a whole number from 0 to %d", most))
		return 0
	}
	return n
}

func (f *fields) u16(name string) uint16 { return uint16(f.unsigned(name, math.MaxUint16)) }
func (f *fields) u32(name string) uint32 { return uint32(f.unsigned(name, math.MaxUint32)) }
func (f *fields) u64(name string) uint64 { return f.unsigned(name, math.MaxUint64) }

func (f *fields) i64(name string) int64 {
	value := f.take(name)
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil && value != nil {
		f.wrong(name, fmt.Sprintf("a whole number from %d to %d", math.MinInt64, math.MaxInt64))
	}
	return n
}

// u32s is a list of whole numbers.
func (f *fields) u32s(name string) []uint32 {
	var list []uint32
	for i, value := range f.list(name) {
		n, err := strconv.ParseUint(string(value), 10, 32)
		if err != nil {
			f.fail(wrongField(f.what, fmt.Sprintf("%s%s[%d]", f.prefix, name, i), value, fmt.Sprintf("a whole number from 0 to %d", uint32(math.MaxUint32))))
			return nil
		}
		list = append(list, uint32(n))
	}
	return list
}

// list is a list of anything.
func (f *fields) list(name string) []json.RawMessage {
	value := f.take(name)
	if value == nil {
		return nil
	}
	var list []json.RawMessage
	if value[0] != '[' || json.Unmarshal(value, &list) != nil {
		f.wrong(name, "a list")
	}
	return list
}

// objects reads a list of objects, each by read, until one is wrong.
func (f *fields) objects(name string, read func(*fields)) {
	for i, value := range f.list(name) {
		at := fmt.Sprintf("%s%s[%d]", f.prefix, name, i)
		element, err := readFields(f.what, at, at+".", value)
		if err == nil {
			read(element)
			err = element.done()
		}
		if err != nil {
			f.fail(err)
			return
		}
	}
}

func (f *fields) boolean(name string) bool {
	value := f.take(name)
	if value != nil && string(value) != "true" && string(value) != "false" {
		f.wrong(name, "true or false")
	}
	return string(value) == "true"
}

// text is a string. One that has no UTF-8 form, as half of a surrogate pair, is refused: encoding/json would replace it.
func (f *fields) text(name string) string {
	value := f.take(name)
	if value == nil {
		return ""
	}
	var s string
	if value[0] != '"' || json.Unmarshal(value, &s) != nil {
		f.wrong(name, "a string")
		return ""
	}
	replaced := strings.ContainsRune(s, utf8.RuneError) && !bytes.ContainsRune(value, utf8.RuneError) && !bytes.Contains(bytes.ToLower(value), []byte(`\ufffd`))
	if replaced || !utf8.Valid(value) {
		f.wrong(name, "a string of Unicode characters")
	}
	return s
}

// word is a string that must be one of those allowed.
func (f *fields) word(name string, allowed ...string) string {
	value := f.take(name)
	var s string
	if value == nil || json.Unmarshal(value, &s) == nil && slices.Contains(allowed, s) {
		return s
	}
	f.wrong(name, quoteAll(allowed))
	return ""
}

// quoteAll is "a", "b" or "c".
func quoteAll(words []string) string {
	var b strings.Builder
	for i, word := range words {
		switch {
		case i > 0 && i == len(words)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(strconv.Quote(word))
	}
	return b.String()
}

// number is a whole number that must be this one.
func (f *fields) number(name string, want uint64) {
	if value := f.take(name); value != nil && string(value) != strconv.FormatUint(want, 10) {
		f.wrong(name, strconv.FormatUint(want, 10))
	}
}
