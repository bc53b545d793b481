// Package layout makes the descriptor lists that the command and the benchmarks move: presets shaped like workloads from the field, and layouts read from files.
package layout

import "github.com/kvbounce/kvbounce/ports"

// Layout says which bytes of one block of memory go where in another.
type Layout struct {
	Name string // the preset's; "" for a layout from a file
	// Src and Dst are the two sides' descriptor lists. Addr counts from the start of the side's block (or is a plain number, for whoever only plans). Place.Kind is left
	// zero, since whoever allocates the blocks knows it; Place.Device is the file's device number, 0 in presets.
	Src, Dst []ports.Descriptor
	// SrcBlock and DstBlock are the bytes that each side must allocate. Those of a file may be any 64-bit number.
	SrcBlock, DstBlock uint64
}

// extent is the end of the last byte that the list names. Every descriptor's end must fit 64 bits.
func extent(list []ports.Descriptor) (end uint64) {
	for _, d := range list {
		if d.Bytes > 0 {
			end = max(end, d.Addr+d.Bytes)
		}
	}
	return end
}
