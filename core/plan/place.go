package plan

// part is some neighbouring stretches of one side of a chunk that are equally long and stand at equal distances in its block.
type part struct {
	end          int    // index after the last one's address; the first is where the part before ends
	offset       uint32 // where in the block the first begins
	length, step uint32 // bytes of each, and from one to the next
}

// at is the block offset of number k.
func (p *part) at(k int) uint64 { return uint64(p.offset) + uint64(k)*uint64(p.step) }

// begins is where a piece of that many bytes begins in a block whose pieces so far end at end. It may lie beyond the block's last byte.
func begins(end, length uint64) uint64 {
	if length >= VectorBytes {
		return (end + Alignment - 1) &^ (Alignment - 1)
	}
	return end
}

// placer goes through a request's pieces and gives each its place in its chunk's block.
type placer struct {
	strip int    // of the next piece
	piece int    // the next piece
	rest  uint64 // what the chunk before left of it; 0: it is whole

	parts []part // of the present chunk
	block uint64 // where its pieces so far end
}

// place finds the parts of the next chunk, whose first piece is the next one, and moves on. The last piece may be cut: used is how many bytes of piece number last this chunk took if its rest is the next
// chunk's, else 0.
func (p *placer) place(strips []strip, c cut) (first, end int, used uint64) {
	p.parts, p.block = p.parts[:0], 0
	first = p.piece
	for left := int(c.pieces); left > 0; {
		s := &strips[p.strip]
		length, count := s.length, min(left, s.end-p.piece)
		if p.rest > 0 {
			length, count = p.rest, 1
		}
		switch {
		case count < left || length == c.last:
		case count > 1: // the last one is shorter than those before it
			count--
		default:
			p.rest = length - c.last
			p.append(c.last, 1)
			return first, p.piece + 1, c.last
		}
		p.append(length, count)
		left -= count
		p.piece += count
		p.rest = 0
		if p.piece == s.end {
			p.strip++
		}
	}
	return first, p.piece, 0
}

// append adds pieces of that length to the block.
func (p *placer) append(length uint64, count int) {
	begin, step := begins(p.block, length), begins(length, length)
	end := p.piece + count
	p.parts = append(p.parts, part{end: end, offset: uint32(begin), length: uint32(length), step: uint32(step)})
	p.block = begin + uint64(count-1)*step + length
}
