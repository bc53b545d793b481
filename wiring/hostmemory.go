package wiring

import (
	"unsafe"

	"github.com/kvbounce/kvbounce/adapters/host"
	"github.com/kvbounce/kvbounce/ports"
)

// HostBlock is a block of host memory outside the Go heap, in huge pages where the system gives them, as transfers want it.
type HostBlock struct{ bytes []byte }

// AllocateHost maps at least one byte, zeroed.
func AllocateHost(bytes uint64) (*HostBlock, error) {
	b, err := host.Allocate(max(bytes, 1))
	if err != nil {
		return nil, err
	}
	return &HostBlock{b}, nil
}

// Bytes are the block's. They must not be used after Free.
func (m *HostBlock) Bytes() []byte { return m.bytes }

// Descriptor names the whole block.
func (m *HostBlock) Descriptor() ports.Descriptor {
	return ports.Descriptor{Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.bytes)))), Bytes: uint64(len(m.bytes))}
}

// Free unmaps it. The caller must know that nothing touches it any more: see Memory.Deregister in core/agent and Handle.Quiesced.
func (m *HostBlock) Free() error {
	b := m.bytes
	m.bytes = nil
	return host.Free(b)
}
