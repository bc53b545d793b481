package credit

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/list"
)

// scanning is the straightforward scheduler: a ring of flows in the order of their turns, gone through on every grant until a chunk fits. It grants what Scheduler grants, but holds nothing for anybody.
type scanning struct {
	arena  *Arena
	window int
	ring   list.List[Flow]
}

func (s *scanning) open(chunks []uint32) {
	f := &Flow{chunks: chunks}
	f.node.Of = f
	s.ring.Push(&f.node)
}

func (s *scanning) grant() (Grant, bool) {
	largest := s.arena.largest(ForGrant)
	if largest == 0 {
		return Grant{}, false
	}
	for f := range s.ring.All {
		if f.outstanding == s.window {
			continue
		}
		for ahead := range lookAhead {
			if !f.pending(ahead) || f.bytesOf(ahead) > largest {
				continue
			}
			g := Grant{Flow: f, Chunk: f.next + ahead}
			g.Block, _ = s.arena.Alloc(f.bytesOf(ahead), ForGrant)
			f.take(ahead)
			f.outstanding++
			s.ring.Push(&f.node)
			return g, true
		}
	}
	return Grant{}, false
}

// The arena of the benchmark is the default one. Flows of 32 MiB a chunk stand among flows of 1 MiB a chunk.
const (
	benchArena  = 512 * mib
	benchChunk  = 40 * mib
	benchWindow = 8
	benchChunks = 1 << 27 // of all flows: more than are granted in a second
)

// BenchmarkGrant has every flow want more than the arena holds. One step gives the oldest block back and grants until nothing fits; the time is that of a grant with all that it takes.
func BenchmarkGrant(b *testing.B) {
	for _, percent := range []int{0, 10, 90} {
		for _, flows := range []int{10, 1000, 100_000} {
			small, large := sizes(benchChunks/flows, mib), sizes(benchChunks/flows, 32*mib)
			open := func(open func(chunks []uint32)) {
				for i := range flows {
					if i%10 < percent/10 {
						open(large)
					} else {
						open(small)
					}
				}
			}
			name := fmt.Sprintf("large=%d%%/flows=%d/", percent, flows)
			b.Run(name+"scanning", func(b *testing.B) {
				a := benchmarkArena(b)
				s := &scanning{arena: a, window: benchWindow}
				open(s.open)
				churn(b, a, s.grant, func(f *Flow) { f.outstanding-- })
			})
			b.Run(name+"scheduler", func(b *testing.B) {
				a := benchmarkArena(b)
				s := NewScheduler(a, benchWindow)
				open(func(chunks []uint32) { s.Open(nil, chunks) })
				churn(b, a, s.Next, s.Returned)
			})
		}
	}
}

func benchmarkArena(b *testing.B) *Arena {
	a, err := NewArena(benchArena, mib, benchChunk)
	require.NoError(b, err)
	return a
}

// churn frees the oldest block and grants what fits then, until that gave b.N grants.
func churn(b *testing.B, a *Arena, next func() (Grant, bool), returned func(*Flow)) {
	var live [benchArena / mib]Grant // a ring, large enough for all blocks that can be
	first, end := 0, 0
	fill := func() {
		for g, ok := next(); ok; g, ok = next() {
			live[end%len(live)] = g
			end++
		}
	}
	fill()
	b.ReportAllocs()
	b.ResetTimer()
	for begin := end; end-begin < b.N; {
		g := &live[first%len(live)]
		first++
		a.Free(g.Block)
		returned(g.Flow)
		fill()
	}
}
