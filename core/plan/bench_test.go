package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

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

// BenchmarkPlan measures shapes that the presets (wiring/layout has a benchmark of those) do not have, beside a plain copy of the lists. ns/descriptor counts
// both lists' descriptors.
func BenchmarkPlan(b *testing.B) {
	shapes := []struct {
		name     string
		src, dst []ports.Descriptor
	}{
		{"random pages", permuted(4096, 20000, 1), permuted(4096, 20000, 2)},
		{"pages cut differently", permuted(8192, 10000, 1), permuted(4096, 20000, 2)},
		{"large and small in turn", alternating(20000, 1), alternating(20000, 2)},
		{"100 000 descriptors", permuted(4096, 100000, 1), permuted(4096, 100000, 2)},
	}
	lim := Limits{ChunkBytes: 40 << 20}
	for _, s := range shapes {
		each := func(b *testing.B) {
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(s.src)+len(s.dst)), "ns/descriptor")
		}
		b.Run(s.name+"/copy", func(b *testing.B) {
			src, dst := make([]ports.Descriptor, len(s.src)), make([]ports.Descriptor, len(s.dst))
			for b.Loop() {
				copy(src, s.src)
				copy(dst, s.dst)
			}
			each(b)
		})
		p := New()
		var c Chunk
		var o OverlapCheck
		b.Run(s.name+"/sizes", func(b *testing.B) {
			for b.Loop() {
				_, err := p.Begin(s.src, s.dst, lim)
				require.NoError(b, err)
			}
			each(b)
		})
		run := func(name string, eachChunk func(), after func() error) {
			b.Run(s.name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					_, err := p.Begin(s.src, s.dst, lim)
					require.NoError(b, err)
					for ok := true; ok; {
						ok, err = p.Next(&c)
						require.NoError(b, err)
						if ok {
							eachChunk()
						}
					}
					require.NoError(b, after())
				}
				each(b)
			})
		}
		run("sizes and runs", func() {}, func() error { return nil })
		run("sizes, runs and overlap", func() { o.Add(&c) }, func() error {
			defer o.Reset()
			return o.Find()
		})
	}
}
