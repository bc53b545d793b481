package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

func TestFrameBytes(t *testing.T) {
	f, want := sampleFrame(), golden(t, "frame")
	require.NoError(t, f.Check())
	require.Equal(t, want, f.Append([]byte("before"))[6:])
	got, err := wire.DecodeFrame(want)
	require.NoError(t, err)
	require.Equal(t, *f, got)
}

func TestFramePrefixesAndTrailingBytes(t *testing.T) {
	for _, m := range samples() {
		f := sampleFrame()
		f.Message = m
		whole := f.Append(nil)
		for n := range whole {
			_, err := wire.DecodeFrame(whole[:n])
			require.Error(t, err, "%d of %d bytes", n, len(whole))
		}
		_, err := wire.DecodeFrame(append(whole, 0))
		require.Equal(t, "length", fieldOf(t, err, typeOf(t, m).String()))
		_, err = wire.DecodeFrame(m.Append(whole))
		require.Error(t, err, "two messages")
	}
}

func TestFrameCheck(t *testing.T) {
	f := sampleFrame()
	f.From = "prefill"
	require.Equal(t, "from", fieldOf(t, f.Check(), "envelope"))
	f = sampleFrame()
	f.To = ""
	require.Equal(t, "to", fieldOf(t, f.Check(), "envelope"))
	f = sampleFrame()
	f.Message = &wire.Ack{}
	require.Equal(t, "request", fieldOf(t, f.Check(), "ACK"))
}

func TestMagics(t *testing.T) {
	frame, handshake, message := golden(t, "frame"), golden(t, "handshake"), golden(t, "ack")
	require.True(t, ports.IsFrame(frame))
	require.False(t, ports.IsFrame(handshake))
	require.False(t, ports.IsFrame(message))
	require.False(t, ports.IsFrame(frame[:3]))
	require.True(t, wire.IsHandshake(handshake))
	require.False(t, wire.IsHandshake(frame))
	require.False(t, wire.IsHandshake(message))
	require.False(t, wire.IsHandshake(handshake[:3]))
}
