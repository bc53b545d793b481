package drain

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

// closing is the table of protocol.md, 7, written out once more: for each access all that closes it. Everything else must not.
var closing = map[Access][]Evidence{
	// Source (bounce), and staging as what the gather writes: the launched gather's event fired, or it never was one.
	Gather: {CopyCompleted, NeverStarted},
	// Staging and region, on the writer's side: the engine's success; nothing posted; ended with no piece running; fenced and settled; revoked.
	Write: {EngineSuccess, NothingPosted, EndedShort, FencedAndSettled, Revoked},
	// Region, on the receiver's side: what the writer states of the same, or it never heard of the region.
	PeerWrite: {SenderLatched, SenderDrained, NotGranted, FencedAndSettled, Revoked},
	// Destination (bounce).
	Scatter: {CopyCompleted, NeverStarted},
	// Direct: both sides' memory.
	Direct: {EngineSuccess, NothingPosted, EndedShort, FencedAndSettled, Revoked},
}

// TestEvidenceTable walks every (access, evidence) pair: Close either ends the access and gives the block back, or panics and changes nothing.
func TestEvidenceTable(t *testing.T) {
	require.Len(t, closing, int(accesses))
	for a := range accesses {
		accepted := map[Evidence]bool{}
		for _, e := range closing[a] {
			accepted[e] = true
		}
		for e := range evidences {
			verdict := "proves nothing"
			if accepted[e] {
				verdict = "closes"
			}
			t.Run(fmt.Sprintf("%s %s: %s", e, verdict, a), func(t *testing.T) {
				require.Equal(t, accepted[e], e.Closes(a))
				w := newWorld(t)
				h := w.hold(4096)
				h.Open(a)
				h.Drop()
				if accepted[e] {
					h.Close(a, e)
					require.True(t, h.Freed())
					w.empty()
					return
				}
				before := w.ledger.Totals()
				require.PanicsWithValue(t, fmt.Sprintf("drain: %q is no evidence that a %s ended", e, a), func() { h.Close(a, e) })
				require.False(t, h.Freed())
				require.True(t, h.IsOpen(a))
				require.Equal(t, before, w.ledger.Totals())
			})
		}
	}
}

// Nothing that only looks like evidence closes anything.
func TestNonEvidence(t *testing.T) {
	for _, e := range []Evidence{TimedOut, ErrorStatus, HandleReleased, PeerInvalidated, EscapedError, LeaseExpired} {
		for a := range accesses {
			require.False(t, e.Closes(a), "%s, %s", e, a)
		}
	}
}

func TestOfTransfer(t *testing.T) {
	for s, want := range map[ports.TransferStatus]Evidence{
		ports.Success: EngineSuccess, ports.FailedNothingPosted: NothingPosted, ports.FailedEnded: EndedShort, ports.FailedUnknown: ErrorStatus, 99: ErrorStatus,
	} {
		e, pending := OfTransfer(s)
		require.False(t, pending, s)
		require.Equal(t, want, e, s)
		require.Equal(t, s.Ended(), e.Closes(Write), s)
		require.Equal(t, s.Ended(), e.Closes(Direct), s)
	}
	_, pending := OfTransfer(ports.Pending)
	require.True(t, pending)
}

func TestOfCopy(t *testing.T) {
	for s, want := range map[ports.CopyStatus]Evidence{ports.CopyDone: CopyCompleted, ports.CopyFailed: ErrorStatus, 99: ErrorStatus} {
		e, pending := OfCopy(s)
		require.False(t, pending, s)
		require.Equal(t, want, e, s)
		require.Equal(t, s == ports.CopyDone, e.Closes(Scatter))
	}
	_, pending := OfCopy(ports.CopyPending)
	require.True(t, pending)
}

func TestNamesAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for a := range accesses {
		seen[a.String()] = true
	}
	for e := range evidences {
		seen[e.String()] = true
	}
	require.Len(t, seen, int(accesses)+int(evidences))
	require.NotContains(t, seen, "")
}
