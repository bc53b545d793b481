package wiring

import (
	"fmt"
	"os"

	"github.com/kvbounce/kvbounce/core/session"
)

// ExitFailStop is the exit code of a process that ended because memory of the application was in doubt for too long: nothing but its end proves that the memory is not touched any more.
const ExitFailStop = 86

// failStop is what Params.FailStop is by default.
func failStop(r session.Report) {
	fmt.Fprintln(os.Stderr, r)
	os.Exit(ExitFailStop)
}
