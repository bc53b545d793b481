package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// A failure of the work itself names what it is about, too.
func TestFailuresNameTheirField(t *testing.T) {
	for _, c := range []struct{ name, value, field string }{
		{"KVBOUNCE_NIXL_LIB", "/nonexistent", "engine"},
		{"KVBOUNCE_CONTROL_BIND", "tcp://192.0.2.1:0", "control"}, // an address of nobody here
		{"KVBOUNCE_ARENA_SIZE", "much", "KVBOUNCE_ARENA_SIZE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(c.name, c.value)
			code, out, _ := command(t, "demo", "--rounds", "1", "--json")
			require.Equal(t, exitFailed, code)
			var e struct {
				Error struct{ Field, Message string }
			}
			require.NoError(t, json.Unmarshal([]byte(out), &e), out)
			require.Equal(t, c.field, e.Error.Field, e.Error.Message)
		})
	}
}

// Two bad settings are one line.
func TestSeveralErrorsAreOneLine(t *testing.T) {
	t.Setenv("KVBOUNCE_ENABLE", "maybe")
	t.Setenv("KVBOUNCE_ARENA_SIZE", "much")
	code, _, errs := command(t, "demo")
	require.Equal(t, exitFailed, code)
	require.Equal(t, 1, strings.Count(errs, "\n"), errs)
	require.Contains(t, errs, "KVBOUNCE_ENABLE")
	require.Contains(t, errs, "KVBOUNCE_ARENA_SIZE")
}

// A fixed port is no obstacle to a demo of two agents.
func TestDemoOnAFixedPort(t *testing.T) {
	t.Setenv("KVBOUNCE_CONTROL_BIND", "tcp://127.0.0.1:18998")
	code, _, errs := command(t, "demo", "--rounds", "1", "--layout", "tiny")
	require.Equal(t, exitOK, code, errs)
}

var quoted = regexp.MustCompile(`'([^']*)'|(\S+)`)

// The examples in the help work. Those of sim are runs of minutes, and have tests of their own.
func TestHelpExamples(t *testing.T) {
	a := &app{streams: streams{in: strings.NewReader(""), out: &strings.Builder{}, err: &strings.Builder{}}}
	examples := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, line := range strings.Split(cmd.Example, "\n") {
			line, ok := strings.CutPrefix(strings.TrimSpace(line), "kvbounce ")
			if !ok || strings.HasPrefix(line, "sim ") || strings.Contains(line, "|") || strings.Contains(line, "FILE") || strings.Contains(line, "--in ") || strings.Contains(line, "<") {
				continue
			}
			var args []string
			for _, m := range quoted.FindAllStringSubmatch(line, -1) {
				args = append(args, m[1]+m[2])
			}
			examples++
			code, _, errs := command(t, args...)
			require.Equal(t, exitOK, code, "%s: %s", line, errs)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(a.root(nil))
	require.Positive(t, examples)
}

func TestVersionFlag(t *testing.T) {
	code, out, _ := command(t, "--version")
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "kvbounce version ")
}
