package host

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Allocate maps memory for an application, as an arena is: outside the Go heap, on a 2 MiB boundary, of huge pages where the system has them, zeroed.
// Free gives it back.
func Allocate(bytes uint64) ([]byte, error) {
	m, err := mapPages(bytes)
	if err != nil {
		return nil, fmt.Errorf("allocate: %w", err)
	}
	return m.slice()[:bytes], nil
}

// Free unmaps what Allocate returned, which must still begin where it began. Nothing may touch it any more.
func Free(memory []byte) error {
	if cap(memory) == 0 {
		return errors.New("free: no memory")
	}
	if err := mappingOf(memory).unmap(); err != nil {
		return fmt.Errorf("free: %w", err)
	}
	return nil
}

// pageBytes is a huge page of x86-64 and of ARM with 4 KiB pages.
const pageBytes = 2 << 20

// pagesFor rounds up to whole huge pages.
func pagesFor(bytes uint64) (uint64, error) {
	switch {
	case bytes == 0:
		return 0, errors.New("0 bytes, want at least 1")
	case bytes > math.MaxInt-2*pageBytes:
		return 0, fmt.Errorf("%d bytes do not fit the address space", bytes)
	}
	return (bytes + pageBytes - 1) &^ (pageBytes - 1), nil
}

// mapping is memory that was mapped for us, in whole huge pages.
type mapping struct {
	start unsafe.Pointer
	bytes uint64
}

// mapPages maps at least this many bytes at a multiple of pageBytes. A huge page can only be used where a whole aligned 2 MiB is mapped. They are the one big
// lever of copies between processes (nixl.md, 10).
func mapPages(bytes uint64) (mapping, error) {
	want, err := pagesFor(bytes)
	if err != nil {
		return mapping{}, err
	}
	// The kernel aligns to its small pages: map one huge page more, then give the ends back.
	start, err := unix.MmapPtr(-1, 0, nil, uintptr(want+pageBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return mapping{}, fmt.Errorf("map %d bytes: %w", want, err)
	}
	head := uint64(-uintptr(start) & (pageBytes - 1))
	m := mapping{start: unsafe.Add(start, head), bytes: want}
	tail := mapping{start: unsafe.Add(m.start, want), bytes: pageBytes - head}
	if err := errors.Join(mapping{start: start, bytes: head}.unmap(), tail.unmap()); err != nil {
		return mapping{}, err
	}
	adviseHugePages(m.slice())
	return m, nil
}

// mappingOf is the mapping that Allocate cut the slice from.
func mappingOf(memory []byte) mapping {
	return mapping{start: unsafe.Pointer(unsafe.SliceData(memory)), bytes: uint64(cap(memory))}
}

func (m mapping) base() uint64 { return uint64(uintptr(m.start)) }

func (m mapping) slice() []byte { return unsafe.Slice((*byte)(m.start), m.bytes) }

func (m mapping) unmap() error {
	if m.bytes == 0 {
		return nil
	}
	if err := unix.MunmapPtr(m.start, uintptr(m.bytes)); err != nil {
		return fmt.Errorf("unmap %d bytes at %#x: %w", m.bytes, m.base(), err)
	}
	return nil
}

// at makes a pointer of an address outside the Go heap. A plain conversion means the same, but go vet rejects it, as it can't know that
// the collector has no part in that memory.
func at(addr uint64) *byte { return *(**byte)(unsafe.Pointer(&addr)) }
