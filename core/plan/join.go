package plan

// minJoined: pieces are joined when one in so many continues the one before it. Fewer are neighbours by chance: a list of pages of one length is shorter than one with longer ones here
// and there, which do not fit in it.
const minJoined = 4

// join replaces the pieces of a chunk that continue each other on this side, in the block and in memory, by stretches, if they are many: their addresses move up in addrs, and the parts that it
// returns describe them.
func (s *runBuilder) join(first int, parts []part) []part {
	if seen, n := s.continuing(first, parts); n*minJoined < seen {
		return parts
	}
	j := joiner{addrs: s.addrs, parts: s.joined[:0], next: first}
	for i := range parts {
		p := &parts[i]
		offset := uint64(p.offset)
		for k := first; k < p.end; k++ {
			j.add(s.addrs[k], offset, uint64(p.length))
			offset += uint64(p.step)
		}
		first = p.end
	}
	j.end()
	s.joined = j.parts
	return j.parts
}

// continuing is how many pieces of those that it looks at continue the one before. It looks at all of short parts and at the first ones of every sampled in long ones: joining or not, the
// runs are right.
func (s *runBuilder) continuing(first int, parts []part) (seen, n int) {
	const sample, sampled = 64, 256
	var next, place uint64 // where the piece before ends, in memory and in the block
	for i := range parts {
		p := &parts[i]
		a := s.addrs[first:p.end]
		if i > 0 && a[0] == next && uint64(p.offset) == place {
			n++
		}
		first = p.end
		length := uint64(p.length)
		next, place = a[len(a)-1]+length, p.at(len(a)-1)+length
		for ; len(a) > 0; a = a[min(len(a), sampled):] {
			look := a[:min(len(a), sample)]
			seen += len(look)
			if p.step != p.length {
				continue
			}
			before := look[0]
			for _, x := range look[1:] {
				if x == before+length {
					n++
				}
				before = x
			}
		}
	}
	return seen, n
}

// joiner makes stretches.
type joiner struct {
	addrs []uint64
	next  int // where the next stretch's address goes
	parts []part
	count int    // stretches in the last part
	last  uint64 // block offset of its last one

	addr, offset, length uint64 // the stretch that may go on; length 0: none
}

// add takes the next piece.
func (j *joiner) add(addr, offset, length uint64) {
	if addr == j.addr+j.length && offset == j.offset+j.length && j.length > 0 {
		j.length += length
		return
	}
	j.end()
	j.addr, j.offset, j.length = addr, offset, length
}

// end completes the stretch.
func (j *joiner) end() {
	if j.length == 0 {
		return
	}
	j.addrs[j.next] = j.addr
	j.next++
	if n := len(j.parts); n > 0 {
		p, step := &j.parts[n-1], uint32(j.offset-j.last)
		if uint64(p.length) == j.length && (j.count == 1 || p.step == step) {
			p.end, p.step, j.count, j.last = j.next, step, j.count+1, j.offset
			return
		}
	}
	j.parts = append(j.parts, part{end: j.next, offset: uint32(j.offset), length: uint32(j.length)})
	j.count, j.last = 1, j.offset
}
