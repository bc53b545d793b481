package credit

import (
	"fmt"
	"math/bits"

	"github.com/kvbounce/kvbounce/core/buddy"
)

// Purpose is what a block is for.
type Purpose uint8

const (
	// ForGrant: a region that a peer will write.
	ForGrant Purpose = iota
	// ForStaging: a chunk that this side gathers and writes from.
	ForStaging

	purposes = 2
)

// other is the purpose that p's reserve is kept free of.
func (p Purpose) other() Purpose { return 1 - p }

// String names the purpose as traces print it.
func (p Purpose) String() string {
	if names := [...]string{"grant", "staging"}; int(p) < len(names) {
		return names[p]
	}
	return "unknown purpose"
}

// Block is a piece of the arena: its offset from the arena's base, and the bytes that were asked for.
type Block struct {
	Offset, Bytes uint64
}

// blockState is what the arena knows of the live block that begins at a granule. Whether one does is the allocator's to say.
type blockState struct {
	purpose  Purpose
	retained bool
}

// Arena places blocks for grants and staging so that neither can lock the other out (see the package comment).
//
// A misuse (a double free, a block that is not live, a free of a block in doubt) is a bug of this side that would corrupt somebody's data, so it panics.
// An Arena is not safe for concurrent use: it is the reactor's.
type Arena struct {
	mutation   mutation
	trees      *buddy.Allocator
	chunkLimit uint64
	zoneBytes  uint64       // B
	blocks     []blockState // by granule
	zones      []zone
	reserve    [purposes]int // by purpose: the index of its zone, or noZone

	used          [purposes]uint64 // bytes of live blocks, whole granules
	retained      []Block          // in doubt, by offset
	retainedBytes uint64
	hold          hold
}

// NewArena makes an arena of bytes in units of granule bytes (a power of two) for chunks of 1 to chunkLimit bytes. It fails when it would have fewer than two zones: the caller
// lowers the chunk limit beforehand (protocol.md, 10).
func NewArena(bytes, granule, chunkLimit uint64) (*Arena, error) {
	trees, err := buddy.New(bytes, granule)
	if err != nil {
		return nil, fmt.Errorf("arena: %w", err)
	}
	if chunkLimit == 0 {
		return nil, fmt.Errorf("arena: a chunk limit of 0 bytes, want at least 1")
	}
	zoneBytes := granule
	if chunkLimit > granule {
		if chunkLimit > trees.Usable()/2 {
			return nil, fmt.Errorf("arena of %d bytes (%d usable): a chunk limit of %d bytes needs an arena of at least twice the power of two that holds it",
				bytes, trees.Usable(), chunkLimit)
		}
		zoneBytes = 1 << bits.Len64(chunkLimit-1)
	}
	zones := int(trees.Usable() / zoneBytes)
	if zones < 2 {
		return nil, fmt.Errorf("arena of %d bytes (%d usable): a chunk limit of %d bytes needs at least %d", bytes, trees.Usable(), chunkLimit, 2*zoneBytes)
	}
	a := &Arena{
		trees:      trees,
		chunkLimit: chunkLimit,
		zoneBytes:  zoneBytes,
		blocks:     make([]blockState, trees.Usable()/granule),
		zones:      make([]zone, zones),
	}
	a.reserve[ForStaging] = 0
	a.reserve[ForGrant] = zones - 1
	return a, nil
}

// Usable is the bytes of the arena's largest power-of-two tree: the handshake's arena_usable.
func (a *Arena) Usable() uint64 { return a.trees.Largest() }

// FreeBytes is the bytes that no block occupies. On an empty arena it is all that can ever be placed.
func (a *Arena) FreeBytes() uint64 { return a.trees.FreeBytes() }

// RetainedBytes is the bytes that blocks in doubt occupy, whole granules.
func (a *Arena) RetainedBytes() uint64 { return a.retainedBytes }

// UsedBytes is the bytes that live blocks for a purpose occupy, whole granules.
func (a *Arena) UsedBytes(p Purpose) uint64 { return a.used[p] }

// LiveBlocks is how many blocks are allocated, those in doubt included.
func (a *Arena) LiveBlocks() int { return a.trees.LiveBlocks() }

// Alloc places a block of 1 to chunkLimit bytes. ok is false when none fits now, and for every other size.
func (a *Arena) Alloc(bytes uint64, p Purpose) (b Block, ok bool) {
	if bytes == 0 || bytes > a.chunkLimit {
		return Block{}, false
	}
	offset, ok := uint64(0), false
	if own := a.reserve[p]; own != noZone {
		offset, ok = a.trees.AllocIn(a.zoneBase(own), a.zoneBytes, bytes)
	}
	if !ok {
		a.barReserve(p.other())
		if p == ForStaging {
			offset, ok = a.trees.Alloc(bytes)
		} else {
			offset, ok = a.trees.AllocHigh(bytes)
		}
		a.unbarReserve(p.other())
	}
	if !ok {
		return Block{}, false
	}
	return a.placed(offset, bytes, p), true
}

// placed records a new block.
func (a *Arena) placed(offset, bytes uint64, p Purpose) Block {
	a.blocks[offset/a.trees.Granule()] = blockState{purpose: p}
	a.used[p] += a.trees.BlockBytes(offset)
	if z := a.zoneOf(offset); z != noZone {
		a.zones[z].blocks[p]++
	}
	return Block{Offset: offset, Bytes: bytes}
}

// Free gives a block back. Only the ownership ledger (core/drain) calls it, with evidence that nothing can touch the block any more. A block in doubt must be unretained first.
func (a *Arena) Free(b Block) {
	state := a.state(b, "Free")
	if state.retained {
		panic(fmt.Sprintf("credit: Free of %+v, which is in doubt", b))
	}
	a.used[state.purpose] -= a.trees.BlockBytes(b.Offset)
	if err := a.trees.Free(b.Offset); err != nil {
		panic(fmt.Sprintf("credit: %v", err))
	}
	if z := a.zoneOf(b.Offset); z != noZone {
		a.zones[z].blocks[state.purpose]--
	}
}

// state is the record of a block that must be live.
func (a *Arena) state(b Block, verb string) *blockState {
	granule := a.trees.Granule()
	size := a.trees.BlockBytes(b.Offset)
	if size == 0 || b.Bytes == 0 || b.Bytes > size || size-b.Bytes >= granule {
		panic(fmt.Sprintf("credit: %s of %+v, which is no live block (%d bytes there)", verb, b, size))
	}
	return &a.blocks[b.Offset/granule]
}

// largest is the largest request for a purpose that Alloc would place now, 0 if none.
func (a *Arena) largest(p Purpose) uint64 {
	a.barReserve(p.other())
	defer a.unbarReserve(p.other())
	return min(a.trees.LargestFree(), a.zoneBytes)
}
