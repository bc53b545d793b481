package agent

import (
	"sync/atomic"

	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/core/transport"
)

// Stats are an agent's counters and what it holds now.
type Stats struct {
	Counters map[string]uint64 // by the names of transport.Counter
	Routes   map[string]uint64 // by the names of Reason
	// Arena blocks that are in use, and those among them that have no evidence.
	BlocksHeld    uint64
	BytesHeld     uint64
	BytesRetained uint64
	Doubts        uint64 // accesses that failed without evidence
	// Unproved says of which peers these are, how much and since when: whom to fence.
	Unproved []transport.Unproved
	// BounceRefusal is why no bounce request is taken now (RETAIN_LIMIT), or empty.
	BounceRefusal string
}

// published is what the reactor lets other goroutines see.
type published struct{ blocks, bytes, retained, doubts atomic.Uint64 }

func (p *published) store(t drain.Totals) {
	p.blocks.Store(uint64(t.Blocks))
	p.bytes.Store(t.Bytes)
	p.retained.Store(t.DoubtfulBytes)
	p.doubts.Store(uint64(t.Doubts))
}

// Stats are a snapshot; counters of one event may be seen one without the other.
func (a *Agent) Stats() Stats {
	s := Stats{
		Counters: map[string]uint64{}, Routes: map[string]uint64{},
		BlocksHeld: a.published.blocks.Load(), BytesHeld: a.published.bytes.Load(), BytesRetained: a.published.retained.Load(), Doubts: a.published.doubts.Load(),
	}
	s.Unproved = a.transport.Unproved()
	if f := a.transport.BounceRefusal(); f != nil {
		s.BounceRefusal = f.Error()
	}
	a.transport.Counters().Each(func(name string, n uint64) { s.Counters[name] = n })
	for r := range reasons {
		s.Routes[r.String()] = a.router.count[r].Load()
	}
	return s
}

// Inspect hands over what the agent holds, peer by peer, for people who look from outside; done is called in the reactor and must not block. Any goroutine. After Finish it returns an error.
func (a *Agent) Inspect(done func(transport.Inspection)) error { return a.transport.Inspect(done) }

// Counter is one of the transport's counters.
func (a *Agent) Counter(c transport.Counter) uint64 { return a.transport.Counters().Get(c) }
