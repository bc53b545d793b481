//go:build cuda

package cuda

import (
	"errors"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/kvbounce/kvbounce/ports"
)

// copier is a copy context: a stream, an event, and the plan of the copy that occupies it.
type copier struct {
	stream cu.Stream
	event  cu.Event
	plan   *launchPlan // an allocation of its own: it is passed to C
	buffer planBuffer
	blocks int
	upload uint64 // bytes of the buffer that are copied to the device ahead of the kernel

	ended bool  // the copy's end is known, though its event was not asked
	err   error // then: what is wrong with it
}

// newCopier makes a copier in the current context.
func newCopier(priority int) (*copier, error) {
	p := &copier{plan: new(launchPlan)}
	var err error
	// Non-blocking: such a stream does not wait for the default one, which may be a model's.
	if p.stream, err = cu.MakeStreamWithPriority(priority, cu.NonBlocking); err != nil {
		return nil, named("cuStreamCreateWithPriority", err)
	}
	if p.event, err = cu.MakeEvent(cu.DisableTiming); err != nil {
		return nil, errors.Join(named("cuEventCreate", err), named("cuStreamDestroy", p.stream.Destroy()))
	}
	if err := p.buffer.grow(initialBuffer); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// prepare writes the plan of a copy. What does not fit the kernel's parameters it reads from the host's memory: a copy to the device ahead of it takes 8 µs more (gpu.md). Only so many runs
// that it would search them there are copied.
func (p *copier) prepare(d *Device, runs ports.Runs, block uint64, maxBlocks int) (err error) {
	p.ended, p.err, p.upload = false, nil, 0
	plan := p.plan
	var bytes uint64
	if plan.units, bytes, err = countUnits(runs.Runs); err != nil || plan.units == 0 {
		return err
	}
	plan.block, plan.count = block, uint32(len(runs.Runs))
	plan.batch, p.blocks = spread(plan.units, bytes, maxBlocks)

	firsts, entries, index, memory := lay(len(runs.Runs), len(runs.Index))
	if needed := 4 * uint64(memory); needed > p.buffer.bytes {
		if err := d.Do(func() error { return p.buffer.grow(needed) }); err != nil {
			return err
		}
	}
	base := p.buffer.pinned.device
	if firsts.inMemory {
		base, p.upload = uint64(p.buffer.device), 4*uint64(memory)
	}
	at := func(s spot) (host unsafe.Pointer, address uint64) {
		if s.inMemory {
			return unsafe.Add(p.buffer.pinned.host, 4*s.word), base + 4*uint64(s.word)
		}
		return unsafe.Add(unsafe.Pointer(&plan.words), 4*s.word), 0
	}
	var toFirsts, toEntries, toIndex unsafe.Pointer
	toFirsts, plan.firsts = at(firsts)
	toEntries, plan.entries = at(entries)
	toIndex, plan.index = at(index)
	plan.indexAt = uint32(index.word)
	fill(unsafe.Slice((*uint32)(toFirsts), len(runs.Runs)), unsafe.Slice((*entry)(toEntries), len(runs.Runs)), runs.Runs)
	copy(unsafe.Slice((*uint32)(toIndex), len(runs.Index)), runs.Index)
	return nil
}

func (p *copier) order(c *Compute, kernel unsafe.Pointer, flush bool) order {
	return order{
		context: c.context, stream: handle(p.stream), event: handle(p.event), kernel: kernel,
		blocks: p.blocks, plan: p.plan, to: uint64(p.buffer.device), from: p.buffer.pinned.host, upload: p.upload, flush: flush,
	}
}

// close waits for the copy, and gives everything back. The error is the copy's, which then has not ended for certain.
func (p *copier) close() error {
	p.err = named("cuStreamSynchronize", p.stream.Synchronize())
	p.ended = true
	if p.err != nil {
		return p.err // CUDA answers the same to all that follows
	}
	return errors.Join(p.buffer.free(), named("cuEventDestroy", cu.DestroyEvent(&p.event)), named("cuStreamDestroy", p.stream.Destroy()))
}

// initialBuffer holds the plan of 18432 pieces of which no two have a rule in common. A larger plan makes the buffer grow.
const initialBuffer = 1 << 20

// planBuffer is memory for a plan on both sides. The device reads what is on its own side, or through pinned.device the host's.
type planBuffer struct {
	bytes  uint64
	pinned pinnedMemory
	device cu.DevicePtr
	old    []planBuffer // outgrown: to free pinned memory can mean to wait for the device
}

// grow replaces the buffer by one of at least this many bytes, in the current context. No copy may use it.
func (b *planBuffer) grow(bytes uint64) error {
	size := uint64(initialBuffer)
	for size < bytes {
		size *= 2
	}
	next := planBuffer{bytes: size, old: b.old}
	var err error
	if next.pinned, err = allocatePinned(size); err != nil {
		return err
	}
	if next.device, err = cu.MemAlloc(int64(size)); err != nil {
		return errors.Join(named("cuMemAlloc", err), next.pinned.free())
	}
	if b.bytes > 0 {
		next.old = append(next.old, planBuffer{bytes: b.bytes, pinned: b.pinned, device: b.device})
	}
	*b = next
	return nil
}

func (b *planBuffer) free() error {
	var errs []error
	for _, old := range append(b.old, *b) {
		if old.bytes > 0 {
			errs = append(errs, old.pinned.free(), named("cuMemFree", cu.MemFree(old.device)))
		}
	}
	return errors.Join(errs...)
}
