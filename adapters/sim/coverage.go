package sim

import (
	"cmp"
	"slices"

	"github.com/kvbounce/kvbounce/ports"
)

// coverage answers whether a range lies within one of many others. It is made once for each change of the registrations, since a
// transfer may ask for each of thousands of pieces.
type coverage struct {
	ranges []ports.Descriptor // by place and address
	reach  []uint64           // the furthest end among the ranges of the same place up to this one
}

// newCoverage is of ranges whose ends do not overflow. It takes the slice.
func newCoverage(ranges []ports.Descriptor) coverage {
	slices.SortFunc(ranges, comparePlaceAndAddress)
	c := coverage{ranges: ranges, reach: make([]uint64, len(ranges))}
	for i, r := range ranges {
		c.reach[i], _ = r.End()
		if i > 0 && ranges[i-1].Place == r.Place {
			c.reach[i] = max(c.reach[i], c.reach[i-1])
		}
	}
	return c
}

func comparePlaceAndAddress(a, b ports.Descriptor) int {
	return cmp.Or(a.Place.Compare(b.Place), cmp.Compare(a.Addr, b.Addr))
}

// covers reports whether d lies within one range. The one that reaches furthest among those that begin at or before d does, or none. Nothing is needed
// for a range of 0 bytes.
func (c coverage) covers(d ports.Descriptor) bool {
	end, ok := d.End()
	if !ok || d.Bytes == 0 {
		return ok
	}
	i, found := slices.BinarySearchFunc(c.ranges, d, comparePlaceAndAddress)
	for found && i+1 < len(c.ranges) && comparePlaceAndAddress(c.ranges[i+1], d) == 0 {
		i++
	}
	if !found {
		i--
	}
	return i >= 0 && c.ranges[i].Place == d.Place && c.reach[i] >= end
}
