package plan

import (
	"slices"

	"github.com/kvbounce/kvbounce/ports"
)

// runBuilder makes the runs of one side of one chunk. It joins pieces in two steps. Pieces that follow each other without a gap both in the block and in
// this side's memory become one stretch (the other side need not continue). Stretches of equal length at constant distances, in the block and in memory, become one run; since any part
// of such a sequence is one too, taking the longest at each point gives the fewest runs.
type runBuilder struct {
	runs []ports.Run

	// The open stretch, which the next piece may continue. Length 0: none.
	addr           uint64
	offset, length uint32

	// The stretch before it, which ends the last run.
	lastAddr   uint64
	lastOffset uint32
}

// begin starts a chunk whose runs go to the memory of a former one.
func (b *runBuilder) begin(reuse []ports.Run) {
	*b = runBuilder{runs: reuse[:0]}
}

// add takes a batch's strips, which have their places, and the addresses of their pieces on this side.
func (b *runBuilder) add(addrs []uint64, strips []strip) {
	b.runs = slices.Grow(b.runs, len(addrs)) // each piece completes one stretch at most
	runs := b.runs[:cap(b.runs)]
	used := len(b.runs)
	addr, offset, length := b.addr, b.offset, b.length
	lastAddr, lastOffset := b.lastAddr, b.lastOffset
	run := &ports.Run{} // the last one, which the open stretch may join; nothing joins one of 0 bytes
	if used > 0 {
		run = &runs[used-1]
	}
	first := 0
	for i := range strips {
		s := &strips[i]
		nextOffset, nextLength := s.offset, uint32(s.length)
		part := addrs[first:s.end]
		first = s.end
		for at := 0; at < len(part); at++ {
			nextAddr := part[at]
			if nextAddr == addr+uint64(length) && nextOffset == offset+length {
				length += nextLength
				nextOffset += s.step
				continue
			}
			if length > 0 { // the open stretch is complete
				distance, apart := int64(addr-lastAddr), offset-lastOffset
				exact := (addr >= lastAddr) == (distance >= 0) // the distance fits 64 bits with its sign
				if length == run.Piece && exact && run.Pieces == 1 {
					run.Stride, run.Step, run.Pieces = distance, apart, 2
				} else if length == run.Piece && exact && run.Stride == distance && run.Step == apart {
					run.Pieces++
					if apart == s.step && length == nextLength && nextOffset == offset+apart {
						// The strip may go on like this for long.
						if more := follow(addr, part[at:], distance); more > 0 {
							run.Pieces += uint32(more)
							at += more
							addr, offset = part[at-1], offset+uint32(more)*apart
							nextAddr, nextOffset = part[at], offset+apart
						}
					}
				} else {
					run = &runs[used]
					used++
					// By field: a literal is built elsewhere and copied in wider words, which stalls.
					run.Offset, run.Addr, run.Stride = uint64(offset), addr, 0
					run.Piece, run.Pieces, run.Step, run.Table = length, 1, 0, ports.NoTable
				}
				lastAddr, lastOffset = addr, offset
			}
			addr, offset, length = nextAddr, nextOffset, nextLength
			nextOffset += s.step
		}
	}
	b.runs = runs[:used]
	b.addr, b.offset, b.length = addr, offset, length
	b.lastAddr, b.lastOffset = lastAddr, lastOffset
}

// follow counts the stretches that go on from addr at the stride, and that are seen to be complete because the address after them goes on too.
func follow(addr uint64, addrs []uint64, stride int64) (complete int) {
	inStep := 0
	for _, next := range addrs {
		if int64(next-addr) != stride || (next >= addr) != (stride >= 0) {
			break
		}
		addr = next
		inStep++
	}
	return max(inStep-1, 0)
}

// end returns the chunk's runs, at least one.
func (b *runBuilder) end() []ports.Run {
	// A piece that continues nothing completes the open stretch.
	b.add([]uint64{0}, []strip{{length: 1, end: 1, offset: b.offset + b.length + 1}})
	return b.runs
}
