package ports

import "errors"

// Errors of a GpuCompute.
var (
	// ErrBusy: every copy context is in use. Nothing was launched; trying again later is right.
	ErrBusy = errors.New("every copy context is in use")
	// ErrNotLaunched says, as proof, that the copy that failed with it was not and will not be started.
	ErrNotLaunched = errors.New("the copy was not launched")
)

// CopyStatus is what is known of a gather or scatter, or of an event of the caller's.
type CopyStatus uint8

// The statuses of an Event. CopyDone and CopyFailed are final.
const (
	// CopyPending: it may be running, or is queued.
	CopyPending CopyStatus = iota
	// CopyDone: every byte is in place, visible to the engine and to later copies, and nothing of it touches memory any more. It is evidence.
	CopyDone
	// CopyFailed: the device failed. Parts of the copy may still run. It proves nothing.
	CopyFailed
)

// Event tells when a copy ended, or, made by the caller, when its memory is ready. Reactor.
type Event interface {
	// Status never blocks. Once it answered CopyDone or CopyFailed the event's copy context is free for others, and it goes on answering the same.
	Status() CopyStatus
	// Err is the reason of CopyFailed, else nil.
	Err() error
}

// Arena is the memory that holds bounce blocks.
type Arena struct {
	Base  uint64 // address of the first byte, aligned to at least 4096
	Bytes uint64
	Place Place
}

// GpuCompute owns an arena and gathers and scatters between it and the application's memory, which is in the same place.
//
// AllocArena, FreeArena and Close may be called from any goroutine and may block. Gather and Scatter are the reactor's and never block. The order of two copies is not
// promised, nor is it between a copy and the caller's own work on the device: whoever needs an order waits for an event first.
type GpuCompute interface {
	// Contexts is how many copies can be under way at once, at least 1.
	Contexts() int

	// AllocArena maps at least this many bytes. The content is undefined.
	AllocArena(bytes uint64) (Arena, error)
	// FreeArena unmaps it. The caller must hold evidence that nothing touches it any more.
	FreeArena(Arena) error

	// Gather copies each piece from the application's memory to its place in the block that begins at address block; Scatter copies the other way. runs must be
	// valid (wire's rules for runs) and must not change until the event is final: the adapter may read them until then. Pieces of one copy must not overlap at their destination.
	//
	// On success the event tells the end. ErrBusy and errors that wrap ErrNotLaunched prove that nothing was started; any other error proves nothing.
	Gather(runs Runs, block uint64) (Event, error)
	Scatter(runs Runs, block uint64) (Event, error)

	// Close gives the contexts back. Copies under way are waited for where the device allows it. Calling it again does nothing.
	Close() error
}
