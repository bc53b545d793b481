package sim

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/ports"
)

func errorsIsNothingPosted(err error) bool { return errors.Is(err, ports.ErrNothingPosted) }

var someDescriptor = rapid.Custom(func(r *rapid.T) ports.Descriptor {
	d := ports.Descriptor{Addr: rapid.Uint64Range(0, 60).Draw(r, "addr"), Bytes: rapid.Uint64Range(0, 20).Draw(r, "bytes")}
	d.Place.Kind = rapid.SampledFrom([]ports.MemoryKind{ports.Host, ports.Device}).Draw(r, "kind")
	if d.Place.Kind == ports.Device {
		d.Place.Device = rapid.Uint32Range(0, 1).Draw(r, "device")
	}
	return d
})

// Coverage against looking at every range.
func TestCoverageIsExact(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ranges := rapid.SliceOfN(someDescriptor, 0, 12).Draw(r, "ranges")
		c := newCoverage(append([]ports.Descriptor(nil), ranges...))
		for range 20 {
			d := someDescriptor.Draw(r, "asked")
			want := d.Bytes == 0
			for _, have := range ranges {
				want = want || have.Place == d.Place && have.Addr <= d.Addr && d.Addr+d.Bytes <= have.Addr+have.Bytes
			}
			require.Equal(r, want, c.covers(d), "%+v in %+v", d, ranges)
		}
	})
	require.False(t, coverage{}.covers(ports.Descriptor{Addr: 1<<64 - 1, Bytes: 2}))
}

func TestMetadataRoundTrip(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		id := ports.Identity(rapid.StringN(1, 60, 200).Draw(r, "identity"))
		ranges := rapid.SliceOfN(someDescriptor, 0, 5).Draw(r, "ranges")
		encoded := encodeMetadata(id, ranges)
		gotID, got, err := decodeMetadata(encoded)
		require.NoError(r, err)
		require.Equal(r, id, gotID)
		require.Equal(r, append([]ports.Descriptor{}, ranges...), got)
	})
}

// A copy with a right checksum can still be wrong: it may come from anybody.
func FuzzMetadata(f *testing.F) {
	f.Add(encodeMetadata(idA, nil))
	f.Add(encodeMetadata(idA, []ports.Descriptor{{Addr: 4096, Bytes: 4096}}))
	f.Fuzz(func(t *testing.T, content []byte) {
		content = content[:max(0, len(content)-4)]
		for _, b := range [][]byte{content, checksummed(content)} {
			id, ranges, err := decodeMetadata(b)
			if err != nil {
				require.ErrorIs(t, err, ports.ErrBadMetadata)
				continue
			}
			require.Equal(t, b, encodeMetadata(id, ranges))
		}
	})
}

func TestVirtualMemory(t *testing.T) {
	w := NewVirtual(Config{})
	gpu := ports.Place{Kind: ports.Device, Device: 3}
	first, err := w.Allocate(100, ports.Place{})
	require.NoError(t, err)
	second, err := w.Allocate(100, gpu)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	require.Zero(t, first%4096)
	for _, bad := range []struct{ addr, bytes uint64 }{{first, 101}, {first + 100, 1}, {first - 1, 2}, {first, 1<<64 - 1}, {first + 99, 2}, {0, 1}, {1<<64 - 1, 1}, {second + 1<<36, 1}} {
		_, err := w.View(bad.addr, bad.bytes)
		require.ErrorContains(t, err, "not in one allocation", "%+v", bad)
	}
	require.Len(t, view(t, w, first+99, 1), 1)
	require.Len(t, view(t, w, first+100, 0), 0)

	e, err := NewEngine(w, idA, nil)
	require.NoError(t, err)
	_, err = e.Register([]ports.Descriptor{{Addr: first, Bytes: 100}, {Addr: second, Bytes: 100}})
	require.ErrorContains(t, err, "is of vram:3, not of dram")
	require.Empty(t, e.registrations, "all or nothing")
	_, err = e.Register([]ports.Descriptor{{Addr: first, Bytes: 100}, {Addr: second, Bytes: 100, Place: gpu}})
	require.NoError(t, err)

	require.Error(t, w.Free(first+1))
	require.NoError(t, w.Free(first))
	require.Error(t, w.Free(first))
	_, err = w.View(first, 1)
	require.Error(t, err)
	for _, bytes := range []uint64{0, 1 << 36, 1<<64 - 1} {
		_, err = w.Allocate(bytes, gpu)
		require.Error(t, err)
	}
}

func TestProcessMemory(t *testing.T) {
	w := NewRealTime(newRealClock())
	addr := allocate(t, w, 5000)
	require.Zero(t, addr%4096)
	b := view(t, w, addr, 5000)
	b[4999] = 7
	require.Equal(t, byte(7), view(t, w, addr+4999, 1)[0])
	require.NoError(t, w.Free(addr))
	require.Error(t, w.Free(addr))
	_, err := w.Allocate(1, ports.Place{Kind: ports.Device})
	require.ErrorContains(t, err, "host memory only")
	_, err = w.Allocate(0, ports.Place{})
	require.Error(t, err)
}

func TestWakeComesOnceOutsideTheLock(t *testing.T) {
	w := NewVirtual(Config{})
	wakes := 0
	a, err := NewControl(w, ControlConfig{Identity: idA})
	require.NoError(t, err)
	b, err := NewControl(w, ControlConfig{Identity: idB, Wake: func() { wakes++; w.Now() }})
	require.NoError(t, err)
	require.NoError(t, a.Connect(idB, b.Endpoint()))
	a.Send(idB, []byte("1"))
	require.Zero(t, wakes)
	require.True(t, w.Step())
	require.Equal(t, 1, wakes)
	require.NoError(t, b.Close())

	// What waits for a successor wakes it.
	a.Send(idB, []byte("2"))
	require.True(t, w.Step())
	c, err := NewControl(w, ControlConfig{Identity: idB, Endpoint: string(b.Endpoint()), Wake: func() { wakes++ }})
	require.NoError(t, err)
	require.Equal(t, 2, wakes)
	frame, _, ok := c.Recv(nil)
	require.True(t, ok)
	require.Equal(t, "2", string(frame))
}

func TestConfigsAreChecked(t *testing.T) {
	w := NewVirtual(Config{})
	_, err := NewCompute(w, ComputeConfig{})
	require.ErrorContains(t, err, "Contexts is 0")
	_, err = NewControl(w, ControlConfig{QueueFrames: -1})
	require.ErrorContains(t, err, "QueueFrames is -1")
	_, err = NewControl(w, ControlConfig{FrameLimit: -1})
	require.ErrorContains(t, err, "FrameLimit is -1")
	_, err = NewControl(w, ControlConfig{Endpoint: "tcp://x"})
	require.ErrorContains(t, err, "memory:")
	_, err = NewControl(w, ControlConfig{Identity: idA, Endpoint: "memory:x"})
	require.NoError(t, err)
	_, err = NewControl(w, ControlConfig{Endpoint: "memory:x"})
	require.ErrorContains(t, err, string(idA)+" listens at memory:x already")
	_, err = NewEngine(w, "", nil)
	require.ErrorContains(t, err, "identity has 0 bytes")
	e, err := NewEngine(w, idA, nil)
	require.NoError(t, err)
	_, err = NewEngine(w, idA, nil)
	require.ErrorContains(t, err, "has one already")
	require.NoError(t, e.Close())
	_, err = NewEngine(w, idA, nil)
	require.NoError(t, err)
}

// Endpoints that peers make up leave nothing behind.
func TestMailboxesAreGivenBack(t *testing.T) {
	w := NewVirtual(Config{})
	a, err := NewControl(w, ControlConfig{Identity: idA})
	require.NoError(t, err)
	for _, endpoint := range []string{"memory:one", "memory:two", "memory:three"} {
		require.NoError(t, a.Connect(idB, []byte(endpoint)))
		a.Send(idB, []byte("frame"))
	}
	for w.Step() {
	}
	require.Len(t, w.boxes, 2, "its own, and the last")
	require.NoError(t, a.Close())
	require.Empty(t, w.boxes)
}
