package plan

import (
	"math/bits"
	"slices"

	"github.com/kvbounce/kvbounce/ports"
)

// pieceList is a request as pieces: stretches of bytes that are contiguous on both sides. Addresses stand in one array per side, so that both sides' runs are built by the same
// code, and are all that building runs reads: the descriptor lists, three times as long, are gone through once.
type pieceList struct {
	src, dst []uint64
	strips   []strip
}

// strip is some neighbouring pieces of equal length, as the pages of a cache are.
type strip struct {
	length uint64 // bytes of each, at least 1
	end    int    // index after the last one; the first is where the strip before ends
}

// reset makes room for that many pieces.
func (l *pieceList) reset(pieces int) {
	l.src, l.dst, l.strips = sized(l.src, pieces), sized(l.dst, pieces), l.strips[:0]
}

// sized is list with that length, its content undefined.
func sized[T any](list []T, length int) []T {
	if cap(list) < length {
		return make([]T, length)
	}
	return list[:length]
}

// fillAlike takes lists whose descriptors have the same lengths, the usual case, and checks them on the way. ok is false when they are not cut alike or anything is wrong with them. A hot
// path: one index, no calls while lengths stay the same, everything in registers.
func (l *pieceList) fillAlike(src, dst []ports.Descriptor) (total uint64, ok bool) {
	if len(src) != len(dst) {
		return 0, false
	}
	l.reset(len(src))
	srcPlace, dstPlace := firstPlace(src), firstPlace(dst)
	toSrc, toDst := l.src, l.dst[:len(l.src)]
	var open, length uint64                  // bytes of the last piece, which may go on, and of those of its strip
	endSrc, endDst := ^uint64(0), ^uint64(0) // where it ends; no address to begin with
	n := 0
	dst = dst[:len(src)]
	for i := range src {
		s, d := &src[i], &dst[i]
		bytes := s.Bytes
		if bytes != d.Bytes {
			return 0, false
		}
		if bytes == 0 {
			continue
		}
		fromSrc, fromDst := s.Addr, d.Addr
		goesOn := fromSrc == endSrc && fromDst == endDst
		endSrc, endDst = fromSrc+bytes, fromDst+bytes
		if endSrc < bytes || endDst < bytes || s.Place != srcPlace || d.Place != dstPlace {
			return 0, false
		}
		if goesOn {
			open += bytes
			continue
		}
		if open != length {
			l.endStrip(length, n-1)
			length = open
		}
		toSrc[n], toDst[n] = fromSrc, fromDst
		n++
		open = bytes
	}
	return l.end(n, open, length)
}

// end completes a list of n pieces, the last of which has open bytes and those before it length, and adds them up. ok is false when the sum does not fit 64 bits.
func (l *pieceList) end(n int, open, length uint64) (total uint64, ok bool) {
	if open != length {
		l.endStrip(length, n-1)
	}
	l.endStrip(open, n)
	l.src, l.dst = l.src[:n], l.dst[:n]
	first := 0
	for _, s := range l.strips {
		over, bytes := bits.Mul64(s.length, uint64(s.end-first))
		if total += bytes; over > 0 || total < bytes {
			return 0, false
		}
		first = s.end
	}
	return total, true
}

// endStrip notes that the strip of that length, if there was one, ends before piece end.
func (l *pieceList) endStrip(length uint64, end int) {
	if length > 0 {
		l.strips = append(l.strips, strip{length, end})
	}
}

// fillAny takes lists that may be cut differently. ok is false when anything is wrong with them.
func (l *pieceList) fillAny(src, dst []ports.Descriptor) (total uint64, ok bool) {
	l.reset(len(src) + len(dst))
	srcPlace, dstPlace := firstPlace(src), firstPlace(dst)
	var atSrc, leftSrc, atDst, leftDst uint64 // of the present descriptors
	var open, length uint64                   // as in fillAlike
	endSrc, endDst := ^uint64(0), ^uint64(0)
	n, i, j := 0, 0, 0
	toSrc, toDst := l.src, l.dst[:len(l.src)]
lists:
	for {
		for leftSrc == 0 {
			if i == len(src) {
				break lists
			}
			d := &src[i]
			i++
			atSrc, leftSrc = d.Addr, d.Bytes
			if leftSrc > 0 && (atSrc+leftSrc < leftSrc || d.Place != srcPlace) {
				return 0, false
			}
		}
		for leftDst == 0 {
			if j == len(dst) {
				break lists
			}
			d := &dst[j]
			j++
			atDst, leftDst = d.Addr, d.Bytes
			if leftDst > 0 && (atDst+leftDst < leftDst || d.Place != dstPlace) {
				return 0, false
			}
		}
		bytes := min(leftSrc, leftDst)
		if atSrc == endSrc && atDst == endDst {
			open += bytes
		} else {
			if open != length {
				l.endStrip(length, n-1)
				length = open
			}
			toSrc[n], toDst[n] = atSrc, atDst
			n++
			open = bytes
		}
		atSrc, leftSrc = atSrc+bytes, leftSrc-bytes
		atDst, leftDst = atDst+bytes, leftDst-bytes
		endSrc, endDst = atSrc, atDst
	}
	if leftSrc+leftDst > 0 || hasBytes(src[i:]) || hasBytes(dst[j:]) {
		return 0, false
	}
	return l.end(n, open, length)
}

// firstPlace is the place of the first descriptor that has bytes.
func firstPlace(list []ports.Descriptor) ports.Place {
	for i := range list {
		if list[i].Bytes > 0 {
			return list[i].Place
		}
	}
	return ports.Place{}
}

func hasBytes(list []ports.Descriptor) bool {
	return slices.ContainsFunc(list, func(d ports.Descriptor) bool { return d.Bytes > 0 })
}
