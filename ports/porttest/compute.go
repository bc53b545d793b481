package porttest

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/ports"
)

// ComputeFixture is a GpuCompute under test and the application's memory beside it.
type ComputeFixture struct {
	// Compute is new: nothing was allocated from it, and nothing launched. The suite closes it.
	Compute ports.GpuCompute
	// Place is where arenas must be.
	Place ports.Place
	// Allocate gives application memory in that place. It stays mapped until the Compute is closed: the fixture frees it in a t.Cleanup
	// that it registered itself, which so runs after the suite's.
	Allocate func(bytes uint64) (addr uint64)
	// Write and Read move bytes between the suite and memory at an address: the application's, or an arena's. They return when the bytes are in place.
	Write func(addr uint64, from []byte)
	Read  func(addr uint64, to []byte)
	// Wait is called between two polls of an event. It yields, or moves virtual time.
	Wait func()
}

// GpuCompute is the contract of ports.GpuCompute. newFixture is called once for each subtest.
func GpuCompute(t *testing.T, newFixture func(t *testing.T) ComputeFixture) {
	subtests := []struct {
		name string
		run  func(t *testing.T, f ComputeFixture)
	}{
		{"an arena is aligned, large enough, in place and apart from others", computeArenas},
		{"arenas are allocated and freed by any goroutine", computeArenasConcurrently},
		{"gather copies exactly the pieces", computeGatherExact},
		{"scatter copies exactly the pieces", computeScatterExact},
		{"large copies are exact", computeLarge},
		{"a done copy is visible to later copies", computeRoundTrip},
		{"copies under way do not mix", computeConcurrent},
		{"ErrBusy when every context is in use, and no longer once an event was seen done", computeBusy},
		{"a seen event goes on answering the same", computeLatched},
		{"nothing starts after Close", computeClosed},
		{"Close again does nothing", computeCloseTwice},
	}
	for _, s := range subtests {
		t.Run(s.name, func(t *testing.T) {
			f := newFixture(t)
			t.Cleanup(func() { require.NoError(t, f.Compute.Close()) })
			s.run(t, f)
		})
	}
}

func computeArenas(t *testing.T, f ComputeFixture) {
	require.GreaterOrEqual(t, f.Compute.Contexts(), 1)
	var arenas []ports.Arena
	for _, bytes := range []uint64{2, 4096, 100_001, 3 << 20} {
		arena, err := f.Compute.AllocArena(bytes)
		require.NoError(t, err)
		require.Zero(t, arena.Base%4096, "base %#x is not aligned to 4096", arena.Base)
		require.GreaterOrEqual(t, arena.Bytes, bytes)
		require.Equal(t, f.Place, arena.Place)
		require.Greater(t, arena.Base+arena.Bytes, arena.Base)
		for _, other := range arenas {
			require.False(t, arena.Base < other.Base+other.Bytes && other.Base < arena.Base+arena.Bytes, "%+v overlaps %+v", arena, other)
		}
		arenas = append(arenas, arena)
	}
	for i, arena := range arenas {
		// First and last byte of the whole arena, not only of what was asked for.
		ends := newComputeMemory(f, f.Allocate(2), 2, byte(i))
		run := ports.Run{Addr: ends.addr, Stride: 1, Piece: 1, Pieces: 2, Step: uint32(arena.Bytes - 1), Table: ports.NoTable}
		computeFinish(t, f, computeLaunch(t, f, false, ports.Runs{Runs: []ports.Run{run}}, arena.Base))
		got := make([]byte, 1)
		f.Read(arena.Base+arena.Bytes-1, got)
		require.Equal(t, ends.want[1], got[0])
		require.NoError(t, f.Compute.FreeArena(arena))
	}
}

func computeArenasConcurrently(t *testing.T, f ComputeFixture) {
	var group sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		group.Go(func() {
			for range 8 {
				arena, err := f.Compute.AllocArena(64 << 10)
				if err == nil {
					err = f.Compute.FreeArena(arena)
				}
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	group.Wait()
	require.NoError(t, errors.Join(errs...))
}

func computeGatherExact(t *testing.T, f ComputeFixture)  { computeExact(t, f, false) }
func computeScatterExact(t *testing.T, f ComputeFixture) { computeExact(t, f, true) }

// computeExact compares random copies with a byte-by-byte copy of shadows. All memory of both sides is compared, so a byte
// written between pieces, or beside them, is seen as well as one that is wrong.
func computeExact(t *testing.T, f ComputeFixture, scatter bool) {
	const appBytes, blockBytes = 32 << 10, 32 << 10
	arena, err := f.Compute.AllocArena(blockBytes)
	require.NoError(t, err)
	app := f.Allocate(appBytes)
	rapid.Check(t, func(r *rapid.T) {
		source := newComputeMemory(f, app, appBytes, rapid.Byte().Draw(r, "fill"))
		block := newComputeMemory(f, arena.Base, blockBytes, rapid.Byte().Draw(r, "block fill"))
		at := uint64(rapid.IntRange(0, 200).Draw(r, "block at"))
		runs := computeDrawRuns(r, app, appBytes, blockBytes-at)
		event := computeLaunch(r, f, scatter, runs, arena.Base+at)
		computeApply(runs, source, block, at, scatter)
		computeFinish(r, f, event)
		source.check(r, "application memory")
		block.check(r, "block")
	})
	require.NoError(t, f.Compute.FreeArena(arena))
}

// computeLarge has pieces and totals that an adapter may split over workers or blocks: one long piece at odd addresses, pages in irregular order, and
// very many tiny pieces.
func computeLarge(t *testing.T, f ComputeFixture) {
	const appBytes, blockBytes = 5 << 20, 4 << 20
	arena, err := f.Compute.AllocArena(blockBytes)
	require.NoError(t, err)
	addr := f.Allocate(appBytes)
	pages := make([]uint32, 256)
	for i := range pages {
		pages[i] = uint32(i*89+17) % uint32(len(pages)) // 89 and 256 share no divisor
	}
	runs := ports.Runs{Index: pages, Runs: []ports.Run{
		{Offset: 3, Addr: addr + 1, Piece: 2<<20 + 1, Pieces: 1, Table: ports.NoTable},
		{Offset: 2<<20 + 64, Addr: addr + 3<<20, Stride: 4096, Piece: 4096, Pieces: 256, Step: 4096, Table: 0},
		{Offset: 3<<20 + 128, Addr: addr + 4<<20 + 200_001, Stride: -3, Piece: 2, Pieces: 50_000, Step: 2, Table: ports.NoTable},
		{Offset: 3<<20 + 128 + 100_000, Addr: addr + 4<<20 + 200_005, Stride: 64, Piece: 64, Pieces: 8192, Step: 64, Table: ports.NoTable},
	}}
	for _, scatter := range []bool{false, true} {
		app := newComputeMemory(f, addr, appBytes, 1)
		block := newComputeMemory(f, arena.Base, blockBytes, 2)
		event := computeLaunch(t, f, scatter, runs, arena.Base)
		computeApply(runs, app, block, 0, scatter)
		computeFinish(t, f, event)
		app.check(t, "application memory")
		block.check(t, "block")
	}
	require.NoError(t, f.Compute.FreeArena(arena))
}

func computeRoundTrip(t *testing.T, f ComputeFixture) {
	const bytes = 1 << 20
	arena, err := f.Compute.AllocArena(bytes)
	require.NoError(t, err)
	from := newComputeMemory(f, f.Allocate(bytes), bytes, 1)
	to := newComputeMemory(f, f.Allocate(bytes), bytes, 2)
	whole := func(m *computeMemory) ports.Runs {
		return ports.Runs{Runs: []ports.Run{{Addr: m.addr, Stride: 4096, Piece: 4096, Pieces: bytes / 4096, Step: 4096, Table: ports.NoTable}}}
	}
	computeFinish(t, f, computeLaunch(t, f, false, whole(from), arena.Base))
	computeFinish(t, f, computeLaunch(t, f, true, whole(to), arena.Base))
	to.want = from.want
	to.check(t, "destination")
	from.check(t, "source")
}

func computeConcurrent(t *testing.T, f ComputeFixture) {
	const bytes = 64<<10 + 5
	contexts := f.Compute.Contexts()
	var events []ports.Event
	var blocks, apps []*computeMemory
	for i := range contexts {
		arena, err := f.Compute.AllocArena(bytes)
		require.NoError(t, err)
		app := newComputeMemory(f, f.Allocate(bytes), bytes, byte(2*i))
		block := newComputeMemory(f, arena.Base, bytes, byte(2*i+1))
		scatter := i%2 == 1
		runs := computeBytes(app.addr, bytes)
		events = append(events, computeLaunch(t, f, scatter, runs, arena.Base))
		computeApply(runs, app, block, 0, scatter)
		apps, blocks = append(apps, app), append(blocks, block)
	}
	for i := range events {
		computeFinish(t, f, events[len(events)-1-i])
	}
	for i := range events {
		apps[i].check(t, "application memory")
		blocks[i].check(t, "block")
	}
}

// computeBusy holds that a context is in use from its launch until its event answered final, not only while bytes move: so a launch beyond
// Contexts fails however fast the device is.
func computeBusy(t *testing.T, f ComputeFixture) {
	const bytes = 8192
	contexts := f.Compute.Contexts()
	app := newComputeMemory(f, f.Allocate(bytes), bytes, 1)
	arena, err := f.Compute.AllocArena(bytes * uint64(contexts+1))
	require.NoError(t, err)
	refused := newComputeMemory(f, arena.Base+bytes*uint64(contexts), bytes, 2)
	var events []ports.Event
	for i := range contexts {
		events = append(events, computeLaunch(t, f, false, computeBytes(app.addr, bytes), arena.Base+bytes*uint64(i)))
	}
	for range 3 {
		event, err := f.Compute.Gather(computeBytes(app.addr, bytes), refused.addr)
		require.ErrorIs(t, err, ports.ErrBusy)
		require.Nil(t, event)
		event, err = f.Compute.Scatter(computeBytes(app.addr, bytes), refused.addr)
		require.ErrorIs(t, err, ports.ErrBusy)
		require.Nil(t, event)
	}
	for i, event := range events {
		computeFinish(t, f, event)
		refused.check(t, "the block of a copy that was refused")
		app.check(t, "application memory")
		// Exactly one context is free now.
		again := computeLaunch(t, f, false, computeBytes(app.addr, bytes), arena.Base+bytes*uint64(i))
		_, err := f.Compute.Gather(computeBytes(app.addr, bytes), refused.addr)
		require.ErrorIs(t, err, ports.ErrBusy)
		events[i] = again
	}
	for _, event := range events {
		computeFinish(t, f, event)
	}
	refused.check(t, "the block of a copy that was refused")
}

func computeLatched(t *testing.T, f ComputeFixture) {
	const bytes = 512
	arena, err := f.Compute.AllocArena(bytes)
	require.NoError(t, err)
	app := f.Allocate(bytes)
	var seen []ports.Event
	for range 3*f.Compute.Contexts() + 70 {
		event := computeLaunch(t, f, false, computeBytes(app, bytes), arena.Base)
		// The contexts of all earlier events are in use again, or were.
		for _, earlier := range seen {
			require.Equal(t, ports.CopyDone, earlier.Status())
			require.NoError(t, earlier.Err())
		}
		require.NoError(t, event.Err())
		computeFinish(t, f, event)
		seen = append(seen, event)
	}
}

func computeClosed(t *testing.T, f ComputeFixture) {
	const bytes = 4096
	arena, err := f.Compute.AllocArena(bytes)
	require.NoError(t, err)
	app := newComputeMemory(f, f.Allocate(bytes), bytes, 1)
	block := newComputeMemory(f, arena.Base, bytes, 2)
	require.NoError(t, f.Compute.Close())
	for range f.Compute.Contexts() + 1 {
		event, err := f.Compute.Gather(computeBytes(app.addr, bytes), block.addr)
		require.ErrorIs(t, err, ports.ErrNotLaunched)
		require.Nil(t, event)
		event, err = f.Compute.Scatter(computeBytes(app.addr, bytes), block.addr)
		require.ErrorIs(t, err, ports.ErrNotLaunched)
		require.Nil(t, event)
	}
	f.Wait()
	app.check(t, "application memory")
	block.check(t, "block")
}

func computeCloseTwice(t *testing.T, f ComputeFixture) {
	require.NoError(t, f.Compute.Close())
	require.NoError(t, f.Compute.Close())
}

// computeLaunch starts a copy that must be accepted.
func computeLaunch(t require.TestingT, f ComputeFixture, scatter bool, runs ports.Runs, block uint64) ports.Event {
	launch := f.Compute.Gather
	if scatter {
		launch = f.Compute.Scatter
	}
	event, err := launch(runs, block)
	require.NoError(t, err)
	require.NotNil(t, event)
	return event
}

// computeFinish polls until the copy is done, and once more.
func computeFinish(t require.TestingT, f ComputeFixture, event ports.Event) {
	for event.Status() == ports.CopyPending {
		require.NoError(t, event.Err())
		f.Wait()
	}
	require.NoError(t, event.Err())
	require.Equal(t, ports.CopyDone, event.Status())
}

// computeBytes is one contiguous piece.
func computeBytes(addr uint64, bytes uint32) ports.Runs {
	return ports.Runs{Runs: []ports.Run{{Addr: addr, Piece: bytes, Pieces: 1, Step: bytes, Table: ports.NoTable}}}
}
