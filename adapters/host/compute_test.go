package host_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/adapters/host"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/ports/porttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newCompute(t testing.TB, cfg host.Config) *host.Compute {
	t.Helper()
	c, err := host.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// allocate maps memory until the test ends. It must be called before newCompute, so that it is freed after Close.
func allocate(t testing.TB, bytes uint64) []byte {
	t.Helper()
	memory, err := host.Allocate(bytes)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, host.Free(memory)) })
	return memory
}

func address(memory []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory)))) }

// bytesAt is the memory at an address outside the Go heap.
func bytesAt(addr uint64, n int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n)
}

func wait(event ports.Event) ports.CopyStatus {
	for event.Status() == ports.CopyPending {
		runtime.Gosched()
	}
	return event.Status()
}

func contiguous(addr uint64, bytes uint32) ports.Runs {
	return ports.Runs{Runs: []ports.Run{{Addr: addr, Piece: bytes, Pieces: 1, Step: bytes, Table: ports.NoTable}}}
}

func TestContract(t *testing.T) {
	for name, cfg := range map[string]host.Config{
		"one context, one worker": {Contexts: 1, Workers: 1},
		"8 contexts, 3 workers":   {Contexts: 8, Workers: 3},
		"the default workers":     {Contexts: 3},
	} {
		t.Run(name, func(t *testing.T) {
			porttest.GpuCompute(t, func(t *testing.T) porttest.ComputeFixture {
				compute, err := host.New(cfg)
				require.NoError(t, err)
				return porttest.ComputeFixture{
					Compute:  compute,
					Allocate: func(bytes uint64) uint64 { return address(allocate(t, bytes)) },
					Write:    func(addr uint64, from []byte) { copy(bytesAt(addr, len(from)), from) },
					Read:     func(addr uint64, to []byte) { copy(to, bytesAt(addr, len(to))) },
					Wait:     runtime.Gosched,
				}
			})
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	_, err := host.New(host.Config{})
	require.ErrorContains(t, err, "Contexts is 0, want at least 1")
	_, err = host.New(host.Config{Contexts: 1, Workers: -1})
	require.ErrorContains(t, err, "Workers is -1")
}

func TestAllocateIsAlignedZeroedAndFreed(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		bytes := rapid.Uint64Range(1, 5<<20).Draw(r, "bytes")
		memory, err := host.Allocate(bytes)
		require.NoError(r, err)
		require.Len(r, memory, int(bytes))
		require.Zero(r, address(memory)%(2<<20))
		require.Zero(r, memory[0])
		require.Zero(r, memory[bytes-1])
		memory[0], memory[bytes-1] = 1, 1
		require.NoError(r, host.Free(memory))
	})
}

func TestBadSizesAndArenasAreErrors(t *testing.T) {
	c := newCompute(t, host.Config{Contexts: 1})
	for _, bytes := range []uint64{0, 1 << 63, 1<<64 - 1} {
		_, err := host.Allocate(bytes)
		require.Error(t, err)
		_, err = c.AllocArena(bytes)
		require.Error(t, err)
	}
	require.Error(t, host.Free(nil))

	arena, err := c.AllocArena(1)
	require.NoError(t, err)
	require.Error(t, c.FreeArena(ports.Arena{Base: arena.Base + 4096, Bytes: 4096}))
	require.NoError(t, c.FreeArena(arena))
	require.ErrorContains(t, c.FreeArena(arena), "no arena begins at")

	arena, err = c.AllocArena(1)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	_, err = c.AllocArena(1)
	require.ErrorIs(t, err, ports.ErrClosed)
	require.NoError(t, c.FreeArena(arena), "an arena outlives Close until it is freed")
}

func TestWakeFollowsEachEnd(t *testing.T) {
	app := allocate(t, 1<<20)
	var wakes atomic.Int64
	c := newCompute(t, host.Config{Contexts: 2, Workers: 2, Wake: func() { wakes.Add(1) }})
	arena, err := c.AllocArena(1 << 20)
	require.NoError(t, err)
	for i := range int64(50) {
		event, err := c.Gather(contiguous(address(app), 1<<20), arena.Base)
		require.NoError(t, err)
		for wakes.Load() == i {
			runtime.Gosched()
		}
		require.Equal(t, ports.CopyDone, event.Status(), "when Wake is called the event tells the end")
	}
	require.NoError(t, c.Close())
	require.EqualValues(t, 50, wakes.Load())
}

func TestCloseWaitsForCopies(t *testing.T) {
	const bytes = 16 << 20
	app := allocate(t, bytes)
	for i := range app {
		app[i] = byte(i >> 12)
	}
	c := newCompute(t, host.Config{Contexts: 4, Workers: 2})
	arena, err := c.AllocArena(4 * bytes)
	require.NoError(t, err)
	var events []ports.Event
	for i := range uint64(4) {
		event, err := c.Gather(contiguous(address(app), bytes), arena.Base+i*bytes)
		require.NoError(t, err)
		events = append(events, event)
	}
	require.NoError(t, c.Close())
	for i, event := range events {
		require.Equal(t, ports.CopyDone, event.Status())
		require.Equal(t, app, bytesAt(arena.Base+uint64(i)*bytes, bytes))
	}
	require.NoError(t, c.FreeArena(arena))
}

func TestNoRunsAreDone(t *testing.T) {
	c := newCompute(t, host.Config{Contexts: 1, Workers: 1})
	event, err := c.Gather(ports.Runs{}, 4096)
	require.NoError(t, err)
	require.Equal(t, ports.CopyDone, wait(event))
}

// A destination that the application unmapped too early fails its own copy. It must not end the process, nor hold the context for ever.
func TestUnmappedMemoryFailsTheCopyAlone(t *testing.T) {
	app := allocate(t, 4<<20)
	c := newCompute(t, host.Config{Contexts: 2, Workers: 2})
	arena, err := c.AllocArena(4 << 20)
	require.NoError(t, err)
	gone, err := c.AllocArena(4 << 20)
	require.NoError(t, err)
	require.NoError(t, c.FreeArena(gone))

	for _, scatter := range []bool{false, true} {
		launch := c.Gather
		if scatter {
			launch = c.Scatter
		}
		bad, err := launch(contiguous(gone.Base, 4<<20), arena.Base)
		require.NoError(t, err)
		good, err := launch(contiguous(address(app), 4<<20), arena.Base)
		require.NoError(t, err)
		require.Equal(t, ports.CopyDone, wait(good))
		require.Equal(t, ports.CopyFailed, wait(bad))
		require.ErrorContains(t, bad.Err(), "is not mapped")
		require.Equal(t, ports.CopyFailed, bad.Status())
		require.NoError(t, good.Err())
	}
}

func TestLaunchesDoNotAllocate(t *testing.T) {
	app := allocate(t, 1<<20)
	c := newCompute(t, host.Config{Contexts: 1, Workers: 2})
	arena, err := c.AllocArena(1 << 20)
	require.NoError(t, err)
	runs := contiguous(address(app), 1<<20)
	allocations := testing.AllocsPerRun(200, func() {
		event, err := c.Gather(runs, arena.Base)
		if err != nil || wait(event) != ports.CopyDone {
			t.Fail()
		}
	})
	require.Zero(t, allocations, "events are allocated 64 at a time")
}
