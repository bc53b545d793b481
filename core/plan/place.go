package plan

// begins is where a piece of that many bytes begins in a block whose pieces so far end at end. It may lie beyond the block's last byte.
func begins(end, length uint64) uint64 {
	if length >= VectorBytes {
		return (end + Alignment - 1) &^ (Alignment - 1)
	}
	return end
}

// place finds where the batch's strips begin in a block whose pieces so far end at end, and returns the new end. ok is false when a piece alone is longer than
// limit; whether all fit, the end tells.
func (b *batch) place(end uint64, limit uint32) (newEnd uint64, ok bool) {
	first := 0
	for i := range b.strip[:b.strips] {
		s := &b.strip[i]
		if s.length > uint64(limit) {
			return 0, false
		}
		begin, step := begins(end, s.length), begins(s.length, s.length)
		s.offset, s.step = uint32(begin), uint32(step)
		end = begin + uint64(s.end-first-1)*step + s.length
		first = s.end
	}
	return end, true
}
