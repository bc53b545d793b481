package wiring

import (
	"context"

	"go.uber.org/fx"

	"github.com/kvbounce/kvbounce/adapters/sim"
	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/ports"
)

// Host provides an *agent.Agent over host memory with NIXL as its engine. The application supplies Params. The reactor runs between the application's
// start and stop: AddPeer and whatever else waits for it must not be called in a constructor or fx.Invoke, but in an OnStart hook. Stopping waits as Node.Close does, up to CLOSE_DEADLINE, which by
// default is longer than fx's StopTimeout.
var Host = fx.Module("kvbounce", fx.Provide(provide))

// Memory is Host with an in-process engine and control channel: it provides the *sim.World that they live in, and agents of one process that are
// to reach each other must share it (fx.Decorate or fx.Replace it with a common one). It needs no NIXL.
var Memory = fx.Module("kvbounce-memory", fx.Provide(NewWorld), fx.Decorate(func(p Params, w *sim.World) Params {
	p.World = w
	return p
}), fx.Provide(provide))

// CUDA is Host with the application's memory and the arena on a GPU: the one that Params.Place names, or else the first. It needs a build with the tag cuda.
var CUDA = fx.Module("kvbounce-cuda", fx.Decorate(func(p Params) Params {
	p.Place.Kind = ports.Device
	return p
}), fx.Provide(provide))

// World is where in-process agents live.
type World = sim.World

// NewWorld makes a World for in-process agents.
func NewWorld() *World { return sim.NewRealTime(NewClock()) }

// provide builds an agent and ties its reactor to the application's life.
func provide(p Params, life fx.Lifecycle) (*agent.Agent, error) {
	a, err := build(p)
	if err != nil {
		return nil, err
	}
	var node *Node
	life.Append(fx.Hook{
		OnStart: func(context.Context) error {
			node = a.start()
			return nil
		},
		OnStop: func(ctx context.Context) error {
			closed := make(chan error, 1)
			go func() { closed <- node.Close() }()
			select {
			case err := <-closed:
				return err
			case <-ctx.Done():
				// Closing goes on until CLOSE_DEADLINE. Give the application a longer StopTimeout to see its end.
				return ctx.Err()
			}
		},
	})
	return a.agent, nil
}
