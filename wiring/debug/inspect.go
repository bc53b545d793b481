package debug

import (
	"context"
	"sync"
	"time"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
)

// Source is the agent that is shown.
type Source interface {
	Identity() ports.Identity
	BounceEnabled() bool
	Stats() agent.Stats
	ChannelCounters() map[string]uint64 // what the control channel counts, never nil
	Inspect(done func(transport.Inspection)) error
}

// answerWithin is how long a request waits for the reactor. A turn takes far less; a reactor that is stopped or stuck does not keep the rest from being shown.
const answerWithin = time.Second

// inspector asks the reactor, with at most one question under way whatever the number of requests: a reactor that is stuck collects no questions, and one that runs looks once for all who ask meanwhile.
type inspector struct {
	source Source
	clock  ports.Clock
	within time.Duration

	mu      sync.Mutex
	pending *question
}

type question struct {
	answered chan struct{}
	in       transport.Inspection // valid once answered
}

func (i *inspector) ask() (*question, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.pending != nil {
		return i.pending, nil
	}
	q := &question{answered: make(chan struct{})}
	err := i.source.Inspect(func(in transport.Inspection) { // in the reactor
		q.in = in
		close(q.answered)
		i.mu.Lock()
		i.pending = nil
		i.mu.Unlock()
	})
	if err != nil {
		return nil, err
	}
	i.pending = q
	return q, nil
}

// state looks at the agent.
func (i *inspector) state(ctx context.Context) State {
	ctx, cancel := context.WithTimeout(ctx, i.within)
	defer cancel()
	var in *transport.Inspection
	if q, err := i.ask(); err == nil {
		select {
		case <-q.answered:
			in = &q.in
		case <-ctx.Done():
		}
	}
	clock := clockAt{now: time.Now(), instant: i.clock.Now()}
	s := newState(i.source.Identity(), i.source.BounceEnabled(), i.source.Stats(), in, clock)
	s.Channel = i.source.ChannelCounters()
	return s
}
