package nixl

// #include "capi.h"
import "C"

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// restAfter is how long the thread must have waited before for the next wait to be one of a thread at rest.
const restAfter = 2 * time.Millisecond

// bell wakes the engine's thread.
type bell struct {
	c      C.kvn_bell
	parked atomic.Bool
	unpark chan struct{} // holds one
	atRest bool          // the thread's
}

func newBell() bell { return bell{unpark: make(chan struct{}, 1)} }

// ring makes the present or the next wait return. Any thread.
func (b *bell) ring() {
	C.kvn_bell_ring(&b.c)
	if b.parked.Load() {
		select {
		case b.unpark <- struct{}{}:
		default:
		}
	}
}

// waitFor blocks the calling thread until the bell was rung since its last wait, at most so long.
func (b *bell) waitFor(d time.Duration) { C.kvn_bell_wait(&b.c, C.int64_t(d)) }

// wait blocks until the bell was rung since the last wait. It may return for nothing.
//
// A thread that sits in C is woken fastest. But while one does for less than 10 ms at a time, as when the reactor drives an idle engine every 5 ms, Go's monitor thread (sysmon) wakes
// some thousand times a second to look after it, which takes 2 to 5 % of a core. A parked goroutine costs nothing, so a thread that was not needed for a while waits as one.
func (b *bell) wait() {
	began := time.Now()
	if b.atRest {
		b.park()
	} else {
		C.kvn_bell_wait(&b.c, -1)
	}
	b.atRest = time.Since(began) >= restAfter
}

func (b *bell) park() {
	rung := (*uint32)(unsafe.Pointer(&b.c.rung))
	b.parked.Store(true)
	if atomic.SwapUint32(rung, 0) == 0 {
		<-b.unpark
		atomic.StoreUint32(rung, 0)
	}
	b.parked.Store(false)
}
