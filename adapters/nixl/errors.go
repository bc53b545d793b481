package nixl

import (
	"fmt"

	"github.com/kvbounce/kvbounce/ports"
)

// Codes of NIXL's C API (nixl.md, head).
const (
	codeSuccess      = 0
	codeInProgress   = 1
	codeInvalidParam = -1
	codeBackend      = -2
	codeInvalidState = -3
	codeException    = -4
	codeNoTelemetry  = -5
	codeNotFound     = -6
	codeNoMemory     = -100 // ours: the C side could not allocate
)

// Error is a failed call of NIXL.
//
// NIXL folds most causes into code -2; what it knew more goes to standard error only (NIXL_LOG_LEVEL, UCX_LOG_LEVEL).
type Error struct {
	Op   string // the function of the C API without its prefix, such as "post_xfer_req"
	Code int    // NIXL's code
	Text string // what the adapter can add, or ""
}

// Error is the operation, the code in words, and the text.
func (e *Error) Error() string {
	s := fmt.Sprintf("nixl: %s: %s (%d)", e.Op, codeText(e.Code), e.Code)
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// Is makes a "not found" of NIXL, which says that a peer's metadata is not loaded, a ports.ErrUnknownPeer.
func (e *Error) Is(target error) bool {
	return target == ports.ErrUnknownPeer && e.Code == codeNotFound
}

func codeText(code int) string {
	switch code {
	case codeSuccess:
		return "success"
	case codeInProgress:
		return "in progress"
	case codeInvalidParam:
		return "invalid parameter"
	case codeBackend:
		return "backend error"
	case codeInvalidState:
		return "invalid state"
	case codeException:
		return "exception"
	case codeNoTelemetry:
		return "no telemetry"
	case codeNotFound:
		return "not found"
	case codeNoMemory:
		return "out of memory"
	}
	return "unknown code"
}

// check is nil for success.
func check(op string, code int) error {
	if code == codeSuccess {
		return nil
	}
	return &Error{Op: op, Code: code}
}
