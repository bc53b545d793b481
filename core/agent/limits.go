package agent

import (
	"github.com/kvbounce/kvbounce/core/plan"
	"github.com/kvbounce/kvbounce/ports"
)

// What a chunk should have by default, by what bounds the path (docs/planner.md has the measurements).
const (
	// hostChunkTarget: copies of host memory share the caches and the memory's rate with the engine's, so that chunks that fit the caches and overlap well are best.
	hostChunkTarget = 8 << 20
	// deviceChunkTarget: a device's kernels and its link need large chunks, since each costs some 10 µs to start and to see done: two of 24 MiB or more are best on one device, and close to the best
	// on two (gpu.md).
	deviceChunkTarget = 32 << 20
)

// Limits is how an agent cuts requests for a peer: into chunks of about target bytes, 0 for the default of the path, that keep to the chunk limit, 0 for none. devices says that both sides' arenas are
// device memory.
func Limits(target, chunkLimit uint64, devices bool) plan.Limits {
	switch {
	case target > 0:
	case devices:
		target = deviceChunkTarget
	default:
		target = hostChunkTarget
	}
	if chunkLimit == 0 {
		chunkLimit = plan.MaxChunkBytes
	}
	return plan.Limits{ChunkBytes: min(chunkLimit, plan.MaxChunkBytes), Target: target, Taper: true}
}

// bothDevices reports whether both sides of the path to a peer are device memory.
func (a *Agent) bothDevices(v *peerView) bool {
	return a.arena != nil && a.arena.memory.Place.Kind == ports.Device && v.arena == ports.Device
}
