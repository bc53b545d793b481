package sim

import (
	"fmt"
	"sync"

	"github.com/kvbounce/kvbounce/ports"
)

// memory is what addresses mean.
type memory interface {
	// allocate gives zeroed memory at a multiple of 4096.
	allocate(bytes uint64, place ports.Place) (addr uint64, err error)
	free(addr uint64) error
	// view is the bytes at an address. It fails where the memory can tell that they are not all of one allocation.
	view(addr, bytes uint64) ([]byte, error)
	// placed fails where the memory can tell that a descriptor is not of one allocation in its place.
	placed(d ports.Descriptor) error
}

// Allocate gives zeroed memory for an application, at a multiple of 4096. In a virtual world no address is ever given twice, and a gap follows each
// allocation. In real time only host memory can be had; it stays where it is until Free.
func (w *World) Allocate(bytes uint64, place ports.Place) (addr uint64, err error) {
	addr, err = w.memory.allocate(bytes, place)
	if err != nil {
		return 0, fmt.Errorf("allocate %d bytes of %s: %w", bytes, place, err)
	}
	return addr, nil
}

// Free takes back what Allocate gave at this address. In a virtual world later accesses fail, and are not otherwise noticed.
func (w *World) Free(addr uint64) error { return w.memory.free(addr) }

// View is the bytes at an address, to be read or written by the application that owns them. In real time the World can't check the
// address.
func (w *World) View(addr, bytes uint64) ([]byte, error) { return w.memory.view(addr, bytes) }

// spaceBits is how many bits of an address are the offset in an allocation. The bits above are the allocation's number, from 1: so no address is 0, an
// allocation may have 64 GiB, and what belongs to an address is found at once.
const spaceBits = 36

// AllocationOf is the number, from 1, of the Allocate that an address of a virtual world belongs to, whether or not that was made.
func AllocationOf(addr uint64) int { return int(addr >> spaceBits) }

// spaces is the memory of all simulated agents: one range of addresses for all, so that an address tells whose memory it is.
type spaces struct {
	mu          sync.RWMutex
	allocations []allocation // by number - 1
}

type allocation struct {
	bytes []byte // nil once freed
	place ports.Place
}

func (s *spaces) allocate(bytes uint64, place ports.Place) (uint64, error) {
	if bytes == 0 || bytes >= 1<<spaceBits {
		return 0, fmt.Errorf("want 1 to %d bytes", uint64(1<<spaceBits-1))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allocations = append(s.allocations, allocation{bytes: make([]byte, bytes), place: place})
	return uint64(len(s.allocations)) << spaceBits, nil
}

func (s *spaces) free(addr uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	number := addr >> spaceBits
	if addr&(1<<spaceBits-1) != 0 || number == 0 || number > uint64(len(s.allocations)) || s.allocations[number-1].bytes == nil {
		return fmt.Errorf("free: no allocation begins at %#x", addr)
	}
	s.allocations[number-1].bytes = nil
	return nil
}

func (s *spaces) view(addr, bytes uint64) ([]byte, error) {
	a, offset := s.find(addr)
	if bytes > uint64(len(a.bytes)) || offset > uint64(len(a.bytes))-bytes {
		return nil, fmt.Errorf("%d bytes at %#x are not in one allocation", bytes, addr)
	}
	return a.bytes[offset : offset+bytes : offset+bytes], nil
}

func (s *spaces) placed(d ports.Descriptor) error {
	if _, err := s.view(d.Addr, d.Bytes); err != nil {
		return err
	}
	if a, _ := s.find(d.Addr); a.place != d.Place {
		return fmt.Errorf("memory at %#x is of %s, not of %s", d.Addr, a.place, d.Place)
	}
	return nil
}

// find is the allocation that an address belongs to, without bytes if none, and the offset in it.
func (s *spaces) find(addr uint64) (a allocation, offset uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if number := addr >> spaceBits; number > 0 && number <= uint64(len(s.allocations)) {
		a = s.allocations[number-1]
	}
	return a, addr & (1<<spaceBits - 1)
}
