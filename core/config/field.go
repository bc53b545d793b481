package config

import (
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// field is one setting's place in a Config, with its type's syntax and range.
type field interface {
	// set takes a value over if it is well formed and in range, and else leaves the field as it is.
	set(text string) bool
	// form says how a value is written when text is not written so, as in "a size such as 4096, 64K or 512M"; else, and where the rule shows it, "".
	form(text string) string
	// valid reports whether the present value is in range.
	valid() bool
	// isZero reports whether the present value is the zero value.
	isZero() bool
	// String is the present value as set takes it.
	String() string
}

type boolean struct{ at *bool }

func (f boolean) set(text string) bool {
	switch strings.ToLower(text) {
	case "0", "false", "no", "off":
		*f.at = false
	case "1", "true", "yes", "on":
		*f.at = true
	default:
		return false
	}
	return true
}

func (f boolean) form(string) string { return "" }
func (f boolean) valid() bool        { return true }
func (f boolean) isZero() bool       { return !*f.at }

func (f boolean) String() string {
	if *f.at {
		return "1"
	}
	return "0"
}

// The forms of numbers.
const (
	wholeForm    = "a whole number such as 8, digits alone"
	sizeForm     = "a size such as 4096, 64K or 512M"
	durationForm = "a duration such as 30s or 500ms"
)

// number is a setting with a range.
type number[T int | uint64 | time.Duration] struct {
	at       *T
	min, max T
	written  string // the form of a value, with an example
	parse    func(text string) (T, error)
	format   func(T) string
	also     func(T) bool // what else is asked of it; nil: nothing
}

// count is a plain number: digits alone, without the suffixes of a size.
func count(at *int, min, max int) field {
	parse := func(text string) (int, error) {
		n, err := strconv.ParseUint(text, 10, 31)
		return int(n), err
	}
	return number[int]{at, min, max, wholeForm, parse, strconv.Itoa, nil}
}

func size(at *uint64, min, max uint64) field {
	return number[uint64]{at, min, max, sizeForm, ParseSize, formatSize, nil}
}

func powerOfTwo(at *uint64, max uint64) field {
	return number[uint64]{at, 1, max, sizeForm, ParseSize, formatSize, func(n uint64) bool { return bits.OnesCount64(n) == 1 }}
}

func duration(at *time.Duration, min, max time.Duration) field {
	return number[time.Duration]{at, min, max, durationForm, time.ParseDuration, time.Duration.String, nil}
}

func (f number[T]) set(text string) bool {
	n, err := f.parse(text)
	if err != nil || !f.allows(n) {
		return false
	}
	*f.at = n
	return true
}

func (f number[T]) form(text string) string {
	if _, err := f.parse(text); err == nil {
		return ""
	}
	return f.written
}

func (f number[T]) allows(n T) bool { return n >= f.min && n <= f.max && (f.also == nil || f.also(n)) }
func (f number[T]) valid() bool     { return f.allows(*f.at) }
func (f number[T]) isZero() bool    { return *f.at == 0 }
func (f number[T]) String() string  { return f.format(*f.at) }

// milliseconds reads a whole number of milliseconds from 1 to limit into at.
func milliseconds(at *time.Duration, limit uint64) func(text string) bool {
	return func(text string) bool {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n < 1 || n > limit {
			return false
		}
		*at = time.Duration(n) * time.Millisecond
		return true
	}
}

type text struct {
	at     *string
	allows func(string) bool
}

func (f text) set(value string) bool {
	if !f.allows(value) {
		return false
	}
	*f.at = value
	return true
}

func (f text) form(string) string { return "" }
func (f text) valid() bool        { return f.allows(*f.at) }
func (f text) isZero() bool       { return *f.at == "" }
func (f text) String() string     { return *f.at }

func isAny(string) bool { return true }

func isControl(value string) bool { return value == ControlZMQ || value == ControlNIXL }

// isBind reports whether value has the form of tcp://ADDRESS:PORT or tcp://*:PORT.
func isBind(value string) bool {
	host, ok := endpointHost(value)
	return ok && (host == "*" || isAddress(host))
}

// isAdvertise reports whether value has the form of ADDRESS or tcp://ADDRESS:PORT, for one address.
func isAdvertise(value string) bool {
	host, ok := value, true
	if strings.HasPrefix(value, "tcp:") {
		host, ok = endpointHost(value)
	} else if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		host = "[" + host + "]"
	}
	return ok && isAddress(host) && host != "0.0.0.0" && host != "[::]"
}

// isDebugListen reports whether value has the form of unix:PATH or of a loopback ADDRESS:PORT.
func isDebugListen(value string) bool {
	if path, ok := strings.CutPrefix(value, "unix:"); ok {
		return path != "" && path[0] != '@' // an abstract socket is no file, and so open to every user
	}
	host, ok := endpointHost("tcp://" + value)
	return ok && isAddress(host) && (strings.HasPrefix(host, "127.") || host == "[::1]")
}

// endpointHost takes tcp://HOST:PORT apart.
func endpointHost(value string) (host string, ok bool) {
	rest, ok := strings.CutPrefix(value, "tcp://")
	colon := strings.LastIndexByte(rest, ':')
	if !ok || colon < 0 {
		return "", false
	}
	_, err := strconv.ParseUint(rest[colon+1:], 10, 16)
	return rest[:colon], err == nil
}

// isAddress reports whether host is written as a numeric address, IPv6 in brackets. A host name is none: the control channel looks no
// names up. Whether the address exists is for the channel to say.
func isAddress(host string) bool {
	digits := "0123456789."
	if inner, ok := strings.CutPrefix(host, "["); ok {
		digits = "0123456789abcdefABCDEF.:"
		host, ok = strings.CutSuffix(inner, "]")
		if !ok || strings.Count(host, ":") < 2 {
			return false
		}
	}
	return host != "" && strings.Trim(host, digits) == ""
}
