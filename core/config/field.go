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

func (f boolean) valid() bool  { return true }
func (f boolean) isZero() bool { return !*f.at }

func (f boolean) String() string {
	if *f.at {
		return "1"
	}
	return "0"
}

// count is a plain number: digits alone, without the suffixes of a size.
type count struct {
	at       *int
	min, max int
}

func (f count) set(text string) bool {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || !f.allows(int(n)) {
		return false
	}
	*f.at = int(n)
	return true
}

func (f count) allows(n int) bool { return n >= f.min && n <= f.max }
func (f count) valid() bool       { return f.allows(*f.at) }
func (f count) isZero() bool      { return *f.at == 0 }
func (f count) String() string    { return strconv.Itoa(*f.at) }

type size struct {
	at         *uint64
	min, max   uint64
	powerOfTwo bool
}

func (f size) set(text string) bool {
	n, err := ParseSize(text)
	if err != nil || !f.allows(n) {
		return false
	}
	*f.at = n
	return true
}

func (f size) allows(n uint64) bool {
	return n >= f.min && n <= f.max && (!f.powerOfTwo || bits.OnesCount64(n) == 1)
}

func (f size) valid() bool    { return f.allows(*f.at) }
func (f size) isZero() bool   { return *f.at == 0 }
func (f size) String() string { return formatSize(*f.at) }

type duration struct {
	at       *time.Duration
	min, max time.Duration
}

func (f duration) set(text string) bool {
	d, err := time.ParseDuration(text)
	if err != nil || !f.allows(d) {
		return false
	}
	*f.at = d
	return true
}

func (f duration) allows(d time.Duration) bool { return d >= f.min && d <= f.max }
func (f duration) valid() bool                 { return f.allows(*f.at) }
func (f duration) isZero() bool                { return *f.at == 0 }
func (f duration) String() string              { return f.at.String() }

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

func (f text) valid() bool    { return f.allows(*f.at) }
func (f text) isZero() bool   { return *f.at == "" }
func (f text) String() string { return *f.at }

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
	host, ok := endpointHost("tcp://" + value)
	return strings.HasPrefix(value, "unix:") && value != "unix:" || ok && isAddress(host) && (strings.HasPrefix(host, "127.") || host == "[::1]")
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
