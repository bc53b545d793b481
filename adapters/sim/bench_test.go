package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

// BenchmarkFrames counts events: each is a frame that is sent, arrives and is taken, with 1000 others under way.
func BenchmarkFrames(b *testing.B) {
	digest := NewDigest()
	w := NewVirtual(Config{Timing: Timing{Frame: Cost{Base: time.Microsecond, Late: time.Second}}, Chooser: NewFaults(1,
		Fault{Kind: SendFrame, Option: int(FrameLate), PPM: 500_000, Budget: b.N}), Trace: digest.Add})
	a, err := NewControl(w, ControlConfig{Identity: idA, QueueFrames: 1000})
	require.NoError(b, err)
	c, err := NewControl(w, ControlConfig{Identity: idB})
	require.NoError(b, err)
	require.NoError(b, a.Connect(idB, c.Endpoint()))
	frame := make([]byte, 200)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		for a.Send(idB, frame) == ports.Accepted {
		}
		w.Step()
		buf, _, _ = c.Recv(buf)
	}
}
