package nixl

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kvbounce/kvbounce/ports"
)

// verdict is what is known of a transfer. It is immutable, so that its two halves are read together.
type verdict struct {
	status ports.TransferStatus
	err    error
}

var (
	pending   = &verdict{status: ports.Pending}
	succeeded = &verdict{status: ports.Success}
)

// transfer is one read or write: a row of pieces, each of them one request of NIXL's.
//
// The reactor owns the first group of fields, the driver the second; verdict passes what is known from the driver to the reactor.
type transfer struct {
	released bool
	answered *verdict // what Status answered last

	verdict atomic.Pointer[verdict]

	link          *link
	op            operation
	local, remote []ports.Descriptor // of equal bytes pairwise, none empty; nil once every piece is posted or given up
	buffer        *[]ports.Descriptor
	next          int    // first descriptor that is not, or not wholly, posted
	offset        uint64 // bytes of it that are
	running       int    // pieces that NIXL may be moving
	unproved      int    // pieces that failed and may still move
	done          int    // pieces that succeeded
	abandoned     bool   // some pieces were not and will never be posted
	reason        error  // the first failure
}

// newTransfer is a transfer of nothing so far.
func newTransfer(op operation) *transfer {
	t := &transfer{op: op, answered: pending}
	t.verdict.Store(pending)
	return t
}

// failedAtOnce is a transfer that nothing was posted of.
func failedAtOnce(reason error) *transfer {
	t := newTransfer(opWrite)
	t.abandoned, t.reason = true, reason
	t.conclude()
	return t
}

// Status implements ports.Transfer.
func (t *transfer) Status() ports.TransferStatus {
	if !t.released {
		t.answered = t.verdict.Load()
	}
	return t.answered.status
}

// Err implements ports.Transfer.
func (t *transfer) Err() error {
	if !t.released {
		return t.verdict.Load().err
	}
	return t.answered.err
}

// Release implements ports.Transfer. The requests stay with the driver, which frees each one when it is known to have ended.
func (t *transfer) Release() { t.released = true }

// unposted reports whether pieces are left to be posted.
func (t *transfer) unposted() bool { return !t.abandoned && t.next < len(t.local) }

// abandon says that what is left will not be posted. Without anything left it only keeps the reason.
func (t *transfer) abandon(reason error) {
	if t.reason == nil {
		t.reason = reason
	}
	if t.unposted() {
		t.abandoned = true
	}
	t.freeLists()
}

// conclude draws the verdict from the counts. It reports whether the verdict changed. This is the one place that turns NIXL's answers into evidence.
func (t *transfer) conclude() (changed bool) {
	was := t.verdict.Load()
	is := was
	switch {
	case t.unproved > 0:
		is = &verdict{ports.FailedUnknown, fmt.Errorf("nixl: the transfer may still run: %w", t.reason)}
	case t.running > 0 || t.unposted():
		is = pending
	case !t.abandoned:
		is = succeeded
	case t.done > 0:
		is = &verdict{ports.FailedEnded, fmt.Errorf("nixl: the transfer ended in part: %w", t.reason)}
	default:
		is = &verdict{ports.FailedNothingPosted, fmt.Errorf("nixl: %w: %w", ports.ErrNothingPosted, t.reason)}
	}
	// An unproved transfer may only turn into a success, and nothing else that is final ever changes.
	if is.status == was.status || was.status.Ended() || was.status == ports.FailedUnknown && is.status != ports.Success {
		return false
	}
	t.verdict.Store(is)
	return true
}

// piecePosted, pieceSucceeded, pieceUnproved and pieceProved follow one piece: posted and running, or ended within its post; ended; failed in
// an unknown state; ended well after all. A piece that was proven not to be posted is no piece: the transfer is abandoned.
func (t *transfer) piecePosted()    { t.running++ }
func (t *transfer) pieceSucceeded() { t.running--; t.done++ }
func (t *transfer) pieceProved()    { t.unproved--; t.done++ }
func (t *transfer) pieceUnproved(reason error) {
	t.running--
	t.unproved++
	t.abandon(reason)
}

// limits bound one piece.
type limits struct {
	bytes       uint64
	descriptors int
}

// A cut is the next piece of a transfer, and where the one after it begins.
type cut struct {
	local, remote []ports.Descriptor
	next          int
	offset        uint64
}

// cut takes the next piece: as many descriptors as the limits allow, all with the same places' kinds, or a part of one that is too large. part is where that part is described.
func (t *transfer) cut(l limits, part *[2]ports.Descriptor) cut {
	first := t.local[t.next]
	if t.offset > 0 || first.Bytes > l.bytes {
		n := min(first.Bytes-t.offset, l.bytes)
		part[0], part[1] = slice(first, t.offset, n), slice(t.remote[t.next], t.offset, n)
		c := cut{local: part[:1], remote: part[1:], next: t.next, offset: t.offset + n}
		if c.offset == first.Bytes {
			c.next, c.offset = t.next+1, 0
		}
		return c
	}
	end, bytes := t.next, uint64(0)
	kinds := [2]ports.MemoryKind{first.Place.Kind, t.remote[t.next].Place.Kind}
	for end < len(t.local) && end-t.next < l.descriptors && t.local[end].Bytes <= l.bytes-bytes &&
		kinds == [2]ports.MemoryKind{t.local[end].Place.Kind, t.remote[end].Place.Kind} {
		bytes += t.local[end].Bytes
		end++
	}
	return cut{local: t.local[t.next:end], remote: t.remote[t.next:end], next: end}
}

// slice is n bytes of d from the offset on.
func slice(d ports.Descriptor, offset, n uint64) ports.Descriptor {
	d.Addr += offset
	d.Bytes = n
	return d
}

// listBuffers keeps the memory of descriptor lists: a direct transfer of 18432 pieces needs 885 KB for a few milliseconds.
var listBuffers = sync.Pool{New: func() any { return new([]ports.Descriptor) }}

// takeLists copies both lists without the empty pairs, and checks them. Its errors name the lowest descriptor that is wrong.
func (t *transfer) takeLists(local, remote []ports.Descriptor, own, peers *coverage) error {
	if len(local) != len(remote) {
		return fmt.Errorf("%d local and %d remote descriptors, want as many", len(local), len(remote))
	}
	t.buffer = listBuffers.Get().(*[]ports.Descriptor)
	if cap(*t.buffer) < 2*len(local) {
		*t.buffer = make([]ports.Descriptor, 2*len(local))
	}
	both := (*t.buffer)[:cap(*t.buffer)]
	half := len(both) / 2
	n, atLocal, atRemote := 0, 0, 0
	for i, d := range local {
		r := remote[i]
		switch {
		case d.Bytes != r.Bytes:
			return fmt.Errorf("descriptor %d: %d bytes here and %d at the peer, want equal", i, d.Bytes, r.Bytes)
		case d.Bytes == 0:
			continue
		case !own.covers(d, &atLocal):
			return notRegistered(i, d, "here")
		case !peers.covers(r, &atRemote):
			return notRegistered(i, r, "at the peer")
		}
		both[n], both[half+n] = d, r
		n++
	}
	t.local, t.remote = both[:n], both[half:half+n]
	return nil
}

func notRegistered(i int, d ports.Descriptor, where string) error {
	return fmt.Errorf("descriptor %d, %d bytes at %#x in %v: %w %s", i, d.Bytes, d.Addr, d.Place, ports.ErrNotRegistered, where)
}

// freeLists gives the lists back when nothing is left to post.
func (t *transfer) freeLists() {
	if t.buffer != nil {
		listBuffers.Put(t.buffer)
	}
	t.buffer, t.local, t.remote, t.next = nil, nil, nil, 0
}
