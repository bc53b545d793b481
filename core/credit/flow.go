package credit

import (
	"math/bits"

	"github.com/kvbounce/kvbounce/core/buddy"
	"github.com/kvbounce/kvbounce/core/list"
)

// maxClasses is how many block orders there are at most.
const maxClasses = 23

// It follows from how many granules an arena has at most.
var _ = [1]struct{}{}[1<<(maxClasses-1)-buddy.MaxGranules]

// flowState is where a flow is.
type flowState uint8

const (
	// outside the ring: nothing pending, or at its window.
	outside flowState = iota
	// queued in the ring.
	queued
	// starving: in the ring, with a block held for its first chunk.
	starving
	// closed for ever.
	closed
)

// Flow is one request's part in the scheduler.
type Flow struct {
	// Owner is the caller's.
	Owner any

	state  flowState
	chunks []uint32 // bytes by chunk
	next   int      // the first ungranted chunk
	taken  uint8    // bit i: chunk next+i was granted; bit 0 never is
	// outstanding is how many granted blocks were not returned.
	outstanding int

	// The place in the ring, and in the queue of its class.
	place uint64
	class int
	node  list.Node[Flow]

	// counting how often its first chunk was passed over: since so many grants, with so many flows before it. It goes on when the flow is granted a later chunk, and
	// starts anew with another first chunk or after the flow left the ring.
	counting      bool
	since, before uint64
}

// class is the order of the blocks that hold so many bytes.
func (a *Arena) class(bytes uint64) int {
	return bits.Len64((bytes - 1) / a.trees.Granule())
}

// bytesOf is the size of a chunk, ahead of the first ungranted one.
func (f *Flow) bytesOf(ahead int) uint64 { return uint64(f.chunks[f.next+ahead]) }

// pending reports whether a chunk may be granted: within the look-ahead, there, and not granted.
func (f *Flow) pending(ahead int) bool {
	return f.next+ahead < len(f.chunks) && f.taken>>ahead&1 == 0
}

// smallestClass is the smallest class among the chunks that may be granted next.
func (f *Flow) smallestClass(a *Arena) int {
	smallest := maxClasses - 1
	for i := range lookAhead {
		if f.pending(i) {
			smallest = min(smallest, a.class(f.bytesOf(i)))
		}
	}
	return smallest
}

// firstOf is the first chunk that may be granted and is of a class below limit. There is one: the flow's class is.
func (f *Flow) firstOf(a *Arena, limit int) int {
	for i := range lookAhead {
		if f.pending(i) && a.class(f.bytesOf(i)) < limit {
			return i
		}
	}
	panic("credit: a flow stands in a queue that none of its chunks belongs to")
}

// take marks a chunk as granted.
func (f *Flow) take(ahead int) {
	f.taken |= 1 << ahead
	for f.taken&1 != 0 {
		f.taken >>= 1
		f.next++
	}
}
