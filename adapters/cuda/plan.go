package cuda

import (
	"fmt"

	"github.com/kvbounce/kvbounce/ports"
)

// The kernels' constants, see kernels/gather_scatter.cu.
const (
	partBytes      = 4096
	inlineWords    = 1012
	threadsOfBlock = 256
	warpLanes      = 32
	warpsOfBlock   = threadsOfBlock / warpLanes

	// maxUnits keeps a kernel's counting within 32 bits. Pieces of less than 4 GiB in all, which is what runs may describe (protocol.md, 3), have fewer but for pieces
	// of a byte or two in their billions.
	maxUnits = 1 << 31
)

// entry is a run, without what the kernels do not need of it, and its parts: struct Entry of the kernels.
type entry struct {
	offset, addr              uint64
	stride                    int64
	piece, step, table, parts uint32
}

const entryBytes = 40

// launchPlan is the kernels' parameter, struct Plan: three lists, each in words as far as there is room, or in memory that the GPU can read, at an address.
type launchPlan struct {
	firsts, entries, index, block uint64
	count, units, batch, indexAt  uint32
	words                         [inlineWords]uint32
}

// partsOf is the units of each of a run's pieces.
func partsOf(r *ports.Run) uint64 { return (uint64(r.Piece) + partBytes - 1) / partBytes }

// countUnits counts the units of runs, and their bytes.
func countUnits(runs []ports.Run) (units uint32, bytes uint64, err error) {
	var all uint64
	for i := range runs {
		r := &runs[i]
		if all += uint64(r.Pieces) * partsOf(r); all > maxUnits {
			return 0, 0, fmt.Errorf("cuda: the runs up to run %d have more than %d pieces or parts of %d bytes: one copy can't have as many", i, uint64(maxUnits), partBytes)
		}
		bytes += uint64(r.Pieces) * uint64(r.Piece)
	}
	return uint32(all), bytes, nil
}

// fill makes the first units and the entries of runs whose units were counted.
func fill(firsts []uint32, entries []entry, runs []ports.Run) {
	first := uint32(0)
	for i := range runs {
		r := &runs[i]
		parts := uint32(partsOf(r))
		firsts[i], entries[i] = first, entry{offset: r.Offset, addr: r.Addr, stride: r.Stride, piece: r.Piece, step: r.Step, table: r.Table, parts: parts}
		first += r.Pieces * parts
	}
}

// spot is where a list of a plan begins.
type spot struct {
	inMemory bool // and not in the plan's words
	word     int
}

// lay finds the places of a plan's lists: in its words, in this order, what fits, in memory the others. memory is how many words of it they take.
func lay(runs, indices int) (firsts, entries, index spot, memory int) {
	used := 0
	place := func(words int) spot {
		to, s := &used, spot{word: used}
		if used+words > inlineWords {
			to, s = &memory, spot{inMemory: true, word: memory}
		}
		*to += words + words%2 // entries begin at even words
		return s
	}
	firsts, entries, index = place(runs), place(runs*entryBytes/4), place(indices)
	return firsts, entries, index, memory
}

// spread says how many units a warp takes at a time, and how many blocks there are, at most maxBlocks: so many that all units are taken in one round, unless a batch would have more than a
// warp has lanes. Long units, which are copied one by one, go in two rounds: blocks that have only one end at the same time, and none of those that wait takes their place.
func spread(units uint32, bytes uint64, maxBlocks int) (batch uint32, blocks int) {
	warps := uint64(min(maxBlocks, maxUnits/warpsOfBlock)) * warpsOfBlock
	if bytes > uint64(units)*partBytes/2 {
		warps *= 2
	}
	batch = min(uint32((uint64(units)+warps-1)/warps), warpLanes)
	batches := (units + batch - 1) / batch
	return batch, min(maxBlocks, int((batches+warpsOfBlock-1)/warpsOfBlock))
}
