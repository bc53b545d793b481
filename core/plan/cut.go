package plan

import "fmt"

// shareTolerance: a chunk may miss its share of the request's bytes by 1/shareTolerance to keep a piece whole.
const shareTolerance = 16

// cut is where a chunk ends: its number of pieces, and how many bytes of the last one it takes.
type cut struct {
	last   uint64
	pieces uint32
}

// cutter decides which pieces, by their lengths alone, make which chunk.
type cutter struct {
	cuts  []cut
	sizes []uint32 // bytes of the same chunks' blocks

	limit  uint64 // most bytes of a block
	chunks uint64 // how many chunks to aim at
	taper  bool   // the first and the last chunk are half as long
	left   uint64 // bytes of the request in the open chunk and the later ones

	// The open chunk.
	share  uint64 // bytes that it should take
	bytes  uint64 // bytes that it has; less than share
	end    uint64 // end of its pieces in the block
	pieces uint32
	last   uint64 // length of its last piece
}

// reset forgets all chunks.
func (c *cutter) reset() { *c = cutter{cuts: c.cuts[:0], sizes: c.sizes[:0]} }

// cut makes the chunks of a request of that many bytes.
func (c *cutter) cut(lim Limits, total uint64, strips []strip) error {
	c.limit, c.chunks, c.left = lim.ChunkBytes, uint64(lim.Chunks), total
	if c.chunks == 0 && lim.Target > 0 {
		c.chunks = min(total/lim.Target+total%lim.Target/(lim.Target/2+1), MaxChunks)
	}
	c.taper = lim.Taper && max(c.chunks, divideUp(total, c.limit)) >= minTapered
	if needed := divideUp(total, c.limit); needed > MaxChunks {
		return fmt.Errorf("%w: %d bytes in chunks of at most %d need at least %d, want at most %d", ErrTooManyChunks, total, c.limit, needed, MaxChunks)
	}
	c.open()
	if err := c.add(strips); err != nil || c.pieces == 0 {
		return err
	}
	return c.close()
}

// open starts a chunk. What is left is shared anew each time, so that chunks that came out long or short leave no sliver at the end.
func (c *cutter) open() {
	wanted := uint64(1)
	if done := uint64(len(c.cuts)); c.chunks > done {
		wanted = c.chunks - done
	}
	wanted = max(wanted, divideUp(c.left, c.limit))
	share := divideUp(c.left, wanted)
	if c.taper && wanted > 1 {
		// In half chunks: the last one counts one, this one too if it is the first, all others two.
		halves := 2*wanted - 1
		if len(c.cuts) == 0 {
			share = divideUp(c.left, halves-1)
		} else {
			share = divideUp(c.left, halves) * 2
		}
	}
	c.share = min((share+Alignment-1)&^(Alignment-1), c.limit)
	c.bytes, c.end, c.pieces, c.last = 0, 0, 0, 0
}

// close ends the open chunk, which has pieces, and opens the next.
func (c *cutter) close() error {
	if len(c.cuts) == MaxChunks {
		return fmt.Errorf("%w: the request does not fit %d chunks of at most %d bytes", ErrTooManyChunks, MaxChunks, c.limit)
	}
	c.cuts = append(c.cuts, cut{last: c.last, pieces: c.pieces})
	c.sizes = append(c.sizes, uint32(c.end))
	c.left -= c.bytes
	c.open()
	return nil
}

// add takes the pieces of the request.
func (c *cutter) add(strips []strip) error {
	first := 0
	for i := range strips {
		length, count := strips[i].length, uint64(strips[i].end-first)
		first = strips[i].end
		for count > 0 {
			if n := c.fitting(length, count); n > 0 {
				c.takeAll(length, n)
				count -= n
				continue
			}
			if err := c.addOne(length); err != nil {
				return err
			}
			count--
		}
	}
	return nil
}

// fitting is how many of count pieces of that length the open chunk takes whole without having its share.
func (c *cutter) fitting(length, count uint64) uint64 {
	if length > c.limit {
		return 0
	}
	step, at := begins(length, length), begins(c.end, length)
	due, room := c.share-c.bytes-1, c.limit-length                                                    // room: at which place the last piece may begin
	if count*length <= due && at+(count-1)*step <= room && uint64(c.pieces)+count <= MaxChunkPieces { // all below 2^64: both factors are below 2^32
		return count
	}
	if at > room {
		return 0
	}
	return min(count, due/length, (room-at)/step+1, MaxChunkPieces-uint64(c.pieces))
}

// addOne takes a piece that may complete or exceed the open chunk.
func (c *cutter) addOne(length uint64) error {
	for length > 0 {
		part := c.part(length)
		if part > 0 {
			c.take(part)
			length -= part
		}
		if part == 0 || length > 0 || c.bytes >= c.share {
			if err := c.close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// part is how much of a piece the open chunk takes: all of it, the part after which the chunk ends, or nothing, when the chunk ends before it.
func (c *cutter) part(length uint64) uint64 {
	if c.pieces == MaxChunkPieces {
		return 0
	}
	room := uint64(0) // in the block
	if at := begins(c.end, length); at < c.limit {
		room = c.limit - at
	}
	due := c.share - c.bytes // to the chunk's share
	tolerance := c.share / shareTolerance
	if length <= room && (length <= due || length-due <= tolerance) {
		return length
	}
	part := min(room, due)
	empty := c.pieces == 0
	if !empty && part <= tolerance {
		return 0
	}
	if aligned := part &^ (Alignment - 1); aligned > 0 || !empty {
		return aligned
	}
	return part
}

func (c *cutter) take(length uint64) { c.takeAll(length, 1) }

func (c *cutter) takeAll(length, count uint64) {
	c.end = begins(c.end, length) + (count-1)*begins(length, length) + length
	c.bytes += count * length
	c.last = length
	c.pieces += uint32(count)
}

func divideUp(n, by uint64) uint64 {
	if n == 0 {
		return 0
	}
	return (n-1)/by + 1
}
