package credit

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// scanning is the straightforward scheduler: one list of flows, gone through on every grant until a chunk fits. Its order of grants is the Scheduler's, holds excepted: it has none.
type scanning struct {
	arena  *Arena
	window int
	turns  []*scanned
}

type scanned struct {
	chunks []uint32
	next   int
	taken  uint8
	out    int
}

func (s *scanning) open(chunks []uint32) *scanned {
	f := &scanned{chunks: chunks}
	s.turns = append(s.turns, f)
	return f
}

// grant goes round until a flow below its window has a chunk that fits.
func (s *scanning) grant() (*scanned, Block, bool) {
	largest := s.arena.largest(ForGrant)
	for i, f := range s.turns {
		if f.out == s.window {
			continue
		}
		for ahead := 0; ahead < lookAhead && f.next+ahead < len(f.chunks); ahead++ {
			bytes := uint64(f.chunks[f.next+ahead])
			if f.taken>>ahead&1 != 0 || bytes > largest {
				continue
			}
			b, _ := s.arena.Alloc(bytes, ForGrant)
			f.take(ahead)
			f.out++
			copy(s.turns[i:], s.turns[i+1:])
			s.turns[len(s.turns)-1] = f
			return f, b, true
		}
	}
	return nil, Block{}, false
}

func (f *scanned) take(ahead int) {
	f.taken |= 1 << ahead
	for f.taken&1 != 0 {
		f.taken >>= 1
		f.next++
	}
}

// The arena of the benchmark is the default one: 512 granules of 1 MiB, chunks of up to 40 MiB. In what is granted flows of 32 MiB stand among those of 1 MiB, mix of them in a hundred.
const (
	benchArena  = 512 * mib
	benchChunk  = 40 * mib
	benchWindow = 8
	benchChunks = 1 << 16
)

// benchFlow is the chunks of flow number i.
func benchFlow(i, large int, small, big []uint32) []uint32 {
	if i%100 < large {
		return big
	}
	return small
}

func fullArena(b *testing.B) *Arena {
	a, err := NewArena(benchArena, mib, benchChunk)
	require.NoError(b, err)
	return a
}

// BenchmarkGrant has every flow want more than the arena holds. One step gives the oldest block back and grants until nothing fits, so that there is about one grant a step; the time is that of a grant.
func BenchmarkGrant(b *testing.B) {
	small, big := sizes(benchChunks, mib), sizes(benchChunks, 32*mib)
	for _, large := range []int{0, 10, 90} {
		for _, flows := range []int{10, 1000, 100_000} {
			name := fmt.Sprintf("large=%d%%/flows=%d", large, flows)
			b.Run(name+"/scheduler", func(b *testing.B) {
				a := fullArena(b)
				s := NewScheduler(a, benchWindow)
				var queue []Grant
				for i := range flows {
					s.Open(nil, benchFlow(i, large, small, big))
				}
				fill := func() (n int) {
					for g, ok := s.Next(); ok; g, ok = s.Next() {
						queue = append(queue, g)
						n++
					}
					return n
				}
				steps(b, fill, func() {
					g := queue[0]
					queue = queue[1:]
					a.Free(g.Block)
					s.Returned(g.Flow)
				})
			})
			b.Run(name+"/scanning", func(b *testing.B) {
				a := fullArena(b)
				s := &scanning{arena: a, window: benchWindow}
				type grant struct {
					f *scanned
					b Block
				}
				var queue []grant
				for i := range flows {
					s.open(benchFlow(i, large, small, big))
				}
				fill := func() (n int) {
					for f, block, ok := s.grant(); ok; f, block, ok = s.grant() {
						queue = append(queue, grant{f, block})
						n++
					}
					return n
				}
				steps(b, fill, func() {
					g := queue[0]
					queue = queue[1:]
					a.Free(g.b)
					g.f.out--
				})
			})
		}
	}
}

// steps frees one block and fills the arena again, until that gave b.N grants.
func steps(b *testing.B, fill func() int, free func()) {
	fill()
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; {
		free()
		n += fill()
	}
}
