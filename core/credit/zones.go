package credit

import (
	"cmp"
	"fmt"
	"slices"
)

// noZone is the index of no zone: a purpose without a reserve, or an offset beyond the last whole zone.
const noZone = -1

// zone is one aligned block of B. Blocks never cross zones.
type zone struct {
	blocks   [purposes]int // live blocks by purpose
	retained int           // of them in doubt
}

func (a *Arena) zoneBase(z int) uint64 { return uint64(z) * a.zoneBytes }

// zoneOf is the zone that holds an offset.
func (a *Arena) zoneOf(offset uint64) int {
	if z := offset / a.zoneBytes; z < uint64(len(a.zones)) {
		return int(z)
	}
	return noZone
}

func (a *Arena) barReserve(p Purpose) {
	if z := a.reserve[p]; z != noZone && !(p == ForStaging && a.mutated("grant in the reserve of staging")) {
		a.trees.Bar(a.zoneBase(z), a.zoneBytes)
	}
}

func (a *Arena) unbarReserve(p Purpose) {
	if z := a.reserve[p]; z != noZone && !(p == ForStaging && a.mutated("grant in the reserve of staging")) {
		a.trees.Unbar(a.zoneBase(z), a.zoneBytes)
	}
}

// Room reports whether retained blocks leave a zone for staging and one for grants. When it is false new bounce work must be refused (protocol.md, 8).
func (a *Arena) Room() bool { return a.reserve[ForStaging] != noZone && a.reserve[ForGrant] != noZone }

// Retain marks a block as in doubt: it stays allocated, and its zone can't be a reserve. It panics when it is in doubt already.
func (a *Arena) Retain(b Block) {
	state := a.state(b, "Retain")
	if state.retained {
		panic(fmt.Sprintf("credit: Retain of %+v, which is in doubt already", b))
	}
	state.retained = true
	i, _ := a.findRetained(b.Offset)
	a.retained = slices.Insert(a.retained, i, b)
	a.retainedBytes += a.trees.BlockBytes(b.Offset)
	if z := a.zoneOf(b.Offset); z != noZone {
		a.zones[z].retained++
	}
	if a.hold.overlaps(b) {
		a.dropHold()
	}
	a.settleReserves()
}

// Unretain ends the doubt: evidence came. Free follows. It panics when the block is not in doubt.
func (a *Arena) Unretain(b Block) {
	state := a.state(b, "Unretain")
	if !state.retained {
		panic(fmt.Sprintf("credit: Unretain of %+v, which is not in doubt", b))
	}
	state.retained = false
	i, _ := a.findRetained(b.Offset)
	a.retained = slices.Delete(a.retained, i, i+1)
	a.retainedBytes -= a.trees.BlockBytes(b.Offset)
	if z := a.zoneOf(b.Offset); z != noZone {
		a.zones[z].retained--
	}
	a.settleReserves()
}

func (a *Arena) findRetained(offset uint64) (int, bool) {
	return slices.BinarySearchFunc(a.retained, offset, func(b Block, offset uint64) int { return cmp.Compare(b.Offset, offset) })
}

// retainedIn reports whether a block in doubt has bytes in [base, base+size).
func (a *Arena) retainedIn(base, size uint64) bool {
	i, found := a.findRetained(base)
	if found || i < len(a.retained) && a.retained[i].Offset < base+size {
		return true
	}
	return i > 0 && a.retained[i-1].Offset+a.retained[i-1].Bytes > base
}

// settleReserves moves the reserves off zones with retained blocks, and finds new ones where there was none. Staging comes first: everything else waits for it.
func (a *Arena) settleReserves() {
	for _, p := range [...]Purpose{ForStaging, ForGrant} {
		if z := a.reserve[p]; z == noZone || a.zones[z].retained > 0 {
			a.reserve[p] = a.cleanZone(p)
		}
	}
	if a.reserve[ForStaging] == noZone {
		a.reserve[ForStaging], a.reserve[ForGrant] = a.reserve[ForGrant], noZone
	}
	if z := a.reserve[ForStaging]; z != noZone && a.hold.size > 0 && a.zoneOf(a.hold.base) == z {
		a.dropHold() // no grant may be placed there any more
	}
}

// cleanZone chooses a reserve: a zone without retained block that is not the other purpose's, with the fewest of its blocks; of equals the lowest for staging, the highest for
// grants.
func (a *Arena) cleanZone(p Purpose) int {
	best := noZone
	for z := range a.zones {
		if a.zones[z].retained > 0 || a.reserve[p.other()] == z {
			continue
		}
		if best == noZone {
			best = z
			continue
		}
		foreign, least := a.zones[z].blocks[p.other()], a.zones[best].blocks[p.other()]
		if foreign < least || foreign == least && p == ForGrant {
			best = z
		}
	}
	return best
}

// InTheWay reports whether a live staging block lies where grants are promised room: in the grants' reserve, which moved onto it, or in the block that is held for a starving
// chunk. A chunk without credit must give such staging up once its gather has ended. It is false for a grant's block.
func (a *Arena) InTheWay(b Block) bool {
	if a.state(b, "InTheWay").purpose != ForStaging {
		return false
	}
	return a.hold.overlaps(b) || a.reserve[ForGrant] != noZone && a.zoneOf(b.Offset) == a.reserve[ForGrant]
}

// Placeable reports whether a block of this size could be placed for the purpose if everything but the retained blocks left. When it is false a peer that wants such a
// chunk is answered "overloaded".
func (a *Arena) Placeable(bytes uint64, p Purpose) bool {
	if bytes == 0 || bytes > a.chunkLimit {
		return false
	}
	if a.reserve[p] != noZone {
		return true
	}
	for range a.cleanSpans(bytes, p) {
		return true
	}
	return false
}
