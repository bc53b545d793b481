package buddy

import (
	"fmt"
	"math/bits"
)

// Alloc places a block: best fit, lowest address first. ok is false, at once, for 0 bytes and for more than Largest, and when no free block holds it.
func (a *Allocator) Alloc(bytes uint64) (offset uint64, ok bool) {
	return a.place(1, a.root, bytes, false)
}

// AllocHigh is Alloc with the highest address first. A larger free block is used from its upper end.
func (a *Allocator) AllocHigh(bytes uint64) (offset uint64, ok bool) {
	return a.place(1, a.root, bytes, true)
}

// AllocIn is Alloc within one aligned power-of-two span of whole granules. It panics when the span is not one.
func (a *Allocator) AllocIn(base, size uint64, bytes uint64) (offset uint64, ok bool) {
	n, order := a.span(base, size)
	for up := n >> 1; up > 0; up >>= 1 {
		if a.nodes[up].used || a.nodes[up].bars > 0 {
			return 0, false // what n says is free lies inside a live block or a barred span
		}
	}
	return a.place(n, order, bytes, false)
}

// place allocates inside node n.
func (a *Allocator) place(n uint64, order uint, bytes uint64, high bool) (offset uint64, ok bool) {
	if bytes == 0 || bytes > a.Largest() {
		return 0, false
	}
	granules := (bytes-1)>>a.shift + 1
	hull := orderOf(granules)
	fitting := a.nodes[n].free >> hull << hull
	if fitting == 0 {
		return 0, false
	}
	best := uint(bits.TrailingZeros32(fitting))
	for order > best {
		first, second := 2*n, 2*n+1
		if high {
			first, second = second, first
		}
		n = second
		if a.nodes[first].free>>best&1 != 0 {
			n = first
		}
		order--
	}
	at := a.granuleOf(n, order)
	if high {
		at += 1<<best - 1<<hull
	}
	a.mark(at, hull, granules, true)
	a.blocks[at] = uint32(granules)
	a.freeGranules -= granules
	a.live++
	return at << a.shift, true
}

// Free gives a live block back and merges what became free. Its error wraps ErrDoubleFree or ErrForeign; nothing changed then.
func (a *Allocator) Free(offset uint64) error {
	if !a.begins(offset) {
		if offset&(a.Granule()-1) == 0 && offset>>a.shift < a.granules && a.blocks[offset>>a.shift] == freed {
			return fmt.Errorf("free of offset %d: %w", offset, ErrDoubleFree)
		}
		return fmt.Errorf("free of offset %d: %w", offset, ErrForeign)
	}
	at := offset >> a.shift
	granules := uint64(a.blocks[at])
	a.blocks[at] = freed
	a.mark(at, orderOf(granules), granules, false)
	a.freeGranules += granules
	a.live--
	return nil
}

// mark sets whether the first granules of the hull at a granule are used: as one node, or as one node for each bit of the number, largest first.
func (a *Allocator) mark(at uint64, hull uint, granules uint64, used bool) {
	n, order := a.nodeAt(at, hull), hull
	for rest := granules; rest > 0; {
		if rest == 1<<order {
			a.nodes[n].used = used
			break
		}
		order--
		if rest >= 1<<order {
			a.nodes[2*n].used = used
			a.pull(2*n, order)
			rest -= 1 << order
			n = 2*n + 1
		} else {
			n = 2 * n
		}
	}
	a.pullUp(n, order)
}
