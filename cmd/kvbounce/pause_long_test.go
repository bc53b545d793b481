//go:build pause

package main

import (
	"testing"
	"time"
)

// TestPausedForLong is TestPausedProcess with the default timeouts and a pause of 70 s. `make pause` runs it.
func TestPausedForLong(t *testing.T) {
	pauseProcesses(t, pauseTimes{timeout: 30 * time.Second, short: 20 * time.Second, middle: 45 * time.Second, long: 70 * time.Second})
}
