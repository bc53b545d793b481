package main

import (
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be the child processes of its own tests: demo and doctor start os.Executable again, and some tests whole commands.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"worker", probeCommand, "send", "recv", "demo", "bench"}, os.Args[1]) {
		os.Exit(run(os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
	}
	goleak.VerifyTestMain(m)
}
