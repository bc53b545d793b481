package plan

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/ports"
)

func TestWrongRequests(t *testing.T) {
	gpu1 := ports.Place{Kind: ports.Device, Device: 1}
	with := func(list []ports.Descriptor, at int, change func(*ports.Descriptor)) []ports.Descriptor {
		list = slices.Clone(list)
		change(&list[at])
		return list
	}
	good := scattered(100, 100, 100)
	elsewhere := func(d *ports.Descriptor) { d.Place = gpu1 }
	tooFar := func(d *ports.Descriptor) { d.Addr = math.MaxUint64 - 99 }
	huge := func(d *ports.Descriptor) { d.Addr, d.Bytes = 0, math.MaxUint64 }
	cases := []struct {
		name     string
		src, dst []ports.Descriptor
		lim      Limits
		is       error
		text     string
	}{
		{"no chunk bytes", good, good, Limits{}, ErrLimits, "ChunkBytes is 0, want 1 to 4294967295"},
		{"too many chunk bytes", good, good, Limits{ChunkBytes: 1 << 32}, ErrLimits, "ChunkBytes is 4294967296, want 1 to 4294967295"},
		{"negative chunks", good, good, Limits{ChunkBytes: 1, Chunks: -1}, ErrLimits, "Chunks is -1, want 0 to 65536"},
		{"chunks beyond the wire", good, good, Limits{ChunkBytes: 1, Chunks: 65537}, ErrLimits, "Chunks is 65537, want 0 to 65536"},
		{"source longer", scattered(100, 100, 1), scattered(100, 100), roomy, ErrTotals, "source 201, destination 200; source descriptor 2 is the first with bytes too many"},
		{"destination longer", scattered(100), scattered(60, 60, 60), roomy, ErrTotals, "source 100, destination 180; destination descriptor 1 is the first with bytes too many"},
		{"nothing to take from", nil, scattered(0, 5), roomy, ErrTotals, "source 0, destination 5; destination descriptor 1 is the first with bytes too many"},
		{"source in two places", with(good, 1, elsewhere), good, roomy, ErrPlaces, "source descriptor 1 is in vram:1, those before it in dram"},
		{"destination in two places", good, with(good, 2, elsewhere), roomy, ErrPlaces, "destination descriptor 2 is in vram:1, those before it in dram"},
		{"the first is the odd one", with(good, 0, elsewhere), good, roomy, ErrPlaces, "source descriptor 1 is in dram, those before it in vram:1"},
		{"source past the end", with(good, 2, tooFar), good, roomy, ErrOverflow, "source descriptor 2: address 0xffffffffffffff9c + 100 bytes"},
		{"destination past the end", good, with(good, 0, tooFar), roomy, ErrOverflow, "destination descriptor 0: address 0xffffffffffffff9c + 100 bytes"},
		{"sum too large", with(good, 1, huge), good, roomy, ErrOverflow, "source descriptor 1: the sum of the lengths up to here"},
		{"sums alike and too large", with(good, 1, huge), with(good, 1, huge), roomy, ErrOverflow, "source descriptor 1: the sum of the lengths up to here"},
		{"lowest index first", with(good, 2, tooFar), with(good, 1, elsewhere), roomy, ErrPlaces, "destination descriptor 1 is in vram:1"},
		{"source first at the same index", with(good, 1, tooFar), with(good, 1, elsewhere), roomy, ErrOverflow, "source descriptor 1:"},
		{"a wrong descriptor before totals", with(good, 2, tooFar), scattered(1), roomy, ErrOverflow, "source descriptor 2:"},
		{
			"too many chunks by bytes", scattered(MaxChunks + 1), scattered(MaxChunks + 1), Limits{ChunkBytes: 1}, ErrTooManyChunks,
			"65537 bytes in chunks of at most 1 need at least 65537, want at most 65536",
		},
		{
			"absurdly many chunks", []ports.Descriptor{{Bytes: math.MaxUint64}}, []ports.Descriptor{{Bytes: math.MaxUint64}}, Limits{ChunkBytes: 1}, ErrTooManyChunks,
			"18446744073709551615 bytes",
		},
		{
			"too many chunks by whole pieces", permuted(100, MaxChunks+1, 1), permuted(100, MaxChunks+1, 2), Limits{ChunkBytes: 101}, ErrTooManyChunks,
			"does not fit 65536 chunks of at most 101 bytes",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := New()
			_, err := p.Begin(good, good, roomy)
			require.NoError(t, err)
			require.True(t, p.Next(new(Chunk)))
			summary, err := p.Begin(c.src, c.dst, c.lim)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.text)
			require.Zero(t, summary)
			require.Empty(t, p.ChunkBytes())
			require.False(t, p.Next(new(Chunk)))
			require.NoError(t, p.Overlap())
		})
	}
}

// A list that ends at the last address is right; one byte more is not.
func TestEndOfMemory(t *testing.T) {
	top := []ports.Descriptor{{Addr: math.MaxUint64 - 100, Bytes: 100}}
	mustPlan(t, top, scattered(100), roomy)
	mustPlan(t, scattered(100), top, roomy)
}

// However many descriptors are wrong, the lowest is named.
func TestTheLowestWrongDescriptorIsNamed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "descriptors")
		lists := map[side][]ports.Descriptor{}
		lowest, where := n, source
		for _, s := range []side{source, destination} {
			list := pages(64, make([]uint64, n)...)
			for range rapid.IntRange(0, 3).Draw(t, "wrong ones") {
				at := rapid.IntRange(1, n).Draw(t, "at") - 1
				if list[at].Addr == math.MaxUint64 {
					continue
				}
				list[at].Addr = math.MaxUint64
				if at < lowest {
					lowest, where = at, s
				}
			}
			lists[s] = list
		}
		_, err := New().Begin(lists[source], lists[destination], roomy)
		if lowest == n {
			require.NoError(t, err)
			return
		}
		require.ErrorIs(t, err, ErrOverflow)
		require.ErrorContains(t, err, describe(where, lists[where], lowest).Error())
	})
}
