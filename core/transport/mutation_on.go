//go:build mutations

package transport

import (
	"slices"

	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/core/wire"
)

// mutation is the deliberate bug that is switched on, "" none. The simulator's mutation test switches on one after the other, to prove that its oracle sees each
// (docs/mutations.md). No other build has any of it.
type mutation struct{ name string }

// Mutations are the bugs that there are; each is guarded by a call of mutated with its name.
func Mutations() []string {
	return []string{
		"release staging on a failed write",
		"take a failed write for a success",
		"send DATA before the write's success",
		"send DRAIN while a write has no evidence",
		"drop staging under a running gather",
		"forget to give staging back",
		"tell source released while a gather runs",
		"tell quiesced at the logical end",
		"tell quiesced when a direct transfer fails",
		"succeed with one ACK missing",
		"reuse a request number",
		"state an oldest above requests in progress",
		"never repeat WANT",
		"never repeat DATA",
		"never repeat DRAIN",
		"answer a stray DRAIN_ACK by DRAIN",
		"take frames of a predecessor",
		"ACK before the scatter is done",
		"scatter a chunk again when DATA is repeated",
		"accept DATA for a region of another flow",
		"accept destinations outside registered memory",
		"accept runs outside the chunk",
		"forget a lost GRANT's credit",
		"free the regions of an expired flow",
		"free the region of a failed scatter",
		"answer DRAIN before the scatter ends",
		"keep the regions of a drained flow",
		"say nothing of an expired flow",
		"end a fence before the settle delay",
		"forget direct writes when a peer is fenced",
		"free a fenced peer's region while its scatter runs",
		"report nothing of the regions that a fence keeps",
		"take frames of a fenced peer, and answer them",
		"skip the last look before a scatter is launched",
		"quiesce a window while scatters run in it",
		"take the token of a closed window",
		"let a token reach outside its window",
		"forget that memory was in a receive window",
		"fail-stop for arena blocks in doubt",
		"deregister memory under copies that run",
		"tell quiesced when a direct transfer is cancelled",
		"keep the staging of a write that was never posted",
		"refuse bounce requests after all was given back",
		"take bounce requests beyond the limit on what is retained",
		"tell quiesced when the peer is fenced and not settled",
		"open a window over memory registered for direct use",
		"open a window over another",
		"register memory of a window for direct use",
		"take staging under a running gather",
		"keep gathered chunks' staging from those with a credit",
	}
}

// Mutate switches one of Mutations on. Before the first Poll.
func (t *Transport) Mutate(name string) {
	t.mutation.name = name
	t.registry.mutation.name = name
}

func (t *Transport) mutated(name string) bool { return t.mutation.name == name }

func (g *Registry) mutated(name string) bool { return g.mutation.name == name }

// endScatter takes a running scatter of a fenced peer for ended.
func (t *Transport) endScatter(rc *regionChunk) {
	i := slices.Index(t.scatters, rc)
	t.scatters = slices.Delete(t.scatters, i, i+1)
	t.onScattered(rc, drain.CopyCompleted)
}

// endGather takes the gather of a chunk without credit for ended, and returns the chunk; nil if there is none.
func (t *Transport) endGather() *chunk {
	for i, c := range t.gathers {
		if !c.credited() && c.req.state == requestActive {
			t.gathers = slices.Delete(t.gathers, i, i+1)
			c.gather = nil
			c.staging.Close(drain.Gather, drain.CopyCompleted)
			return c
		}
	}
	return nil
}

// anyFlow finds the flow that holds the DATA's region, whoever's it is, and makes the DATA its chunk's.
func (t *Transport) anyFlow(f *flow, d *wire.Data) *flow {
	for _, p := range t.order {
		for g := range p.flowList.All {
			for _, rc := range g.chunks {
				if rc.stateNow() == regionGranted && rc.region == d.Region {
					d.Chunk, d.Chunks = rc.index, uint32(len(g.chunks))
					return g
				}
			}
		}
	}
	return f
}
