package wiring

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/session"
	"github.com/kvbounce/kvbounce/core/transport"
)

// The default fail-stop ends the process with its report and an exit code of its own.
func TestFailStop(t *testing.T) {
	if os.Getenv("KVBOUNCE_TEST_FAIL_STOP") != "" {
		failStop(session.Report{Deadline: "retirement deadline", Request: "42", Now: 5_000_000_000, Doubts: []transport.Doubt{{Peer: "decode#0000000000000001", Part: "scatter", Bytes: 4096, Since: 0}}})
		os.Exit(0)
	}
	var stderr strings.Builder
	c := exec.Command(os.Args[0], "-test.run=^TestFailStop$")
	c.Env = append(os.Environ(), "KVBOUNCE_TEST_FAIL_STOP=1")
	c.Stderr = &stderr
	c.WaitDelay = 10 * time.Second
	var exit *exec.ExitError
	require.True(t, errors.As(c.Run(), &exit))
	require.Equal(t, ExitFailStop, exit.ExitCode())
	require.Contains(t, stderr.String(), "the retirement deadline passed and memory of the application may still be touched; request 42\n  4096 bytes: scatter, peer decode#0000000000000001, for 5s\n")
}
