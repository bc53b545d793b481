package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

// What was posted before a revocation is over moves nothing after it, in either direction; what the peer posts by its old metadata neither; and both can be used again once each side was told anew.
func TestRevoke(t *testing.T) {
	const bytes = 4096
	w := NewVirtual(Config{Timing: faultTiming, Chooser: always(PostOne, int(TransferFailsMovesLate))})
	a, b, memoryA, memoryB := enginePair(t, w, bytes)
	ofA, ofB := []ports.Descriptor{{Addr: memoryA, Bytes: bytes}}, []ports.Descriptor{{Addr: memoryB, Bytes: bytes}}
	first := a.PostWrite(idB, ofA, ofB)
	require.False(t, b.Revoked(idA))
	b.Revoke(idA)
	require.False(t, b.Revoked(idA), "it takes a while")
	w.AdvanceTo(ports.Instant(time.Millisecond))
	require.True(t, b.Revoked(idA))
	require.False(t, a.Revoked(idB), "that is b's alone")
	require.ErrorIs(t, b.PostWrite(idA, ofB, ofA).Err(), ports.ErrUnknownPeer)
	second := a.PostWrite(idB, ofA, ofB) // by what it knows of before
	w.AdvanceTo(ports.Instant(3 * time.Hour))
	require.Equal(t, ports.FailedUnknown, first.Status())
	require.Equal(t, ports.FailedUnknown, second.Status())
	require.Zero(t, landed(t, w, memoryB, bytes))

	metadata, err := b.Metadata()
	require.NoError(t, err)
	require.NoError(t, a.Connect(idB, metadata))
	a.PostWrite(idB, ofA, ofB)
	w.AdvanceTo(ports.Instant(6 * time.Hour))
	require.Equal(t, bytes, landed(t, w, memoryB, bytes))
}
