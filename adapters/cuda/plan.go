package cuda

import (
	"fmt"

	"github.com/kvbounce/kvbounce/ports"
)

// The kernels' constants, see kernels/gather_scatter.cu.
const (
	partBytes      = 4096
	inlineEntries  = 80
	threadsOfBlock = 256
	warpLanes      = 32
	warpsOfBlock   = threadsOfBlock / warpLanes

	// maxUnits keeps a kernel's counting within 32 bits. Pieces of less than 4 GiB in all, which is what runs may describe (protocol.md, 3), have fewer but for pieces
	// of a byte or two in their billions.
	maxUnits = 1 << 31
)

// entry is a run and its units, which are pieces or, of pieces above partBytes, parts of them: struct Entry of the kernels.
type entry struct {
	run   ports.Run
	first uint32 // unit
	parts uint32 // units of a piece
}

const (
	entryBytes  = 48
	inlineBytes = inlineEntries * entryBytes
)

// launchPlan is the kernels' parameter: struct Plan. The index table may follow the entries in inlined.
type launchPlan struct {
	table, index, block uint64
	count, units, batch uint32
	_                   uint32
	inlined             [inlineEntries]entry
}

// partsOf is the units of each of a run's pieces.
func partsOf(r *ports.Run) uint64 { return (uint64(r.Piece) + partBytes - 1) / partBytes }

// countUnits counts the units of runs.
func countUnits(runs []ports.Run) (units uint32, err error) {
	var all uint64
	for i := range runs {
		if all += uint64(runs[i].Pieces) * partsOf(&runs[i]); all > maxUnits {
			return 0, fmt.Errorf("cuda: the runs up to run %d have more than %d pieces or parts of %d bytes: one copy can't have as many", i, uint64(maxUnits), partBytes)
		}
	}
	return uint32(all), nil
}

// fill makes the entries of runs whose units were counted.
func fill(entries []entry, runs []ports.Run) {
	first := uint32(0)
	for i := range runs {
		parts := uint32(partsOf(&runs[i]))
		entries[i] = entry{run: runs[i], first: first, parts: parts}
		first += runs[i].Pieces * parts
	}
}

// spread says how many units a warp takes at a time, and how many blocks there are, at most maxBlocks: enough for each unit to be taken in the first round, unless a batch would have more
// than a warp has lanes.
func spread(units uint32, maxBlocks int) (batch uint32, blocks int) {
	warps := uint32(min(maxBlocks, maxUnits/warpsOfBlock)) * warpsOfBlock
	batch = min((units+warps-1)/warps, warpLanes)
	batches := (units + batch - 1) / batch
	return batch, min(maxBlocks, int((batches+warpsOfBlock-1)/warpsOfBlock))
}
