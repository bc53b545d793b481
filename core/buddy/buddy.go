// Package buddy allocates offsets inside a size. It knows no memory.
//
// The size is a row of power-of-two trees, largest first, each aligned to its own size: 768 MiB is a tree of 512 MiB and one of 256 MiB. A block is
// taken from the smallest free power-of-two block that holds it, and gives back at once what it does not need: 36 MiB occupies the first 32 + 4 MiB
// of an aligned block of 64, and the other 4 + 8 + 16 MiB are free (protocol.md, 6). So a block starts at a multiple of the power of two that holds it
// (its hull), and its hull never crosses an aligned power-of-two span that is at least as large.
//
// Placement is best fit: among the free blocks that hold the hull, the smallest; among those of one size, the lowest address (AllocHigh: the highest).
// Alloc, AllocIn, Free, Bar and Unbar cost O(log(size/granule)) and allocate nothing.
//
// An Allocator is not safe for concurrent use.
package buddy

import (
	"errors"
	"fmt"
	"math/bits"
)

// MaxGranules bounds size / granule, and so the allocator's own memory: 20 to 36 bytes a granule, 80 MiB at the bound. The default arena has 512 granules.
const MaxGranules = 1 << 22

var (
	// ErrDoubleFree is wrapped by Free's error when a block began at the offset and was freed already.
	ErrDoubleFree = errors.New("the block was freed already")
	// ErrForeign is wrapped by Free's error when no block ever began at the offset.
	ErrForeign = errors.New("no block of this allocator")
)

// freed marks in Allocator.blocks a granule where a block began that has been freed.
const freed = 1 << 31

// node is one aligned power-of-two span. Its order is the base-2 logarithm of its granules.
type node struct {
	// free has bit k set when a wholly free block of order k, not part of a larger one, lies inside and may be used. It is 0 when the node is used or barred. Below
	// a used node it is kept as if that node were free.
	free uint32
	// bars counts the Bars of exactly this span.
	bars uint16
	// used: the node is, as a whole, one piece of a live block, or lies beyond the usable size.
	used bool
}

// Allocator hands out blocks of [0, Usable()).
type Allocator struct {
	shift    uint   // log2 of the granule
	granules uint64 // usable granules
	root     uint   // order of the root, which spans the smallest power of two that holds every tree
	nodes    []node // heap order: the root is 1, the halves of n are 2n and 2n+1
	// blocks holds, at the granule where a live block begins, its granules; where a block once began and was freed, freed; else 0.
	blocks []uint32

	freeGranules uint64
	live         int
}

// New makes an allocator over size bytes in units of granule bytes, a power of two. The size is rounded down to a multiple of the granule.
func New(size, granule uint64) (*Allocator, error) {
	if bits.OnesCount64(granule) != 1 {
		return nil, fmt.Errorf("granule of %d bytes: want a power of two", granule)
	}
	shift := uint(bits.TrailingZeros64(granule))
	granules := size >> shift
	switch {
	case granules == 0:
		return nil, fmt.Errorf("size of %d bytes: want at least one granule of %d", size, granule)
	case granules > MaxGranules:
		return nil, fmt.Errorf("granule of %d bytes: a size of %d has %d of them, want at most %d", granule, size, granules, MaxGranules)
	}
	a := &Allocator{
		shift:        shift,
		granules:     granules,
		root:         orderOf(granules),
		blocks:       make([]uint32, granules),
		freeGranules: granules,
	}
	leaves := uint64(1) << a.root
	a.nodes = make([]node, 2*leaves)
	for order := uint(0); order <= a.root; order++ {
		row := a.nodes[leaves>>order : 2*leaves>>order]
		for i := range row {
			row[i].free = 1 << order
		}
	}
	a.cutTail()
	return a, nil
}

// cutTail marks what lies beyond the usable granules as used for ever: the root's right halves that no tree covers.
func (a *Allocator) cutTail() {
	n, order, rest := uint64(1), a.root, a.granules
	for rest < 1<<order {
		order--
		if rest <= 1<<order {
			a.nodes[2*n+1].used = true
			a.pull(2*n+1, order)
			n = 2 * n
		} else {
			rest -= 1 << order
			n = 2*n + 1
		}
	}
	a.pullUp(n, order)
}

// Granule is the unit of allocation in bytes.
func (a *Allocator) Granule() uint64 { return 1 << a.shift }

// Usable is the bytes of all trees.
func (a *Allocator) Usable() uint64 { return a.granules << a.shift }

// Largest is the bytes of the largest tree: no larger block can ever be placed.
func (a *Allocator) Largest() uint64 { return 1 << (bits.Len64(a.granules) - 1) << a.shift }

// FreeBytes is the bytes that no live block occupies, barred ones included.
func (a *Allocator) FreeBytes() uint64 { return a.freeGranules << a.shift }

// LiveBlocks is how many blocks are live.
func (a *Allocator) LiveBlocks() int { return a.live }

// LargestFree is the largest request in bytes that Alloc would place now, 0 if none. Bars count.
func (a *Allocator) LargestFree() uint64 {
	free := a.nodes[1].free
	if free == 0 {
		return 0
	}
	return 1 << (bits.Len32(free) - 1) << a.shift
}

// BlockBytes is the size of the live block that begins at the offset: the bytes requested, rounded up to the granule. It is 0 if none begins there.
func (a *Allocator) BlockBytes(offset uint64) uint64 {
	if !a.begins(offset) {
		return 0
	}
	return uint64(a.blocks[offset>>a.shift]) << a.shift
}

// begins reports whether a live block begins at the offset.
func (a *Allocator) begins(offset uint64) bool {
	if offset&(a.Granule()-1) != 0 || offset>>a.shift >= a.granules {
		return false
	}
	g := a.blocks[offset>>a.shift]
	return g != 0 && g != freed
}

// Occupants is how many live blocks have bytes inside an aligned power-of-two span of whole granules. It visits only what is not wholly free there.
func (a *Allocator) Occupants(base, size uint64) int {
	n, order := a.span(base, size)
	if a.covered(n) {
		return 1
	}
	count := a.starts(n, order)
	if !a.begins(base) && a.covered(a.nodeAt(base>>a.shift, 0)) {
		count++ // one that begins below the span: its bytes are contiguous, so it covers the span's first granule
	}
	return count
}

// starts counts the live blocks that begin inside a node.
func (a *Allocator) starts(n uint64, order uint) int {
	nd := &a.nodes[n]
	switch {
	case nd.free == 1<<order:
		return 0
	case nd.used:
		if a.begins(a.granuleOf(n, order) << a.shift) {
			return 1
		}
		return 0
	case order == 0:
		return 0
	}
	return a.starts(2*n, order-1) + a.starts(2*n+1, order-1)
}

// covered reports whether a node is used, or lies below one that is: then one live block occupies all of it.
func (a *Allocator) covered(n uint64) bool {
	for ; n > 0; n >>= 1 {
		if a.nodes[n].used {
			return true
		}
	}
	return false
}

// span finds the node of a span given in bytes. A span that is not one is the caller's bug.
func (a *Allocator) span(base, size uint64) (n uint64, order uint) {
	granules := size >> a.shift
	if bits.OnesCount64(size) != 1 || granules == 0 || base&(size-1) != 0 || size > a.Usable() || base > a.Usable()-size {
		panic(fmt.Sprintf("buddy: [%d, +%d) is no aligned power-of-two span of granules of %d inside %d bytes", base, size, a.Granule(), a.Usable()))
	}
	order = orderOf(granules)
	return a.nodeAt(base>>a.shift, order), order
}

// nodeAt is the node of an order that begins at a granule.
func (a *Allocator) nodeAt(granule uint64, order uint) uint64 {
	return 1<<(a.root-order) + granule>>order
}

// granuleOf is where a node of an order begins.
func (a *Allocator) granuleOf(n uint64, order uint) uint64 {
	return (n - 1<<(a.root-order)) << order
}

// orderOf is the order of the smallest power of two that is at least granules, which is not 0.
func orderOf(granules uint64) uint { return uint(bits.Len64(granules - 1)) }

// pull computes what is free in a node from its own state and its halves'.
func (a *Allocator) pull(n uint64, order uint) {
	nd := &a.nodes[n]
	switch {
	case nd.used || nd.bars > 0:
		nd.free = 0
	case order == 0:
		nd.free = 1
	default:
		half := uint32(1) << (order - 1)
		left, right := a.nodes[2*n].free, a.nodes[2*n+1].free
		if left == half && right == half {
			nd.free = 1 << order // the merge
		} else {
			nd.free = left | right
		}
	}
}

// pullUp pulls a node and everything above it.
func (a *Allocator) pullUp(n uint64, order uint) {
	for ; n > 0; n >>= 1 {
		a.pull(n, order)
		order++
	}
}
