package credit

import "iter"

// hold is the aligned block that is kept for one starving chunk: nothing new is placed inside it, what is there leaves by itself. Size 0: none.
type hold struct {
	base, size uint64
}

func (h hold) overlaps(b Block) bool {
	return h.size > 0 && b.Offset < h.base+h.size && h.base < b.Offset+b.Bytes
}

// hullBytes is the aligned power of two that a block of this size is placed in.
func (a *Arena) hullBytes(bytes uint64) uint64 { return a.trees.Granule() << a.class(bytes) }

// cleanSpans are the aligned blocks that can hold a block of this size for the purpose once all that is not retained has left, highest first.
func (a *Arena) cleanSpans(bytes uint64, p Purpose) iter.Seq[uint64] {
	size := a.hullBytes(bytes)
	return func(yield func(base uint64) bool) {
		for base := a.trees.Usable()/size*size - size; ; base -= size {
			forbidden := a.reserve[p.other()] != noZone && a.zoneOf(base) == a.reserve[p.other()]
			if !forbidden && !a.retainedIn(base, size) && !yield(base) {
				return
			}
			if base == 0 {
				return
			}
		}
	}
}

// holdFor bars the block with the fewest occupants that a grant of this size could get, the highest of equals. It reports false when every such block has a
// retained one inside. There is one hold at a time.
func (a *Arena) holdFor(bytes uint64) bool {
	size := a.hullBytes(bytes)
	least := -1
	for base := range a.cleanSpans(bytes, ForGrant) {
		occupants := a.trees.Occupants(base, size)
		if least < 0 || occupants < least {
			least = occupants
			a.hold = hold{base: base, size: size}
		}
		if least <= 1 {
			break // one without occupants would have been granted
		}
	}
	if least < 0 {
		return false
	}
	a.barHold()
	return true
}

// held reports whether there is a hold. A retained block inside it, or a staging reserve that moves onto it, ends it.
func (a *Arena) held() bool { return a.hold.size > 0 }

// allocHeld places the starving chunk in its hold once that is empty; the hold is over then.
func (a *Arena) allocHeld(bytes uint64) (b Block, ok bool) {
	h := a.hold
	if a.trees.Occupants(h.base, h.size) > 0 {
		return Block{}, false
	}
	a.dropHold()
	offset, ok := a.trees.AllocIn(h.base, h.size, bytes)
	if !ok {
		panic("credit: an empty hold does not take its chunk")
	}
	return a.placed(offset, bytes, ForGrant), true
}

// dropHold ends the hold.
func (a *Arena) dropHold() {
	if !a.mutated("place others in a held block") {
		a.trees.Unbar(a.hold.base, a.hold.size)
	}
	a.hold = hold{}
}

func (a *Arena) barHold() {
	if !a.mutated("place others in a held block") {
		a.trees.Bar(a.hold.base, a.hold.size)
	}
}
