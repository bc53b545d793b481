package nixl

// #include "capi.h"
import "C"

import "time"

// bell wakes the engine's thread, which waits in C: that wakes it fastest.
type bell struct{ c C.kvn_bell }

// ring makes the present or the next wait return. Any thread.
func (b *bell) ring() { C.kvn_bell_ring(&b.c) }

// wait blocks until the bell was rung since the last wait. It may return for nothing.
func (b *bell) wait() { b.waitFor(-1) }

// waitFor blocks the calling thread until the bell was rung since its last wait, at most so long.
func (b *bell) waitFor(d time.Duration) { C.kvn_bell_wait(&b.c, C.int64_t(d)) }
