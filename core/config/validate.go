package config

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// Error is one setting whose value is not allowed. Read and Validate join one for each bad setting.
type Error struct {
	// Setting is its name, without Prefix.
	Setting string
	// Variable is the environment variable, or for a value set by a program the variable that would set it, or the key in a settings file with path and line.
	Variable string
	Value    string
	Allowed  string
	// Form says how a value is written, with an example, when Value is not written so; else "".
	Form string
}

func (e *Error) Error() string {
	want := ""
	if e.Form != "" {
		want = ", want " + e.Form
	}
	return fmt.Sprintf("%s is %q%s; allowed: %s", e.Variable, e.Value, want, e.Allowed)
}

// Validate fills in the values that depend on others, lowers MaxChunkSize to what the arena can serve (a warning says so), and returns
// every broken rule at once, each as an *Error. A Config that passed it passes it again unchanged.
func (c *Config) Validate() (warnings []string, err error) {
	warnings, faults := c.resolve()
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = f.err
	}
	return warnings, errors.Join(errs...)
}

// fault is a broken rule and the settings that take part in it.
type fault struct {
	settings []string
	err      *Error
}

func (c *Config) resolve() (warnings []string, faults []fault) {
	if c.ReceiverLease == 0 {
		c.ReceiverLease = 2 * c.RequestTimeout
	}
	if c.RetainLimit == 0 {
		c.RetainLimit = c.ArenaSize / 2
	}
	for _, r := range rows(c) {
		absent := r.described && r.field.isZero()
		if !absent && !r.field.valid() {
			faults = append(faults, fault{[]string{r.Name}, &Error{Setting: r.Name, Variable: Prefix + r.Name, Value: r.field.String(), Allowed: r.Rule}})
		}
	}
	if len(faults) > 0 {
		return nil, faults // the rules between settings assume that each is in range
	}
	faults = append(faults, c.crossFaults()...)
	if len(faults) > 0 {
		return nil, faults
	}
	if w := c.fitChunkToArena(); w != "" {
		warnings = append(warnings, w)
	}
	return warnings, nil
}

// crossFaults checks the rules between settings. Where the one that is to be larger has its default, the other one was set, and is said to be wrong.
func (c *Config) crossFaults() []fault {
	var faults []fault
	standard := Default()
	broken := func(value, allowed string, settings ...string) {
		faults = append(faults, fault{settings, &Error{Setting: settings[0], Variable: Prefix + settings[0], Value: value, Allowed: allowed}})
	}
	above := func(value, floor, standard time.Duration, name, floorName string) {
		switch {
		case value > floor:
		case value == standard:
			broken(floor.String(), fmt.Sprintf("less than %s (default %s), or raise that too", name, value), floorName, name)
		default:
			broken(value.String(), fmt.Sprintf("more than %s (%s)", floorName, floor), name, floorName)
		}
	}
	switch {
	case c.ArenaSize >= 2*c.ArenaGranularity:
	case c.ArenaSize == standard.ArenaSize:
		broken(formatSize(c.ArenaGranularity), fmt.Sprintf("at most half of ARENA_SIZE (default %s), or raise that too", formatSize(c.ArenaSize)),
			"ARENA_GRANULARITY", "ARENA_SIZE")
	default:
		broken(formatSize(c.ArenaSize), fmt.Sprintf("at least 2 x ARENA_GRANULARITY (%s)", formatSize(2*c.ArenaGranularity)),
			"ARENA_SIZE", "ARENA_GRANULARITY")
	}
	above(c.ReceiverLease, c.RequestTimeout, standard.ReceiverLease, "RECEIVER_LEASE", "REQUEST_TIMEOUT")
	above(c.RetirementDeadline, c.SettleDelay, standard.RetirementDeadline, "RETIREMENT_DEADLINE", "SETTLE_DELAY")
	switch {
	case c.CurveSecretKeyFile == "" && c.CurveAuthorizedKeysDir != "":
		broken("", "a file, since CURVE_AUTHORIZED_KEYS_DIR is set", "CURVE_SECRET_KEY_FILE", "CURVE_AUTHORIZED_KEYS_DIR")
	case c.CurveSecretKeyFile != "" && c.CurveAuthorizedKeysDir == "":
		broken("", "a directory, since CURVE_SECRET_KEY_FILE is set", "CURVE_AUTHORIZED_KEYS_DIR", "CURVE_SECRET_KEY_FILE")
	case c.CurveSecretKeyFile != "" && c.Control != ControlZMQ:
		broken(c.Control, ControlZMQ+", since CURVE_SECRET_KEY_FILE is set, and NIXL's notifications are not encrypted", "CONTROL", "CURVE_SECRET_KEY_FILE")
	}
	return faults
}

// fitChunkToArena lowers MaxChunkSize until the arena holds two blocks for the largest chunk, one for staging and one for a grant:
// without them two agents that saturate each other could stop (protocol.md, 6). It returns a warning if it did.
func (c *Config) fitChunkToArena() string {
	usable := c.ArenaSize - c.ArenaSize%c.ArenaGranularity
	block := max(powerOfTwoAtLeast(c.MaxChunkSize), c.ArenaGranularity)
	if 2*block <= usable {
		return ""
	}
	asked := c.MaxChunkSize
	c.MaxChunkSize = powerOfTwoAtMost(usable / 2)
	return fmt.Sprintf("MAX_CHUNK_SIZE is lowered from %s to %s: the arena must hold two blocks of the power of two above it, and ARENA_SIZE is %s",
		formatSize(asked), formatSize(c.MaxChunkSize), formatSize(c.ArenaSize))
}

func powerOfTwoAtLeast(n uint64) uint64 { return 1 << bits.Len64(n-1) }
func powerOfTwoAtMost(n uint64) uint64  { return 1 << (bits.Len64(n) - 1) }
