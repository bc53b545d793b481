package plan

import (
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/ports"
)

// tb is what *testing.T and *rapid.T share.
type tb interface {
	require.TestingT
	Helper()
}

// move is one byte on its way.
type move struct{ src, dst uint64 }

// moves is the obvious planner: every byte of the request in order.
func moves(src, dst []ports.Descriptor) []move {
	expand := func(list []ports.Descriptor) (bytes []uint64) {
		for _, d := range list {
			for k := range d.Bytes {
				bytes = append(bytes, d.Addr+k)
			}
		}
		return bytes
	}
	from, to := expand(src), expand(dst)
	all := make([]move, len(from))
	for i := range all {
		all[i] = move{from[i], to[i]}
	}
	return all
}

// pieces is the obvious count of stretches that continue on both sides.
func pieces(all []move) (n int) {
	for i, m := range all {
		if i == 0 || m.src != all[i-1].src+1 || m.dst != all[i-1].dst+1 {
			n++
		}
	}
	return n
}

// placed is one piece of a run: a range of the block and a range of memory.
type placed struct{ offset, addr, length uint64 }

// expand lists a run's pieces, with exact integers: each address must be within 64 bits.
func expand(t tb, r ports.Run, index []uint32) []placed {
	t.Helper()
	require.NotZero(t, r.Piece)
	require.NotZero(t, r.Pieces)
	if r.Pieces == 1 {
		require.Zero(t, r.Stride)
		require.Zero(t, r.Step)
		require.EqualValues(t, uint32(ports.NoTable), r.Table)
	}
	var out []placed
	for k := range int64(r.Pieces) {
		factor := k
		if r.Table != ports.NoTable {
			factor = int64(index[int64(r.Table)+k])
		}
		addr := new(big.Int).Mul(big.NewInt(factor), big.NewInt(r.Stride))
		addr.Add(addr, new(big.Int).SetUint64(r.Addr))
		if !addr.IsUint64() {
			require.FailNow(t, "outside 64 bits", "piece %d of %+v is at %v", k, r, addr)
		}
		out = append(out, placed{r.Offset + uint64(k)*uint64(r.Step), addr.Uint64(), uint64(r.Piece)})
	}
	return out
}

// blockMap says which memory byte each block byte belongs to; no block byte may belong to two.
func blockMap(t tb, runs ports.Runs) map[uint64]uint64 {
	t.Helper()
	block := map[uint64]uint64{}
	for _, r := range runs.Runs {
		for _, p := range expand(t, r, runs.Index) {
			for k := range p.length {
				if _, taken := block[p.offset+k]; taken {
					require.FailNow(t, "two pieces share a place", "block byte %d", p.offset+k)
				}
				block[p.offset+k] = p.addr + k
			}
		}
	}
	return block
}

// planned is a copy of everything the planner said about a request.
type planned struct {
	summary Summary
	sizes   []uint32
	chunks  []Chunk
	overlap error
}

func planAll(p *Planner, src, dst []ports.Descriptor, lim Limits) (planned, error) {
	var out planned
	var err error
	if out.summary, err = p.Begin(src, dst, lim); err != nil {
		return out, err
	}
	out.sizes = append(out.sizes, p.ChunkBytes()...)
	var c Chunk
	for p.Next(&c) {
		kept := c
		kept.Gather = ports.Runs{Runs: slices.Clone(c.Gather.Runs), Index: slices.Clone(c.Gather.Index)}
		kept.Scatter = ports.Runs{Runs: slices.Clone(c.Scatter.Runs), Index: slices.Clone(c.Scatter.Index)}
		out.chunks = append(out.chunks, kept)
	}
	out.overlap = p.Overlap()
	return out, nil
}

// check holds a plan against the obvious one: each byte goes where it should, once, in order, and every rule of the package comment is kept.
func check(t tb, src, dst []ports.Descriptor, lim Limits, got planned) {
	t.Helper()
	all := moves(src, dst)
	require.Equal(t, Summary{Descriptors: max(len(src), len(dst)), Pieces: pieces(all), Bytes: uint64(len(all))}, got.summary)
	require.Len(t, got.chunks, len(got.sizes))
	var done []move
	for i, c := range got.chunks {
		require.Equal(t, got.sizes[i], c.Bytes)
		require.LessOrEqual(t, uint64(c.Bytes), lim.ChunkBytes)
		require.LessOrEqual(t, c.DataBytes(), dataFixedBytes+runBytes*c.Pieces)
		done = append(done, checkChunk(t, c)...)
	}
	require.True(t, slices.Equal(all, done), "want %v, got %v", all, done)
}

// checkChunk holds a chunk against its own rules and returns its bytes in the block's order.
func checkChunk(t tb, c Chunk) (done []move) {
	t.Helper()
	gather, scatter := blockMap(t, c.Gather), blockMap(t, c.Scatter)
	require.Len(t, scatter, len(gather))
	for at := range uint64(c.Bytes) {
		from, ok := gather[at]
		to, too := scatter[at]
		if ok != too {
			require.FailNow(t, "only one side has a byte", "block byte %d", at)
		}
		if ok {
			done = append(done, move{from, to})
		}
	}
	require.Len(t, done, len(gather), "runs go beyond the block's %d bytes", c.Bytes)

	// The pieces of the chunk: stretches of the block that continue on both sides.
	count, begin := 0, uint64(0)
	continues := func(at uint64) bool {
		from, ok := gather[at]
		before, was := gather[at-1]
		return ok && was && from == before+1 && scatter[at] == scatter[at-1]+1
	}
	for at := range uint64(c.Bytes) {
		if _, ok := gather[at]; !ok {
			continue
		}
		if at == 0 || !continues(at) {
			count, begin = count+1, at
		}
		if !continues(at + 1) {
			length := at + 1 - begin
			if length >= VectorBytes {
				require.Zero(t, begin%Alignment, "a piece of %d bytes at %d", length, begin)
			} else if begin > 0 {
				_, follows := gather[begin-1]
				require.True(t, follows, "a gap before a piece of %d bytes at %d", length, begin)
			}
		}
	}
	require.Equal(t, c.Pieces, count)
	require.Contains(t, gather, uint64(0), "the block begins with a gap")
	require.Contains(t, gather, uint64(c.Bytes)-1, "the block ends with a gap")
	return done
}

// anyLayout draws a request of up to a few hundred bytes in two lists that are cut differently.
func anyLayout(t *rapid.T) (src, dst []ports.Descriptor) {
	total := rapid.Uint64Range(0, 600).Draw(t, "total")
	return anySide(t, "src", total), anySide(t, "dst", total)
}

// anySide draws descriptors that hold so many bytes. Each continues the one before it, or repeats the distance to the one before, or stands anywhere, near 0
// and near 2^64 included; some hold nothing.
func anySide(t *rapid.T, label string, total uint64) (list []ports.Descriptor) {
	place := ports.Place{Kind: ports.Device, Device: rapid.Uint32Range(0, 3).Draw(t, label+" device")}
	usual := rapid.SampledFrom([]uint64{1, 3, 8, 15, 16, 17, 32, 64, 100}).Draw(t, label+" usual length")
	base := rapid.SampledFrom([]uint64{0, 1, 4096, 1 << 63, 1<<63 - 50, 1<<64 - 2000}).Draw(t, label+" base")
	var addr, distance uint64 = base, 0
	for total > 0 {
		bytes := min(usual, total)
		switch rapid.IntRange(0, 9).Draw(t, label+" length") {
		case 0:
			bytes = 0
		case 1, 2:
			bytes = min(rapid.Uint64Range(1, 130).Draw(t, label+" odd length"), total)
		}
		before := addr
		switch rapid.IntRange(0, 5).Draw(t, label+" where") {
		case 0, 1: // continues
			if n := len(list); n > 0 {
				addr = list[n-1].Addr + list[n-1].Bytes
			}
		case 2, 3: // goes on in the same direction
			addr += distance
		case 4:
			addr = rapid.Uint64Range(0, 4000).Draw(t, label+" low")
		case 5:
			addr = -rapid.Uint64Range(131, 4000).Draw(t, label+" high")
		}
		if addr+bytes < addr { // it would pass the end of memory
			addr = base
		}
		distance = addr - before
		list = append(list, ports.Descriptor{Addr: addr, Bytes: bytes, Place: place})
		total -= bytes
	}
	return list
}

// pages are descriptors of equal length at the given page numbers.
func pages(bytes uint64, numbers ...uint64) (list []ports.Descriptor) {
	for _, n := range numbers {
		list = append(list, ports.Descriptor{Addr: n * bytes, Bytes: bytes})
	}
	return list
}

func mustPlan(t *testing.T, src, dst []ports.Descriptor, lim Limits) planned {
	t.Helper()
	got, err := planAll(New(), src, dst, lim)
	require.NoError(t, err)
	check(t, src, dst, lim, got)
	return got
}

// permuted are equally long pages in an order that looks random.
func permuted(bytes uint64, count int, seed uint64) []ports.Descriptor {
	numbers := make([]uint64, count)
	for i := range numbers {
		seed = seed*6364136223846793005 + 1442695040888963407
		j := int(seed >> 33 % uint64(i+1))
		numbers[i] = numbers[j]
		numbers[j] = uint64(i)
	}
	return pages(bytes, numbers...)
}

// alternating are large and small pages in turn, each kind in its own memory.
func alternating(count int, seed uint64) (list []ports.Descriptor) {
	for i, d := range permuted(1024, count/2, seed) {
		list = append(list, d, ports.Descriptor{Addr: 1<<40 + uint64(i)*128, Bytes: 128})
	}
	return list
}
