package session

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// good meets every requirement.
var good = Profile{
	OwnershipHere: true, OwnershipPeer: true, RealEngine: true, TransferTimeout: 30 * second, GenerationFirst: true, Asynchronous: true, PipelineParallel: 1, ContextParallel: 1,
}

func TestProfile(t *testing.T) {
	require.NoError(t, good.Validate())
	mpi := good
	mpi.MPI, mpi.MPIThreadsMultiple = true, true
	require.NoError(t, mpi.Validate())
	for requirement, spoil := range map[string]func(*Profile){
		"this side is ownership-capable":             func(p *Profile) { p.OwnershipHere = false },
		"the peer is ownership-capable":              func(p *Profile) { p.OwnershipPeer = false },
		"the engine is real":                         func(p *Profile) { p.RealEngine = false },
		"the transfer timeout is finite and above 0": func(p *Profile) { p.TransferTimeout = 0 },
		"retries are off":                            func(p *Profile) { p.Retries = true },
		"generation-first":                           func(p *Profile) { p.GenerationFirst = false },
		"asynchronous transfers":                     func(p *Profile) { p.Asynchronous = false },
		"pipeline parallelism is 1":                  func(p *Profile) { p.PipelineParallel = 2 },
		"context parallelism is 1":                   func(p *Profile) { p.ContextParallel = 0 },
		"not layer-wise":                             func(p *Profile) { p.LayerWise = true },
		"not pipelined":                              func(p *Profile) { p.Pipelined = true },
		"MPI provides MPI_THREAD_MULTIPLE":           func(p *Profile) { p.MPI = true },
	} {
		t.Run(requirement, func(t *testing.T) {
			p := good
			spoil(&p)
			err := p.Validate()
			require.ErrorIs(t, err, ErrProfile)
			var u *Unmet
			require.ErrorAs(t, err, &u)
			require.Equal(t, requirement, u.Requirement)
			require.NotEmpty(t, u.Remedy)
			require.Len(t, err.(interface{ Unwrap() []error }).Unwrap(), 2, "that one alone")
		})
	}
	all := Profile{Retries: true, LayerWise: true, Pipelined: true, MPI: true}.Validate()
	require.Len(t, all.(interface{ Unwrap() []error }).Unwrap(), 13, "all are listed at once")
	require.True(t, errors.Is(all, ErrProfile))
}
