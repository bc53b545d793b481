package ports

import (
	"cmp"
	"fmt"
)

// MemoryKind says what sort of memory an address belongs to.
type MemoryKind uint8

// The kinds of memory. The zero value is host memory, because an AgentDesc or a descriptor that says nothing means that.
const (
	Host   MemoryKind = iota // ordinary memory of the process
	Device                   // memory of a GPU
)

// String is "dram" or "vram", the words of the command's JSON.
func (k MemoryKind) String() string {
	switch k {
	case Host:
		return "dram"
	case Device:
		return "vram"
	}
	return fmt.Sprintf("memory kind %d", uint8(k))
}

// Place is a kind of memory and the ordinal of the device that owns it. Host memory's device is 0.
type Place struct {
	Kind   MemoryKind
	Device uint32
}

// String is "dram" or "vram:<ordinal>".
func (p Place) String() string {
	if p.Kind == Host {
		return p.Kind.String()
	}
	return fmt.Sprintf("%s:%d", p.Kind, p.Device)
}

// Compare orders places by kind and device.
func (p Place) Compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Kind, q.Kind), cmp.Compare(p.Device, q.Device))
}

// Descriptor is one contiguous piece of memory. A descriptor of 0 bytes is legal and is skipped.
type Descriptor struct {
	Addr  uint64 // address in the process, or on the device, that owns it
	Bytes uint64
	Place Place
}

// End is the address after the last byte. ok is false when it does not fit 64 bits.
func (d Descriptor) End() (end uint64, ok bool) {
	end = d.Addr + d.Bytes
	return end, end >= d.Addr
}

// NoTable is Run.Table of a run whose pieces follow a constant stride.
const NoTable = 0xFFFFFFFF

// Run describes Pieces pieces of equal length that stand at a regular distance in a bounce block and follow one rule in the application's
// memory. Piece k is the Piece bytes at block offset Offset + k*Step. Its place in the application's memory is Addr + k*Stride, or, when Table is
// not NoTable, Addr + index[Table+k]*Stride. The layout is wire 3's (protocol.md, 3).
type Run struct {
	Offset uint64 // bytes from the block's start
	Addr   uint64 // application memory: source of a gather, destination of a scatter
	Stride int64  // bytes; may be negative
	Piece  uint32 // bytes of one piece, at least 1
	Pieces uint32 // at least 1
	Step   uint32 // bytes between pieces in the block
	Table  uint32 // first entry in the index table, or NoTable
}

// Runs are runs and the index table that they point into.
type Runs struct {
	Runs  []Run
	Index []uint32
}
