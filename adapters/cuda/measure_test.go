//go:build cuda

package cuda

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"gorgonia.org/cu"

	"github.com/kvbounce/kvbounce/ports"
)

// What is measured: copies of 72 MiB between pages in random order and a block, as the device's own clock sees them from one event before the plan's upload to one after the kernel, queued
// while the device is busy, so that the host's time is no part of it. Each repetition uses other pages and another block, so that no cache holds them. The figures are medians.
const (
	measuredBytes = 72 << 20
	poolBytes     = 8 << 30
	measuredSets  = 12
	repetitions   = 60
)

type measurement struct {
	b         *testing.B
	device    *Device
	compute   *Compute
	pool      *Memory
	arena     ports.Arena
	start     cu.Event
	reference *reference
	// delay is how long the device is kept busy while a repetition is queued, in nanoseconds.
	delay uint64
}

// fillBytes sets every byte of m.
func fillBytes(t testing.TB, m *Memory, b byte) {
	require.NoError(t, m.device.Do(func() error {
		if err := cu.MemsetD8(cu.DevicePtr(m.base), b, int64(m.bytes)); err != nil {
			return err
		}
		return settle()
	}))
}

func newMeasurement(b *testing.B, cfg Config) *measurement {
	d := openDevice(b)
	m := &measurement{b: b, device: d, pool: allocate(b, d, poolBytes), delay: 60_000}
	fillBytes(b, m.pool, 1)
	cfg.Contexts = 1
	m.compute = newCompute(b, cfg)
	m.arena = newArena(b, m.compute, measuredSets*measuredBytes)
	m.reference = newReference(b, d)
	require.NoError(b, d.Do(func() (err error) {
		if m.start, err = cu.MakeEvent(cu.DefaultEvent); err != nil {
			return err
		}
		// The adapter's events tell no time.
		p := m.compute.copiers[0]
		if err := cu.DestroyEvent(&p.event); err != nil {
			return err
		}
		p.event, err = cu.MakeEvent(cu.DefaultEvent)
		return err
	}))
	b.Cleanup(func() { require.NoError(b, d.Do(func() error { return cu.DestroyEvent(&m.start) })) })
	return m
}

func (m *measurement) block(set int) uint64 { return m.arena.Base + uint64(set)*measuredBytes }

// scattered is one run of pieces in random order over the whole pool.
func (m *measurement) scattered(size, pieces int, seed uint64) ports.Runs {
	r := rand.New(rand.NewPCG(seed, 2))
	slots := uint32(poolBytes / size)
	runs := ports.Runs{Runs: []ports.Run{{Addr: m.pool.base, Stride: int64(size), Piece: uint32(size), Pieces: uint32(pieces), Step: uint32(size)}}}
	taken := make(map[uint32]bool, pieces)
	for len(runs.Index) < pieces {
		if i := r.Uint32N(slots); !taken[i] {
			taken[i] = true
			runs.Index = append(runs.Index, i)
		}
	}
	return runs
}

// layers is a paged KV cache: the same pages in each layer.
func (m *measurement) layers(size, layers, pages int, seed uint64) ports.Runs {
	r := rand.New(rand.NewPCG(seed, 3))
	perLayer := poolBytes / layers / size
	var runs ports.Runs
	for _, i := range r.Perm(perLayer)[:pages] {
		runs.Index = append(runs.Index, uint32(i))
	}
	for layer := range layers {
		runs.Runs = append(runs.Runs, ports.Run{Offset: uint64(layer * pages * size), Addr: m.pool.base + uint64(layer*perLayer*size), Stride: int64(size),
			Piece: uint32(size), Pieces: uint32(pages), Step: uint32(size)})
	}
	return runs
}

// median runs f in turn for each set and returns the median of what it took on the device.
func (m *measurement) median(f func(set int, stream cu.Stream, end cu.Event) error) float64 {
	p := m.compute.copiers[0]
	var took []float64
	require.NoError(m.b, m.device.Do(func() error {
		delay, err := m.reference.module.Function("delay")
		if err != nil {
			return err
		}
		for i := range measuredSets + repetitions {
			if err := delay.Launch(1, 1, 1, 1, 1, 1, 0, p.stream, []unsafe.Pointer{unsafe.Pointer(&m.delay)}); err != nil {
				return err
			}
			if err := m.start.Record(p.stream); err != nil {
				return err
			}
			if err := f(i%measuredSets, p.stream, p.event); err != nil {
				return err
			}
			if err := p.event.Synchronize(); err != nil {
				return err
			}
			ms, err := m.start.Elapsed(p.event)
			if err != nil {
				return err
			}
			if i >= measuredSets {
				took = append(took, 1000*ms)
			}
		}
		return nil
	}))
	slices.Sort(took)
	return took[len(took)/2]
}

// memcpy copies the same bytes with the driver.
func (m *measurement) memcpy() float64 {
	return m.median(func(set int, stream cu.Stream, end cu.Event) error {
		from := m.pool.base + uint64(set)*(512<<20)
		if err := cu.MemcpyDtoDAsync(cu.DevicePtr(m.block(set)), cu.DevicePtr(from), measuredBytes, stream); err != nil {
			return err
		}
		return end.Record(stream)
	})
}

// copies is the adapter's own path from the prepared plan on; change may turn a plan into another with the same meaning.
func (m *measurement) copies(kernel unsafe.Pointer, sets []ports.Runs, change func(*copier, ports.Runs)) float64 {
	p := m.compute.copiers[0]
	return m.median(func(set int, _ cu.Stream, _ cu.Event) error {
		if err := p.prepare(m.device, sets[set], m.block(set), m.compute.maxBlocks); err != nil {
			return err
		}
		if change != nil {
			change(p, sets[set])
		}
		_, err := launch(p.order(m.compute, kernel, false))
		return err
	})
}

// indexUploaded copies the index table to the device ahead of the kernel, instead of letting the kernel read the host's.
func indexUploaded(p *copier, runs ports.Runs) {
	p.plan.index, p.upload = uint64(p.buffer.device), 4*uint64(len(runs.Index))
}

// oneBlockPerPiece is the plain kernel with its expanded plan in pinned memory.
func (m *measurement) oneBlockPerPiece(sets []ports.Runs, scatter bool) float64 {
	pieces := int(sets[0].Runs[0].Pieces)
	plans := make([]pinnedMemory, measuredSets)
	var function cu.Function
	require.NoError(m.b, m.device.Do(func() (err error) {
		for i := range plans {
			if plans[i], err = allocatePinned(uint64(24 * pieces)); err != nil {
				return err
			}
			words := unsafe.Slice((*uint64)(plans[i].host), 3*pieces)
			r := sets[i].Runs[0]
			for k := range pieces {
				words[k] = r.Addr + uint64(sets[i].Index[k])*uint64(r.Stride)
				words[pieces+k] = m.block(i) + uint64(k)*uint64(r.Step)
				words[2*pieces+k] = uint64(r.Piece)
			}
		}
		function, err = m.reference.module.Function("one_block_per_piece")
		return err
	}))
	defer func() {
		require.NoError(m.b, m.device.Do(func() error {
			for _, p := range plans {
				if err := p.free(); err != nil {
					return err
				}
			}
			return nil
		}))
	}()
	return m.median(func(set int, stream cu.Stream, end cu.Event) error {
		from, to := plans[set].device, plans[set].device+uint64(8*pieces)
		if scatter {
			from, to = to, from
		}
		bytes := plans[set].device + uint64(16*pieces)
		if err := function.Launch(pieces, 1, 1, 256, 1, 1, 0, stream, []unsafe.Pointer{unsafe.Pointer(&from), unsafe.Pointer(&to), unsafe.Pointer(&bytes)}); err != nil {
			return err
		}
		return end.Record(stream)
	})
}

// BenchmarkCopies prints the table of docs/gpu.md. Its b.N is not used: run it with -benchtime=1x.
func BenchmarkCopies(b *testing.B) {
	m := newMeasurement(b, Config{})
	fmt.Printf("\n%-14s %7s %7s %8s %7s %16s %16s\n", "72 MiB in", "memcpy", "gather", "scatter", "ratio", "index uploaded", "block for each")
	for _, size := range []int{256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10} {
		pieces := measuredBytes / size
		sets := make([]ports.Runs, measuredSets)
		for i := range sets {
			sets[i] = m.scattered(size, pieces, uint64(i))
		}
		memcpy := m.memcpy()
		gather, scatter := m.copies(m.compute.gather, sets, nil), m.copies(m.compute.scatter, sets, nil)
		uploaded := m.copies(m.compute.gather, sets, indexUploaded)
		memcpy = (memcpy + m.memcpy()) / 2
		fmt.Printf("%7d x %4s %7.1f %7.1f %8.1f %7.2f %16.1f %7.1f %8.1f\n", pieces, sizeName(size), memcpy, gather, scatter, max(gather, scatter)/memcpy, uploaded,
			m.oneBlockPerPiece(sets, false), m.oneBlockPerPiece(sets, true))
	}
	for _, l := range []struct{ layers, pages int }{{36, 512}, {64, 288}, {96, 192}, {288, 64}} {
		sets := make([]ports.Runs, measuredSets)
		for i := range sets {
			sets[i] = m.layers(4096, l.layers, l.pages, uint64(i))
		}
		memcpy, gather, scatter := m.memcpy(), m.copies(m.compute.gather, sets, nil), m.copies(m.compute.scatter, sets, nil)
		fmt.Printf("%d layers x %d pages of 4 KiB: memcpy %.1f, gather %.1f, scatter %.1f, ratio %.2f\n", l.layers, l.pages, memcpy, gather, scatter, max(gather, scatter)/memcpy)
		if l.layers == 36 {
			m.delay = 0
			memcpy, gather, scatter = m.memcpy(), m.copies(m.compute.gather, sets, nil), m.copies(m.compute.scatter, sets, nil)
			fmt.Printf("  the same on an idle device, the host's calls included: memcpy %.1f, gather %.1f, scatter %.1f, ratio %.2f\n", memcpy, gather, scatter, max(gather, scatter)/memcpy)
			m.delay = 60_000
		}
	}
}

// BenchmarkBlocks shows what the cap of the grid costs.
func BenchmarkBlocks(b *testing.B) {
	m := newMeasurement(b, Config{})
	sets := make([]ports.Runs, measuredSets)
	for i := range sets {
		sets[i] = m.scattered(4096, measuredBytes/4096, uint64(i))
	}
	for _, blocks := range []int{16, 33, 66, 132, 264, 396, 528, 660, 792, 1056, 1584, 2304} {
		m.compute.maxBlocks = blocks
		fmt.Printf("%5d blocks: gather %.1f, scatter %.1f\n", blocks, m.copies(m.compute.gather, sets, nil), m.copies(m.compute.scatter, sets, nil))
	}
}

// BenchmarkCalls times the port's calls as the reactor sees them: Gather itself, and from its call until Status has answered done.
func BenchmarkCalls(b *testing.B) {
	m := newMeasurement(b, Config{})
	for _, size := range []int{4096, 1 << 20, measuredBytes} {
		runs := m.scattered(4096, size/4096, 1)
		var call, all []time.Duration
		for range 300 {
			began := time.Now()
			event, err := m.compute.Gather(runs, m.block(0))
			call = append(call, time.Since(began))
			require.NoError(b, err)
			for event.Status() == ports.CopyPending {
			}
			all = append(all, time.Since(began))
		}
		fmt.Printf("gather of %d pieces of 4 KiB: the call %v, until seen done %v\n", size/4096, middle(call), middle(all))
	}
}

// BenchmarkBesideModel runs copies of 72 MiB one after the other beside kernels that write 1 GiB each, and shows what each costs the other, by the cap of the grid and the stream's priority.
func BenchmarkBesideModel(b *testing.B) {
	const modelBytes, kernels = 1 << 30, 40
	for _, high := range []bool{false, true} {
		m := newMeasurement(b, Config{HighPriority: high})
		r := m.reference
		model := allocate(b, m.device, modelBytes)
		runs := m.scattered(4096, measuredBytes/4096, 1)
		var begin, end cu.Event
		require.NoError(b, m.device.Do(func() (err error) {
			if begin, err = cu.MakeEvent(cu.DefaultEvent); err != nil {
				return err
			}
			end, err = cu.MakeEvent(cu.DefaultEvent)
			return err
		}))
		for _, blocks := range []int{0, 792, 264, 132, 66, 33, 16} { // 0: no copies
			require.NoError(b, m.device.Do(func() error { return begin.Record(r.stream) }))
			for range kernels {
				r.launch("pattern", 2048, 256, model.base, modelBytes, 1)
			}
			require.NoError(b, m.device.Do(func() error { return end.Record(r.stream) }))
			ended := m.device.Ready(handle(end))
			var copies []time.Duration
			for blocks > 0 && ended.Status() == ports.CopyPending {
				m.compute.maxBlocks = blocks
				began := time.Now()
				event, err := m.compute.Gather(runs, m.block(0))
				require.NoError(b, err)
				require.Equal(b, ports.CopyDone, wait(event))
				copies = append(copies, time.Since(began))
			}
			r.wait()
			var ms float64
			require.NoError(b, m.device.Do(func() (err error) { ms, err = begin.Elapsed(end); return err }))
			if blocks == 0 {
				fmt.Printf("high priority %v: the model's kernel alone %.0f us\n", high, 1000*ms/kernels)
				continue
			}
			fmt.Printf("high priority %v, at most %d blocks: the model's kernel %.0f us, a copy %v\n", high, blocks, 1000*ms/kernels, middle(copies))
		}
		require.NoError(b, m.device.Do(func() error {
			require.NoError(b, cu.DestroyEvent(&begin))
			return cu.DestroyEvent(&end)
		}))
	}
}

func middle[T cmp.Ordered](s []T) T {
	slices.Sort(s)
	return s[len(s)/2]
}

func sizeName(bytes int) string {
	if bytes < 1024 {
		return strconv.Itoa(bytes) + " B"
	}
	return strconv.Itoa(bytes/1024) + " K"
}
