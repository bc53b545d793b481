package plan

// reach is a range of memory.
type reach struct {
	begin, end uint64
	run        uint32 // to which run it belongs, where that matters
}

// reachSorter sorts ranges by their begin, byte by byte from the lowest (radix sort): with page addresses only two to four of the bytes differ at all.
type reachSorter struct {
	list    []reach
	scratch []reach
}

func (s *reachSorter) sort() {
	if len(s.list) == 0 {
		return
	}
	s.scratch = sized(s.scratch, len(s.list))
	differ := uint64(0)
	for i := range s.list {
		differ |= s.list[i].begin ^ s.list[0].begin
	}
	for shift := 0; shift < 64; shift += 8 {
		if byte(differ>>shift) != 0 {
			s.sortByte(shift)
		}
	}
}

// sortByte orders by one byte of begin and leaves equal ones as they are.
func (s *reachSorter) sortByte(shift int) {
	var at [256]uint32 // where the next of each byte value goes
	for i := range s.list {
		at[byte(s.list[i].begin>>shift)]++
	}
	sum := uint32(0)
	for i, count := range at {
		at[i] = sum
		sum += count
	}
	for i := range s.list {
		r := &s.list[i]
		to := &at[byte(r.begin>>shift)]
		s.scratch[*to] = *r
		*to++
	}
	s.list, s.scratch = s.scratch, s.list
}

// overlap sorts and reports whether two ranges share a byte: if any two do, then two neighbours do.
func (s *reachSorter) overlap() bool {
	s.sort()
	for i := 1; i < len(s.list); i++ {
		if s.list[i].begin < s.list[i-1].end {
			return true
		}
	}
	return false
}
