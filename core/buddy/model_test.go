package buddy

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// model is the allocator as plainly as it can be said: one owner a granule (the granule where its block began, plus 1; 0 is free), and how often it is barred.
type model struct {
	owner []int
	bars  []int
	sizes map[int]int // by first granule: granules
}

func (m *model) usable(at, granules int) bool {
	if at+granules > len(m.owner) {
		return false
	}
	for g := at; g < at+granules; g++ {
		if m.owner[g] != 0 || m.bars[g] != 0 {
			return false
		}
	}
	return true
}

// maximal: usable, and its aligned parent is not.
func (m *model) maximal(at, granules int) bool {
	parent := at / (2 * granules) * (2 * granules)
	return m.usable(at, granules) && !m.usable(parent, 2*granules)
}

// place says where a block goes within [base, base+size), or -1.
func (m *model) place(base, size, granules int, high bool) int {
	hull := 1
	for hull < granules {
		hull *= 2
	}
	if m.usable(base, size) { // all of a span is one block for AllocIn, whatever is free around it
		if granules > size {
			return -1
		}
		if high {
			return base + size - hull
		}
		return base
	}
	for block := hull; block <= size; block *= 2 {
		best := -1
		for at := base; at < base+size; at += block {
			if m.maximal(at, block) {
				best = at
				if !high {
					break
				}
			}
		}
		if best >= 0 && high {
			return best + block - hull
		}
		if best >= 0 {
			return best
		}
	}
	return -1
}

func (m *model) take(at, granules int) {
	for g := at; g < at+granules; g++ {
		m.owner[g] = at + 1
	}
	m.sizes[at] = granules
}

func (m *model) drop(at int) {
	for g := at; g < at+m.sizes[at]; g++ {
		m.owner[g] = 0
	}
	delete(m.sizes, at)
}

func (m *model) largestFree() int {
	largest := 0
	for size := 1; size <= len(m.owner); size *= 2 {
		for at := 0; at+size <= len(m.owner); at += size {
			if m.usable(at, size) {
				largest = size
			}
		}
	}
	return largest
}

func (m *model) occupants(base, size int) int {
	seen := map[int]bool{}
	for g := base; g < base+size; g++ {
		if m.owner[g] != 0 {
			seen[m.owner[g]] = true
		}
	}
	return len(seen)
}

// drawSpan draws an aligned power-of-two span of granules inside n.
func drawSpan(t *rapid.T, n int) (base, size int) {
	size = 1 << rapid.IntRange(0, orders(n)).Draw(t, "order")
	return size * rapid.IntRange(0, n/size-1).Draw(t, "index"), size
}

// orders is the largest k with 2^k <= n.
func orders(n int) int {
	k := 0
	for 2<<k <= n {
		k++
	}
	return k
}

func TestAgainstABitmap(t *testing.T) {
	const granule = 4
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 70).Draw(t, "granules")
		a, err := New(uint64(n*granule+rapid.IntRange(0, granule-1).Draw(t, "rest")), granule)
		require.NoError(t, err)
		m := &model{owner: make([]int, n), bars: make([]int, n), sizes: map[int]int{}}
		root := 1
		for root < n {
			root *= 2
		}
		type span struct{ base, size int }
		var barred []span
		var live []int

		check := func(offset uint64, ok bool, bytes uint64, want int) {
			require.Equal(t, want >= 0, ok, "%d bytes", bytes)
			if !ok {
				return
			}
			require.Equal(t, uint64(want*granule), offset)
			granules := int(bytes+granule-1) / granule
			require.True(t, m.usable(want, granules), "overlap")
			m.take(want, granules)
			live = append(live, want)
			require.Equal(t, uint64(granules*granule), a.BlockBytes(offset))
		}
		request := func() (uint64, int) {
			bytes := uint64(rapid.IntRange(1, int(a.Largest())).Draw(t, "bytes"))
			return bytes, int(bytes+granule-1) / granule
		}
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				bytes, granules := request()
				offset, ok := a.Alloc(bytes)
				check(offset, ok, bytes, m.place(0, root, granules, false))
			},
			"alloc high": func(t *rapid.T) {
				bytes, granules := request()
				offset, ok := a.AllocHigh(bytes)
				check(offset, ok, bytes, m.place(0, root, granules, true))
			},
			"alloc in": func(t *rapid.T) {
				base, size := drawSpan(t, n)
				bytes, granules := request()
				offset, ok := a.AllocIn(uint64(base*granule), uint64(size*granule), bytes)
				check(offset, ok, bytes, m.place(base, size, granules, false))
			},
			"free": func(t *rapid.T) {
				if len(live) == 0 {
					return
				}
				i := rapid.IntRange(0, len(live)-1).Draw(t, "block")
				at := live[i]
				live = append(live[:i], live[i+1:]...)
				require.NoError(t, a.Free(uint64(at*granule)))
				require.ErrorIs(t, a.Free(uint64(at*granule)), ErrDoubleFree)
				m.drop(at)
			},
			"free elsewhere": func(t *rapid.T) {
				at := rapid.IntRange(0, n+3).Draw(t, "granule")
				if _, ok := m.sizes[at]; !ok {
					require.Error(t, a.Free(uint64(at*granule)))
				}
			},
			"bar": func(t *rapid.T) {
				base, size := drawSpan(t, n)
				a.Bar(uint64(base*granule), uint64(size*granule))
				barred = append(barred, span{base, size})
				for g := base; g < base+size; g++ {
					m.bars[g]++
				}
			},
			"unbar": func(t *rapid.T) {
				if len(barred) == 0 {
					return
				}
				i := rapid.IntRange(0, len(barred)-1).Draw(t, "bar")
				s := barred[i]
				barred = append(barred[:i], barred[i+1:]...)
				a.Unbar(uint64(s.base*granule), uint64(s.size*granule))
				for g := s.base; g < s.base+s.size; g++ {
					m.bars[g]--
				}
			},
			"": func(t *rapid.T) {
				free := 0
				for _, owner := range m.owner {
					if owner == 0 {
						free++
					}
				}
				require.Equal(t, uint64(free*granule), a.FreeBytes())
				require.Equal(t, len(live), a.LiveBlocks())
				require.Equal(t, uint64(m.largestFree()*granule), a.LargestFree())
				base, size := drawSpan(t, n)
				require.Equal(t, m.occupants(base, size), a.Occupants(uint64(base*granule), uint64(size*granule)))
			},
		})
		for _, at := range live {
			require.NoError(t, a.Free(uint64(at*granule)))
		}
		for _, s := range barred {
			a.Unbar(uint64(s.base*granule), uint64(s.size*granule))
		}
		require.Equal(t, a.Usable(), a.FreeBytes())
		require.Equal(t, a.Largest(), a.LargestFree(), "freeing everything merges everything")
	})
}
