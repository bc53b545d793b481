package wiring

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets this test program be the parties of its own tests: see party_test.go.
func TestMain(m *testing.M) {
	if os.Getenv(partyEnv) != "" {
		os.Exit(playParty(os.Stdin, os.Stdout))
	}
	goleak.VerifyTestMain(m)
}
