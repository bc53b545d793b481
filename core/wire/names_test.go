package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
)

func TestTypeNames(t *testing.T) {
	for i, name := range []string{"type 0", "WANT", "GRANT", "DATA", "ACK", "NACK", "DRAIN", "DRAIN_ACK", "type 8"} {
		require.Equal(t, name, wire.Type(i).String())
	}
}

func TestReasonNames(t *testing.T) {
	for i, name := range []string{
		"unknown", "malformed", "unknown_flow", "outside_chunk", "unregistered", "receive_window", "too_large", "scatter_failed", "refused", "overloaded",
		"expired", "unknown", "unknown",
	} {
		require.Equal(t, name, wire.Reason(i).String())
	}
}
