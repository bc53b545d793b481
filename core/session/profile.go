package session

import (
	"errors"
	"fmt"
	"time"
)

// Profile is what must be known of a deployment before memory is retired by evidence alone (protocol.md, 8).
type Profile struct {
	OwnershipHere      bool // this side's bounce path is on: it keeps the ledger and answers DRAIN
	OwnershipPeer      bool // so is the other's, by its handshake
	RealEngine         bool // the engine moves bytes between processes
	TransferTimeout    time.Duration
	Retries            bool // a failed transfer is tried again with the same memory
	GenerationFirst    bool // the generation side opens its windows before the context side sends
	Asynchronous       bool // transfers do not block the engine's loop
	PipelineParallel   int
	ContextParallel    int
	LayerWise          bool // a request's layers are sent one by one as they are computed
	Pipelined          bool // a request's chunks are sent while others are computed
	MPI                bool
	MPIThreadsMultiple bool // MPI_THREAD_MULTIPLE is provided
}

// Unmet is one requirement that a profile does not meet.
type Unmet struct{ Requirement, Remedy string }

func (u *Unmet) Error() string { return u.Requirement + ": " + u.Remedy }

// ErrProfile is wrapped by Validate's error.
var ErrProfile = errors.New("the deployment does not meet the ownership profile")

// Validate returns every unmet requirement at once, each an *Unmet with its remedy, joined under ErrProfile; nil when all are met.
func (p Profile) Validate() error {
	errs := []error{ErrProfile}
	need := func(ok bool, requirement, remedy string, args ...any) {
		if !ok {
			errs = append(errs, &Unmet{requirement, fmt.Sprintf(remedy, args...)})
		}
	}
	need(p.OwnershipHere, "this side is ownership-capable", "set KVBOUNCE_ENABLE=1 here, and see the log for why bounce did not start if it is set")
	need(p.OwnershipPeer, "the peer is ownership-capable", "set KVBOUNCE_ENABLE=1 there, with the same CONTROL and the same version as here")
	need(p.RealEngine, "the engine is real", "use the NIXL engine: an in-process engine proves nothing of other processes")
	need(p.TransferTimeout > 0, "the transfer timeout is finite and above 0", "it is %v: set the engine's transfer timeout, as KVBOUNCE_REQUEST_TIMEOUT is", p.TransferTimeout)
	need(!p.Retries, "retries are off", "a retry would send into memory whose first transfer may still run: turn retries of transfers off")
	need(p.GenerationFirst, "generation-first", "let the generation side allocate and open its window before the context side sends")
	need(p.Asynchronous, "asynchronous transfers", "use the asynchronous transceiver: a blocked loop can't ask for quiescence")
	need(p.PipelineParallel == 1, "pipeline parallelism is 1", "it is %d: use tensor parallelism instead", p.PipelineParallel)
	need(p.ContextParallel == 1, "context parallelism is 1", "it is %d: use tensor parallelism instead", p.ContextParallel)
	need(!p.LayerWise, "not layer-wise", "send a request's layers together, when its prefill is complete")
	need(!p.Pipelined, "not pipelined", "send a request when its prefill is complete")
	need(!p.MPI || p.MPIThreadsMultiple, "MPI provides MPI_THREAD_MULTIPLE", "initialize MPI with MPI_Init_thread(MPI_THREAD_MULTIPLE), or do not use it")
	if len(errs) == 1 {
		return nil
	}
	return errors.Join(errs...)
}
