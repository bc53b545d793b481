package credit

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/list"
	"pgregory.net/rapid"
)

// modelFlow is what the model knows of a flow, kept apart from the scheduler's own state.
type modelFlow struct {
	flow    *Flow
	chunks  []uint32
	granted []bool
	out     int
	closed  bool
	passed  int // how often its first chunk was passed over, counted one by one
}

func (f *modelFlow) first() int { return slices.Index(f.granted, false) }

// fitting is the first chunk of the look-ahead that is not larger than the largest block, or -1.
func (f *modelFlow) fitting(largest uint64) int {
	first := f.first()
	for i := first; i < min(first+lookAhead, len(f.chunks)); i++ {
		if !f.granted[i] && uint64(f.chunks[i]) <= largest {
			return i
		}
	}
	return -1
}

func (f *modelFlow) wants(window int) bool { return !f.closed && f.first() >= 0 && f.out < window }

// ring is the round robin as plainly as it can be said: a list of flows in the order of their turns.
type ring struct {
	t     testingT
	w     *world
	flows []*modelFlow // every flow that may still get a block back
	turns []*modelFlow
}

// expect says which flow and chunk come next when no chunk starves.
func (r *ring) expect() (f *modelFlow, chunk int) {
	largest := r.w.arena.largest(ForGrant)
	for _, f := range r.turns {
		if f == r.starving() {
			continue
		}
		if chunk := f.fitting(largest); chunk >= 0 {
			return f, chunk
		}
	}
	return nil, -1
}

func (r *ring) starving() *modelFlow {
	if r.w.sched.starving == nil || !r.w.arena.held() {
		return nil
	}
	return r.of(r.w.sched.starving)
}

func (r *ring) of(f *Flow) *modelFlow {
	return r.flows[slices.IndexFunc(r.flows, func(m *modelFlow) bool { return m.flow == f })]
}

func (r *ring) limit() int { return max(minPasses, 2*min(len(r.turns), activeCap)) }

// next asks for one grant and compares it with the plain ring.
func (r *ring) next() bool {
	w := r.w
	starved := r.starving()
	want, chunk := r.expect()
	g, ok := w.next()
	if !ok {
		require.Nil(r.t, want, "no grant, but a chunk fits")
		return false
	}
	got := r.of(g.Flow)
	if got == starved {
		require.Equal(r.t, got.first(), g.Chunk, "a starving flow gets the chunk that starves")
	} else {
		require.Same(r.t, want, got, "not the first in the ring that fits")
		require.Equal(r.t, chunk, g.Chunk)
		for _, f := range r.turns {
			if f == got {
				break
			}
			f.passed++
		}
	}
	require.Equal(r.t, uint64(got.chunks[g.Chunk]), g.Block.Bytes)
	require.False(r.t, got.granted[g.Chunk], "granted twice")
	if g.Chunk == got.first() {
		got.passed = 0
	} else {
		got.passed++
	}
	got.granted[g.Chunk] = true
	got.out++
	require.LessOrEqual(r.t, got.out, w.window)
	r.leave(got)
	r.join(got)
	if f := r.starving(); f != nil && f != starved {
		require.GreaterOrEqual(r.t, f.passed, r.limit(), "a hold for a chunk that was not passed over often enough")
	}
	return true
}

func (r *ring) all() {
	for r.next() {
	}
}

func (r *ring) join(f *modelFlow) {
	if !f.wants(r.w.window) {
		f.passed = 0
		return
	}
	if !slices.Contains(r.turns, f) {
		r.turns = append(r.turns, f)
	}
}

func (r *ring) leave(f *modelFlow) {
	r.turns = slices.DeleteFunc(r.turns, func(m *modelFlow) bool { return m == f })
}

func (r *ring) open(chunks []uint32) {
	f := &modelFlow{chunks: chunks, granted: make([]bool, len(chunks))}
	f.flow = r.w.sched.Open(f, slices.Clone(chunks))
	r.flows = append(r.flows, f)
	r.join(f)
}

func (r *ring) close(f *modelFlow) {
	r.w.sched.Close(f.flow)
	f.closed = true
	r.leave(f)
}

func (r *ring) free(b Block) {
	if flow := r.w.owner[b]; flow != nil {
		f := r.of(flow)
		f.out--
		defer r.join(f)
	}
	r.w.free(b)
}

func TestAgainstAPlainRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zoneBytes := rapid.SampledFrom([]int{1, 4, 8}).Draw(t, "zone")
		zones := rapid.IntRange(2, 6).Draw(t, "zones")
		beyond := rapid.IntRange(0, zoneBytes-1).Draw(t, "beyond")
		limit := rapid.IntRange(zoneBytes/2+1, zoneBytes).Draw(t, "chunk limit")
		w := newWorld(t, uint64(zones*zoneBytes+beyond)*2, 2, uint64(limit)*2, rapid.IntRange(1, 6).Draw(t, "window"))
		start := *w.arena
		start.blocks, start.zones = slices.Clone(start.blocks), slices.Clone(start.zones)
		r := &ring{t: t, w: w}
		with := func(t *rapid.T, list []Block, do func(Block)) {
			if len(list) > 0 {
				do(rapid.SampledFrom(list).Draw(t, "block"))
			}
		}
		all := func() []Block { return append(w.blocks(ForGrant), w.blocks(ForStaging)...) }
		chunkBytes := rapid.OneOf(rapid.Uint32Range(1, uint32(limit)*2), rapid.Uint32Range(1, 2))

		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				r.open(rapid.SliceOfN(chunkBytes, 0, 12).Draw(t, "chunks"))
			},
			"close": func(t *rapid.T) {
				if len(r.turns) > 0 {
					r.close(rapid.SampledFrom(r.turns).Draw(t, "flow"))
				}
			},
			"grant":     func(*rapid.T) { r.next() },
			"grant all": func(*rapid.T) { r.all() },
			"stage": func(t *rapid.T) {
				bytes := uint64(chunkBytes.Draw(t, "bytes"))
				largest := w.arena.largest(ForStaging)
				_, ok := w.stage(bytes)
				require.Equal(t, bytes <= largest, ok)
			},
			"free":       func(t *rapid.T) { with(t, all(), r.free) },
			"free grant": func(t *rapid.T) { with(t, w.blocks(ForGrant), r.free) },
			"free and grant many": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "times") {
					if list := w.blocks(ForGrant); len(list) > 0 {
						r.free(rapid.SampledFrom(list).Draw(t, "block"))
					}
					r.next()
				}
			},
			"retain": func(t *rapid.T) { with(t, all(), w.retain) },
			"unretain": func(t *rapid.T) {
				var list []Block
				for b := range w.doubt {
					list = append(list, b)
				}
				slices.SortFunc(list, func(a, b Block) int { return int(a.Offset) - int(b.Offset) })
				with(t, list, w.unretain)
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(r.turns), w.sched.Active())
			},
		})

		// Evidence for everything: the rest of the flows is served, and all comes back.
		for b := range w.doubt {
			w.unretain(b)
		}
		for {
			r.all()
			list := all()
			if len(list) == 0 {
				break
			}
			r.free(list[len(list)/2])
		}
		for _, f := range r.flows {
			require.True(t, f.closed || f.first() < 0, "a flow was left behind")
		}
		require.Zero(t, w.sched.Active())
		require.Equal(t, [maxClasses]list.List[Flow]{}, w.sched.queues)
		require.Equal(t, w.total, w.arena.FreeBytes())
		require.Equal(t, w.arena.trees.Largest(), w.arena.trees.LargestFree(), "everything merged, and nothing is barred")
		require.Equal(t, start.zones, w.arena.zones)
		require.Equal(t, start.hold, w.arena.hold)
		require.Empty(t, w.arena.retained)
	})
}
