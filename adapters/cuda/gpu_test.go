//go:build cuda

package cuda

import (
	_ "embed"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"gorgonia.org/cu"

	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/ports/porttest"
)

//go:embed testdata/reference.ptx
var referencePTX string

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openDevice(t testing.TB) *Device {
	d, err := OpenDevice(0)
	require.NoError(t, err)
	return d
}

func allocate(t testing.TB, d *Device, bytes uint64) *Memory {
	m, err := d.Allocate(bytes)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Free()) })
	return m
}

func newCompute(t testing.TB, cfg Config) *Compute {
	c, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func newArena(t testing.TB, c *Compute, bytes uint64) ports.Arena {
	a, err := c.AllocArena(bytes)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.FreeArena(a)) })
	return a
}

func wait(e ports.Event) ports.CopyStatus {
	for e.Status() == ports.CopyPending {
		runtime.Gosched()
	}
	return e.Status()
}

func TestContract(t *testing.T) {
	for name, cfg := range map[string]Config{
		"one context":             {Contexts: 1},
		"8 contexts":              {Contexts: 8},
		"one block, and priority": {Contexts: 2, MaxBlocks: 1, HighPriority: true},
	} {
		t.Run(name, func(t *testing.T) {
			porttest.GpuCompute(t, func(t *testing.T) porttest.ComputeFixture {
				d := openDevice(t)
				c, err := New(cfg)
				require.NoError(t, err)
				return porttest.ComputeFixture{
					Compute:  c,
					Place:    d.Place(),
					Allocate: func(bytes uint64) uint64 { return allocate(t, d, bytes).base },
					Write:    func(addr uint64, from []byte) { require.NoError(t, d.Write(addr, from)) },
					Read:     func(addr uint64, to []byte) { require.NoError(t, d.Read(addr, to)) },
					Wait:     runtime.Gosched,
				}
			})
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	for want, cfg := range map[string]Config{
		"Contexts is 0":            {},
		"MaxBlocks is -1":          {Contexts: 1, MaxBlocks: -1},
		"device 99 does not exist": {Contexts: 1, Device: 99},
		"device -1 does not exist": {Contexts: 1, Device: -1},
	} {
		_, err := New(cfg)
		require.ErrorContains(t, err, want)
	}
}

// layout is at most that many runs over random places on both sides: pieces from 1 byte to 1 MiB, alignments from 1 to 16, strides of both signs, index tables. With share, they are
// short and have one table in common.
func layout(r *rand.Rand, most int, share bool, app, appBytes, blockBytes uint64) ports.Runs {
	var runs ports.Runs
	var inApp, inBlock uint64
	for len(runs.Runs) < most {
		align := uint64(1) << r.IntN(5)
		up := func(x uint64) uint64 { return (x + align - 1) &^ (align - 1) }
		piece := up(1 + uint64(r.IntN(1<<(1+r.IntN(20)))))
		pieces := 1 + uint64(r.IntN(1+min(2000, 1<<18/int(piece))))
		gap, spare := uint64(r.IntN(3))*align, uint64(r.IntN(3))
		if share {
			piece, pieces = min(piece, 8<<10), min(pieces, 8)
			if table := uint64(len(runs.Index)); table > 0 {
				pieces = min(pieces, table)
				spare = table - pieces
			}
		}
		skew := uint64(0) // both sides aligned alike, or not
		if r.IntN(3) == 0 {
			skew = uint64(r.IntN(16))
		}
		step, stride := piece+gap, piece+align*uint64(r.IntN(5))
		inApp, inBlock = up(inApp)+skew, up(inBlock)
		span := (pieces+spare-1)*stride + piece
		if inApp+span > appBytes || inBlock+pieces*step > blockBytes {
			return runs
		}
		run := ports.Run{Offset: inBlock, Addr: app + inApp, Stride: int64(stride), Piece: uint32(piece), Pieces: uint32(pieces), Step: uint32(step), Table: ports.NoTable}
		last := pieces - 1
		if r.IntN(2) == 0 {
			last += spare
			if run.Table = 0; !share || len(runs.Index) == 0 {
				run.Table = uint32(len(runs.Index))
				for _, i := range r.Perm(int(pieces + spare)) {
					runs.Index = append(runs.Index, uint32(i))
				}
			}
		}
		if r.IntN(2) == 0 {
			run.Addr += last * stride
			run.Stride = -run.Stride
		}
		runs.Runs = append(runs.Runs, run)
		inApp, inBlock = inApp+span, inBlock+pieces*step
	}
	return runs
}

// byHand is the definition of a copy.
func byHand(runs ports.Runs, app, block []byte, appAddr uint64, scatter bool) {
	for _, r := range runs.Runs {
		for k := range uint64(r.Pieces) {
			factor := k
			if r.Table != ports.NoTable {
				factor = uint64(runs.Index[uint64(r.Table)+k])
			}
			a := app[r.Addr+factor*uint64(r.Stride)-appAddr:][:r.Piece]
			b := block[r.Offset+k*uint64(r.Step):][:r.Piece]
			if scatter {
				a, b = b, a
			}
			copy(b, a)
		}
	}
}

func TestRandomLayoutsAreExact(t *testing.T) {
	const bytes = 24 << 20
	d := openDevice(t)
	app := allocate(t, d, bytes)
	c := newCompute(t, Config{Contexts: 1})
	arena := newArena(t, c, bytes)
	type form struct{ entriesInMemory, indexInMemory bool }
	forms := make(map[form]int)
	for seed := range uint64(24) {
		r := rand.New(rand.NewPCG(seed, 1))
		runs := layout(r, []int{5, 80, 1000}[seed%3], seed%6 == 5, app.base, bytes, bytes)
		_, entries, index, _ := lay(len(runs.Runs), len(runs.Index))
		forms[form{entries.inMemory, index.inMemory}]++
		for _, scatter := range []bool{false, true} {
			wantApp, wantBlock := make([]byte, bytes), make([]byte, bytes)
			for i := range wantApp {
				wantApp[i], wantBlock[i] = byte(r.Uint32()), byte(r.Uint32())
			}
			require.NoError(t, d.Write(app.base, wantApp))
			require.NoError(t, d.Write(arena.Base, wantBlock))
			launch := c.Gather
			if scatter {
				launch = c.Scatter
			}
			event, err := launch(runs, arena.Base)
			require.NoError(t, err)
			byHand(runs, wantApp, wantBlock, app.base, scatter)
			require.Equal(t, ports.CopyDone, wait(event))
			got := make([]byte, bytes)
			for _, side := range []struct {
				addr uint64
				want []byte
			}{{app.base, wantApp}, {arena.Base, wantBlock}} {
				require.NoError(t, d.Read(side.addr, got))
				if !slices.Equal(side.want, got) {
					i := 0
					for got[i] == side.want[i] {
						i++
					}
					t.Fatalf("seed %d, scatter %v: byte %d of the memory at %#x is %#x, want %#x", seed, scatter, i, side.addr, got[i], side.want[i])
				}
			}
		}
	}
	require.Len(t, forms, 4, "every way for a plan to travel: %v; and see TestHundredThousandRuns", forms)
}

// A plan beyond the first buffer makes it grow, also while other copies run.
func TestHundredThousandRuns(t *testing.T) {
	const pieces, bytes = 100_000, 100_000 * 48
	d := openDevice(t)
	app := allocate(t, d, bytes)
	c := newCompute(t, Config{Contexts: 2})
	arena := newArena(t, c, bytes)
	content := make([]byte, bytes)
	for i := range content {
		content[i] = byte(i*7 + i>>8*13 + i>>16)
	}
	require.NoError(t, d.Write(app.base, content))
	var runs ports.Runs
	want := make([]byte, pieces*32)
	for i, at := range rand.New(rand.NewPCG(1, 1)).Perm(pieces) {
		runs.Runs = append(runs.Runs, ports.Run{Offset: uint64(i * 32), Addr: app.base + uint64(at*48), Piece: 32, Pieces: 1, Step: 32, Table: ports.NoTable})
		copy(want[i*32:], content[at*48:][:32])
	}
	small, err := c.Gather(ports.Runs{Runs: runs.Runs[:1]}, arena.Base+pieces*32)
	require.NoError(t, err)
	large, err := c.Gather(runs, arena.Base)
	require.NoError(t, err)
	require.Equal(t, ports.CopyDone, wait(small))
	require.Equal(t, ports.CopyDone, wait(large))
	got := make([]byte, len(want))
	require.NoError(t, d.Read(arena.Base, got))
	require.True(t, slices.Equal(want, got))
}

// reference is the kernels of testdata, for one test.
type reference struct {
	t      testing.TB
	device *Device
	module cu.Module
	stream cu.Stream
}

func newReference(t testing.TB, d *Device) *reference {
	r := &reference{t: t, device: d}
	require.NoError(t, d.Do(func() (err error) {
		if r.module, err = cu.LoadData(referencePTX); err != nil {
			return err
		}
		r.stream, err = cu.MakeStream(cu.NonBlocking)
		return err
	}))
	t.Cleanup(func() {
		require.NoError(t, d.Do(func() error {
			require.NoError(t, r.stream.Destroy())
			return r.module.Unload()
		}))
	})
	return r
}

func (r *reference) launch(name string, blocks, threads int, arguments ...uint64) {
	require.NoError(r.t, r.device.Do(func() error {
		f, err := r.module.Function(name)
		if err != nil {
			return err
		}
		var parameters []unsafe.Pointer
		for i := range arguments {
			parameters = append(parameters, unsafe.Pointer(&arguments[i]))
		}
		return f.Launch(blocks, 1, 1, threads, 1, 1, 0, r.stream, parameters)
	}))
}

func (r *reference) wait() { require.NoError(r.t, r.device.Do(r.stream.Synchronize)) }

func (r *reference) pattern(addr, bytes, salt uint64) {
	r.launch("pattern", 2048, 256, addr, bytes, salt)
	r.wait()
}

// differences counts the bytes that are not the pattern's.
func (r *reference) differences(addr, bytes, salt uint64) uint64 {
	count := allocate(r.t, r.device, 8)
	fillBytes(r.t, count, 0)
	r.launch("differences", 2048, 256, addr, bytes, salt, count.base)
	r.wait()
	var b [8]byte
	require.NoError(r.t, count.Read(0, b[:]))
	return *(*uint64)(unsafe.Pointer(&b))
}

// Offsets, sizes and numbers of pieces beyond 2^31 bytes.
func TestCopiesAbove2GiB(t *testing.T) {
	const bytes = 3<<30 + 4096 + 5
	d := openDevice(t)
	app := allocate(t, d, 2*bytes)
	back := allocate(t, d, bytes)
	c := newCompute(t, Config{Contexts: 1})
	arena := newArena(t, c, bytes)
	reference := newReference(t, d)
	for name, run := range map[string]ports.Run{
		"one piece":             {Addr: app.base, Piece: bytes, Pieces: 1, Step: 1, Stride: 1, Table: ports.NoTable},
		"three pieces":          {Addr: app.base, Piece: bytes / 3, Pieces: 3, Step: bytes / 3, Stride: bytes / 3, Table: ports.NoTable},
		"millions of 16 bytes":  {Addr: app.base, Piece: 16, Pieces: bytes / 16, Step: 16, Stride: 16, Table: ports.NoTable},
		"a piece of 3 GiB, odd": {Addr: app.base + 3, Piece: bytes - 3, Pieces: 1, Step: 1, Stride: 1, Table: ports.NoTable},
	} {
		length := uint64(run.Piece) * uint64(run.Pieces)
		reference.pattern(run.Addr, length, 7)
		fillBytes(t, back, 0)
		event, err := c.Gather(ports.Runs{Runs: []ports.Run{run}}, arena.Base)
		require.NoError(t, err)
		require.Equal(t, ports.CopyDone, wait(event), name)
		require.Zero(t, reference.differences(arena.Base, length, 7), name)
		run.Addr = back.base
		event, err = c.Scatter(ports.Runs{Runs: []ports.Run{run}}, arena.Base)
		require.NoError(t, err)
		require.Equal(t, ports.CopyDone, wait(event), name)
		require.Zero(t, reference.differences(back.base, length, 7), name)
	}
}

// spin fills the device with a kernel that runs until the returned function is called, which waits for its end.
func (r *reference) spin() (stop func()) {
	var flag pinnedMemory
	var blocks int
	require.NoError(r.t, r.device.Do(func() (err error) {
		if blocks, err = r.device.device.Attribute(cu.MultiprocessorCount); err != nil {
			return err
		}
		blocks *= 2 // of 1024 threads: all that fit
		flag, err = allocatePinned(8)
		return err
	}))
	words := unsafe.Slice((*uint32)(flag.host), 2)
	words[0], words[1] = 0, 0
	r.launch("spin", blocks, 1024, flag.device, flag.device+4)
	started := (*uint32)(unsafe.Add(flag.host, 4))
	for atomic.LoadUint32(started) != uint32(blocks) {
		runtime.Gosched()
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		atomic.StoreUint32((*uint32)(flag.host), 1)
		r.wait()
		require.NoError(r.t, r.device.Do(flag.free))
	}
	r.t.Cleanup(stop) // a failed test must not leave the device busy
	return stop
}

// While nothing can run on the device, launches return, events stay pending, and contexts stay taken.
func TestBlockedCopies(t *testing.T) {
	const bytes = 1 << 20
	d := openDevice(t)
	app := allocate(t, d, bytes)
	c := newCompute(t, Config{Contexts: 2, HighPriority: true})
	arena := newArena(t, c, 2*bytes)
	reference := newReference(t, d)
	reference.pattern(app.base, bytes, 1)
	reference.pattern(arena.Base, bytes, 2)
	runs := ports.Runs{Runs: []ports.Run{{Addr: app.base, Piece: bytes, Pieces: 1, Step: 1, Table: ports.NoTable}}}

	stop := reference.spin()
	gather, err := c.Gather(runs, arena.Base+bytes)
	require.NoError(t, err)
	scatter, err := c.Scatter(runs, arena.Base) // order is not promised: the two touch the same pages, so only the scatter's result is looked at
	require.NoError(t, err)
	for range 2000 {
		require.Equal(t, ports.CopyPending, gather.Status())
		require.Equal(t, ports.CopyPending, scatter.Status())
		_, err := c.Gather(runs, arena.Base)
		require.ErrorIs(t, err, ports.ErrBusy)
	}
	stop()
	require.Equal(t, ports.CopyDone, wait(gather))
	require.Equal(t, ports.CopyDone, wait(scatter))
	require.Zero(t, reference.differences(app.base, bytes, 2))
}

// Where the device does not order a NIC's writes, a scatter flushes them first. It may do so everywhere.
func TestScatterAfterFlush(t *testing.T) {
	const bytes = 1 << 20
	d := openDevice(t)
	app := allocate(t, d, bytes)
	c := newCompute(t, Config{Contexts: 1})
	t.Log("this device needs the flush:", c.flush)
	c.flush = true
	arena := newArena(t, c, bytes)
	reference := newReference(t, d)
	reference.pattern(arena.Base, bytes, 3)
	event, err := c.Scatter(ports.Runs{Runs: []ports.Run{{Addr: app.base, Piece: bytes, Pieces: 1, Step: 1, Table: ports.NoTable}}}, arena.Base)
	require.NoError(t, err)
	require.Equal(t, ports.CopyDone, wait(event))
	require.Zero(t, reference.differences(app.base, bytes, 3))
}

// Close waits for a copy that is under way.
func TestCloseWaits(t *testing.T) {
	const bytes = 1 << 20
	d := openDevice(t)
	app := allocate(t, d, bytes)
	c := newCompute(t, Config{Contexts: 1})
	arena := newArena(t, c, bytes)
	reference := newReference(t, d)
	reference.pattern(app.base, bytes, 1)
	stop := reference.spin()
	event, err := c.Gather(ports.Runs{Runs: []ports.Run{{Addr: app.base, Piece: bytes, Pieces: 1, Step: 1, Table: ports.NoTable}}}, arena.Base)
	require.NoError(t, err)
	require.Equal(t, ports.CopyPending, event.Status())
	closed := make(chan error)
	go func() { closed <- c.Close() }()
	stop()
	require.NoError(t, <-closed)
	require.Equal(t, ports.CopyDone, event.Status())
	require.Zero(t, reference.differences(arena.Base, bytes, 1))
}

// A caller's event is pending until the work before it ended.
func TestReadyEvent(t *testing.T) {
	d := openDevice(t)
	reference := newReference(t, d)
	stop := reference.spin()
	var fence cu.Event
	require.NoError(t, d.Do(func() (err error) {
		if fence, err = cu.MakeEvent(cu.DisableTiming); err != nil {
			return err
		}
		return fence.Record(reference.stream)
	}))
	ready := d.Ready(handle(fence))
	for range 2000 {
		require.Equal(t, ports.CopyPending, ready.Status())
	}
	stop()
	require.Equal(t, ports.CopyDone, wait(ready))
	require.NoError(t, d.Do(func() error { return cu.DestroyEvent(&fence) }))
	require.Equal(t, ports.CopyDone, ready.Status(), "it is not asked again")
	require.NoError(t, ready.Err())
}

func TestLaunchesDoNotAllocate(t *testing.T) {
	d := openDevice(t)
	app := allocate(t, d, 1<<20)
	c := newCompute(t, Config{Contexts: 1})
	arena := newArena(t, c, 1<<20)
	runs := ports.Runs{Index: make([]uint32, 300)}
	for i := range 300 {
		runs.Index[i] = uint32(i)
		runs.Runs = append(runs.Runs, ports.Run{Offset: uint64(i * 1024), Addr: app.base, Stride: 1024, Piece: 1024, Pieces: 1, Step: 1024, Table: uint32(i)})
	}
	for _, n := range []int{1, 300} {
		some := ports.Runs{Runs: runs.Runs[:n], Index: runs.Index}
		allocations := testing.AllocsPerRun(200, func() {
			event, err := c.Gather(some, arena.Base)
			if err != nil || wait(event) != ports.CopyDone {
				t.Fail()
			}
		})
		require.Zero(t, allocations, "events are allocated 64 at a time")
	}
}

const faultyChild = "KVBOUNCE_TEST_FAULTY_CHILD"

// A copy that touches memory that is not there ends the device's context for the process, so that it is done in one of its own.
func TestFault(t *testing.T) {
	if os.Getenv(faultyChild) != "" {
		fault(t)
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestFault$", "-test.v")
	child.Env = append(os.Environ(), faultyChild+"=1")
	output, err := child.CombinedOutput()
	require.NoError(t, err, string(output))
	require.Contains(t, string(output), "the fault was seen")
}

func fault(t *testing.T) {
	const bytes = 4096
	d, err := OpenDevice(0)
	require.NoError(t, err)
	app, err := d.Allocate(bytes)
	require.NoError(t, err)
	c, err := New(Config{Contexts: 4})
	require.NoError(t, err)
	arena, err := c.AllocArena(8 * bytes)
	require.NoError(t, err)
	page := func(addr uint64) ports.Runs {
		return ports.Runs{Runs: []ports.Run{{Addr: addr, Piece: bytes, Pieces: 1, Step: 1, Table: ports.NoTable}}}
	}
	done, err := c.Gather(page(app.base), arena.Base)
	require.NoError(t, err)
	require.Equal(t, ports.CopyDone, wait(done))
	bad, err := c.Gather(page(1<<46), arena.Base)
	require.NoError(t, err)
	other, otherErr := c.Gather(page(app.base), arena.Base+bytes)

	require.Equal(t, ports.CopyFailed, wait(bad))
	var e *Error
	require.ErrorAs(t, bad.Err(), &e)
	require.Equal(t, "CUDA_ERROR_ILLEGAL_ADDRESS", e.Name)
	require.Equal(t, 700, e.Code)
	if otherErr == nil {
		wait(other) // it may have ended before, but not be pending for ever
	} else {
		require.NotErrorIs(t, otherErr, ports.ErrBusy)
	}
	require.Equal(t, ports.CopyDone, done.Status())
	_, err = c.Scatter(page(app.base), arena.Base)
	require.ErrorIs(t, err, ports.ErrNotLaunched)
	require.ErrorContains(t, err, "CUDA_ERROR_ILLEGAL_ADDRESS")
	_, err = c.AllocArena(bytes)
	require.ErrorContains(t, err, "CUDA_ERROR_ILLEGAL_ADDRESS")
	require.ErrorContains(t, c.Close(), "CUDA_ERROR_ILLEGAL_ADDRESS")
	require.Equal(t, ports.CopyFailed, bad.Status())
	_, err = c.Scatter(page(app.base), arena.Base)
	require.ErrorIs(t, err, ports.ErrNotLaunched)
	t.Log("the fault was seen")
}
