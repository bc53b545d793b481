package plan

import (
	"fmt"

	"github.com/kvbounce/kvbounce/ports"
)

// side names one of the two lists in errors.
type side string

const (
	source      side = "source"
	destination side = "destination"
)

// whatIsWrong is an error that names the lowest wrong descriptor of two lists with which something is wrong (the source's, when both are wrong at the same index).
func whatIsWrong(src, dst []ports.Descriptor) error {
	srcTotal, srcWrong := sum(src)
	dstTotal, dstWrong := sum(dst)
	switch {
	case srcWrong < len(src) && (dstWrong == len(dst) || srcWrong <= dstWrong):
		return describe(source, src, srcWrong)
	case dstWrong < len(dst):
		return describe(destination, dst, dstWrong)
	case srcTotal > dstTotal:
		return totalsDiffer(source, src, srcTotal, dstTotal)
	}
	return totalsDiffer(destination, dst, dstTotal, srcTotal)
}

// sum adds the lengths up. wrong is the first descriptor that can't be accepted, or len(list).
func sum(list []ports.Descriptor) (total uint64, wrong int) {
	var place ports.Place
	for i := range list {
		d := &list[i]
		if d.Bytes == 0 {
			continue
		}
		if total == 0 {
			place = d.Place
		}
		total += d.Bytes
		if d.Addr+d.Bytes < d.Bytes || total < d.Bytes || d.Place != place {
			return 0, i
		}
	}
	return total, len(list)
}

// describe says what is wrong with the descriptor at which sum stopped.
func describe(s side, list []ports.Descriptor, wrong int) error {
	d := list[wrong]
	if _, ok := d.End(); !ok {
		return fmt.Errorf("%s descriptor %d: address %#x + %d bytes %w", s, wrong, d.Addr, d.Bytes, ErrOverflow)
	}
	for _, first := range list[:wrong] {
		if first.Bytes > 0 {
			if first.Place != d.Place {
				return fmt.Errorf("%s descriptor %d is in %s, those before it in %s: %w", s, wrong, d.Place, first.Place, ErrPlaces)
			}
			break
		}
	}
	return fmt.Errorf("%s descriptor %d: the sum of the lengths up to here %w", s, wrong, ErrOverflow)
}

// totalsDiffer names the first descriptor of the longer list that has bytes for which the other list has no room.
func totalsDiffer(s side, list []ports.Descriptor, total, other uint64) error {
	at, left := 0, other
	for list[at].Bytes <= left {
		left -= list[at].Bytes
		at++
	}
	srcTotal, dstTotal := total, other
	if s == destination {
		srcTotal, dstTotal = other, total
	}
	return fmt.Errorf("%w: source %d, destination %d; %s descriptor %d is the first with bytes too many", ErrTotals, srcTotal, dstTotal, s, at)
}
