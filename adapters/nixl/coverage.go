package nixl

import (
	"cmp"
	"slices"

	"github.com/kvbounce/kvbounce/ports"
)

// coverage answers whether one registered range contains a descriptor. It is immutable. The zero value covers nothing.
//
// Posts ask it before anything is handed to NIXL, on both sides, so that a transfer with one wrong descriptor fails as a whole, and names it: NIXL
// answers "backend error", and only for the piece that holds it.
type coverage struct {
	ranges []ports.Descriptor // sorted by place and address, none empty
	// furthest[i] is the largest end among the ranges up to i in the same place. A descriptor lies in one range exactly if the furthest end
	// of those that begin at or before it is not before its own: the range with that end contains it.
	furthest []uint64
}

// newCoverage takes the ranges over and may reorder them.
func newCoverage(ranges []ports.Descriptor) *coverage {
	slices.SortFunc(ranges, func(a, b ports.Descriptor) int {
		return cmp.Or(a.Place.Compare(b.Place), cmp.Compare(a.Addr, b.Addr))
	})
	c := &coverage{ranges: ranges, furthest: make([]uint64, len(ranges))}
	for i, r := range ranges {
		end, _ := r.End()
		if i > 0 && ranges[i-1].Place == r.Place {
			end = max(end, c.furthest[i-1])
		}
		c.furthest[i] = end
	}
	return c
}

// covers reports whether one range contains d. at is the range that contained the last descriptor asked for, a guess that is usually right.
func (c *coverage) covers(d ports.Descriptor, at *int) bool {
	end, ok := d.End()
	if !ok {
		return false
	}
	if *at < len(c.ranges) {
		if r := c.ranges[*at]; r.Place == d.Place && r.Addr <= d.Addr && end <= r.Addr+r.Bytes {
			return true
		}
	}
	after, _ := slices.BinarySearchFunc(c.ranges, d, func(r, d ports.Descriptor) int {
		if order := cmp.Or(r.Place.Compare(d.Place), cmp.Compare(r.Addr, d.Addr)); order != 0 {
			return order
		}
		return -1 // an equal address is at or before d: look further right
	})
	i := after - 1
	if i < 0 || c.ranges[i].Place != d.Place || c.furthest[i] < end {
		return false
	}
	*at = i
	return true
}
