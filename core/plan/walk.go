package plan

import "github.com/kvbounce/kvbounce/ports"

// batchPieces is how many pieces pass from one stage of planning to the next at a time: few enough to stay in the first-level cache, enough that
// handing them over costs nothing.
const batchPieces = 256

// piece is a stretch of bytes that is contiguous on both sides. length 0: none.
type piece struct{ src, dst, length uint64 }

// batch holds consecutive pieces. Addresses are in one array per side, so that both sides' runs are built by the same code; lengths are kept once
// for a strip of neighbours that are equally long, as the pages of a cache are.
type batch struct {
	src, dst [batchPieces]uint64
	pieces   int
	strip    [batchPieces]strip
	strips   int
}

// strip is some neighbouring pieces of equal length.
type strip struct {
	length uint64 // bytes of each, at least 1
	end    int    // index in the batch after the last one; the first is where the strip before ends
	// Where in the block the first begins, and the distance to the next; both set by place.
	offset, step uint32
}

// push adds a piece.
func (b *batch) push(p piece) {
	if b.strips == 0 || b.strip[b.strips-1].length != p.length {
		b.strip[b.strips].length = p.length
		b.strips++
	}
	b.src[b.pieces], b.dst[b.pieces] = p.src, p.dst
	b.pieces++
	b.strip[b.strips-1].end = b.pieces
}

// walker goes through both lists side by side and yields the pieces.
type walker struct {
	src, dst []ports.Descriptor
	alike    bool // both lists are cut in the same way

	rest             piece  // comes before all else: the remainder of a piece that a chunk boundary cut
	open             piece  // not complete before something follows that does not continue it
	srcAt, dstAt     int    // the descriptors that follow it
	srcUsed, dstUsed uint64 // their bytes that belong to open or to pieces before it; 0 when alike
}

// fill replaces the batch's pieces by the next ones, at most limit of them and at most batchPieces; false when there are none.
func (w *walker) fill(b *batch, limit int) bool {
	b.pieces, b.strips = 0, 0
	limit = min(limit, batchPieces)
	if w.rest.length > 0 {
		b.push(w.rest)
		w.rest = piece{}
	}
	if w.alike {
		w.fillAlike(b, limit)
	} else {
		w.fillAny(b, limit)
	}
	if b.pieces < limit && w.open.length > 0 {
		b.push(w.open)
		w.open = piece{}
	}
	return b.pieces > 0
}

// fillAny is fill's loop for lists that may be cut differently.
func (w *walker) fillAny(b *batch, limit int) {
	src, dst, open := w.src, w.dst, w.open
	srcAt, dstAt, srcUsed, dstUsed := w.srcAt, w.dstAt, w.srcUsed, w.dstUsed
	for b.pieces < limit && srcAt < len(src) && dstAt < len(dst) {
		s, d := &src[srcAt], &dst[dstAt]
		next := piece{src: s.Addr + srcUsed, dst: d.Addr + dstUsed, length: s.Bytes - srcUsed}
		if dstLeft := d.Bytes - dstUsed; next.length == dstLeft {
			srcAt, srcUsed = srcAt+1, 0
			dstAt, dstUsed = dstAt+1, 0
		} else if next.length < dstLeft {
			srcAt, srcUsed = srcAt+1, 0
			dstUsed += next.length
		} else {
			next.length = dstLeft
			srcUsed += dstLeft
			dstAt, dstUsed = dstAt+1, 0
		}
		switch {
		case next.length == 0:
		case next.src == open.src+open.length && next.dst == open.dst+open.length:
			open.length += next.length
		default:
			if open.length > 0 {
				b.push(open)
			}
			open = next
		}
	}
	w.open = open
	w.srcAt, w.dstAt, w.srcUsed, w.dstUsed = srcAt, dstAt, srcUsed, dstUsed
}

// fillAlike is fillAny for lists whose descriptors have the same lengths, the usual case. It is written out for speed: one index, no calls, everything in registers.
func (w *walker) fillAlike(b *batch, limit int) {
	src := w.src[w.srcAt:]
	dst := w.dst[w.srcAt:][:len(src)]
	at := 0
	for ; w.open.length == 0 && at < len(src); at++ {
		w.open = piece{src[at].Addr, dst[at].Addr, src[at].Bytes}
	}
	open, n, strips := w.open, b.pieces, b.strips
	stripLength := uint64(0)
	if strips > 0 {
		stripLength = b.strip[strips-1].length
	}
	for ; at < len(src) && n < limit; at++ {
		s, d := &src[at], &dst[at]
		if s.Bytes == 0 {
			continue
		}
		if s.Addr == open.src+open.length && d.Addr == open.dst+open.length {
			open.length += s.Bytes
			continue
		}
		if open.length != stripLength {
			if strips > 0 {
				b.strip[strips-1].end = n
			}
			stripLength = open.length
			b.strip[strips].length = stripLength
			strips++
		}
		b.src[n], b.dst[n] = open.src, open.dst
		n++
		open = piece{s.Addr, d.Addr, s.Bytes}
	}
	if strips > 0 {
		b.strip[strips-1].end = n
	}
	w.srcAt += at
	w.open, b.pieces, b.strips = open, n, strips
}

// clip shortens the last piece of the batch to that many bytes; the rest of it will be the next batch's first piece. false: it is not that long.
func (w *walker) clip(b *batch, length uint64) bool {
	last := &b.strip[b.strips-1]
	if last.length < length {
		return false
	}
	if last.length > length {
		b.pieces--
		p := piece{b.src[b.pieces], b.dst[b.pieces], length}
		w.rest = piece{p.src + length, p.dst + length, last.length - length}
		if last.end--; b.strips == 1 && last.end == 0 || b.strips > 1 && last.end == b.strip[b.strips-2].end {
			b.strips--
		}
		b.push(p)
	}
	return true
}
