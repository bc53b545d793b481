package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be the child processes of its own tests: demo and doctor start os.Executable again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "worker" || os.Args[1] == probeCommand) {
		os.Exit(run(os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
	}
	goleak.VerifyTestMain(m)
}
