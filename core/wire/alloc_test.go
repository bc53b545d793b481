package wire_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
)

func TestSteadyStateAllocatesNothing(t *testing.T) {
	buf := make([]byte, 0, 4096)
	for _, m := range samples() {
		b, name := encode(m), typeOf(t, m).String()
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if m.Check() != nil {
				panic("Check")
			}
		}), name+" Check")
		require.Zero(t, testing.AllocsPerRun(100, func() { buf = m.Append(buf[:0]) }), name+" Append")
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if m.Decode(b) != nil {
				panic("Decode")
			}
		}), name+" Decode")
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if _, err := wire.DecodeHeader(b); err != nil {
				panic("DecodeHeader")
			}
		}), name+" DecodeHeader")
	}

	f := sampleFrame()
	b := f.Append(nil)
	require.Zero(t, testing.AllocsPerRun(100, func() { buf = wire.AppendEnvelope(buf[:0], f.From, f.To) }), "AppendEnvelope")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, err := wire.DecodeEnvelope(b); err != nil {
			panic("DecodeEnvelope")
		}
	}), "DecodeEnvelope")

	h := sampleHandshake()
	b = h.Append(nil)
	require.Zero(t, testing.AllocsPerRun(100, func() { buf = h.Append(buf[:0]) }), "Handshake.Append")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if h.Decode(b) != nil {
			panic("Decode")
		}
	}), "Handshake.Decode")
}

// TestHostileCountsAllocateLittle decodes, into new values, messages that claim far more than is there or allowed, which must cost no more than their error; and large
// ones that are found wrong only after their lists were read, which may cost their own size.
func TestHostileCountsAllocateLittle(t *testing.T) {
	const huge, anError = 0xFFFFFFFF, 2048
	big := func(m wire.Message, records int, recordBytes int, edits ...edit) []byte {
		b := longer(make([]byte, records*recordBytes)...)(encode(m))
		b = u32At(atCount, le.Uint32(b[atCount:])+uint32(records))(b)
		for _, e := range edits {
			b = e(b)
		}
		return b
	}
	claims := map[string][]byte{
		"WANT, count":            u32At(atCount, huge)(encode(sampleWant())),
		"WANT, count and chunks": u32At(atChunks, huge)(u32At(atCount, huge)(encode(sampleWant()))),
		"WANT, endpoint_len":     u32At(atPayload+16, huge)(encode(sampleWant())),
		"WANT, length":           u32At(atLength, huge)(encode(sampleWant())),
		"GRANT, count":           u32At(atCount, huge)(encode(sampleGrant())),
		"GRANT, length":          u32At(atLength, huge)(encode(sampleGrant())),
		"DATA, count":            u32At(atCount, huge)(encode(sampleData())),
		"DATA, indices":          u32At(atPayload, huge)(encode(sampleData())),
		"DATA, both":             u32At(atPayload, huge)(u32At(atCount, huge)(encode(sampleData()))),
		"DATA, pieces":           u32At(atPayload+8+28, huge)(encode(sampleData())),
		"NACK, length":           u32At(atLength, huge)(encode(sampleNack())),
		"NACK, text":             longer(make([]byte, 1<<20)...)(encode(sampleNack())),
		"DRAIN, endpoint_len":    u32At(atPayload, huge)(encode(sampleDrain())),
	}
	for name, b := range claims {
		t.Run(name, func(t *testing.T) { allocatesAtMost(t, b, anError) })
	}
	for name, b := range map[string][]byte{
		"WANT":  big(sampleWant(), 1<<18, 4, u32At(atChunks, 1<<18+2)),
		"GRANT": big(sampleGrant(), 1<<15, wire.CreditBytes),
		"DATA":  big(&wire.Data{Request: 1, Region: 1, Chunks: 1, Runs: sampleData().Runs}, 1<<15, wire.RunBytes),
	} {
		// The allocator rounds up by at most an eighth.
		t.Run(name+", wrong in its last records", func(t *testing.T) { allocatesAtMost(t, b, len(b)+len(b)/8+anError) })
	}
}

// allocatesAtMost decodes b, which must fail, alone and in a frame.
func allocatesAtMost(t *testing.T, b []byte, bytes int) {
	t.Helper()
	_, err := wire.Decode(b)
	require.Error(t, err)
	require.LessOrEqual(t, allocated(func() { _, _ = wire.Decode(b) }), uint64(bytes))
	framed := append(wire.AppendEnvelope(nil, sampleFrame().From, sampleFrame().To), b...)
	require.LessOrEqual(t, allocated(func() { _, _ = wire.DecodeFrame(framed) }), uint64(bytes))
}

// allocated is how many bytes a call of f allocates, on average.
func allocated(f func()) uint64 {
	const calls = 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		f()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / calls
}
