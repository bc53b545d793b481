package layout

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/kvbounce/kvbounce/ports"
)

const (
	kib = 1 << 10
	// A side's pages are drawn from a pool that is larger than the request by 1/poolSlack, as in a server where other requests hold the rest. So a
	// check of the untouched bytes finds some between those that were written.
	poolSlack = 4
	// maxPlaneGap is the most pages between two planes. The gaps are irregular: planes are separate allocations.
	maxPlaneGap = 8
)

// presets are the workloads of workloads.md, in its order.
var presets = []struct {
	name string
	make func(*random) Layout
}{
	{"paged-4k", func(r *random) Layout { return paged(r, planes{count: 1, pages: 18432, page: 4 * kib, last: 4 * kib}) }},
	// 80 layers x (K, V) x 118 pages.
	{"llama70b-tp8", func(r *random) Layout { return paged(r, planes{count: 160, pages: 118, page: 4 * kib, last: 4 * kib}) }},
	// 5000 tokens in blocks of 16: 312 full ones and one half used, for each of 64 layer planes.
	{"vllm-block16", func(r *random) Layout { return paged(r, planes{count: 64, pages: 313, page: 8 * kib, last: 4 * kib}) }},
	// One head of each token: of 4 heads on the source's rank, of 2 on the destination's.
	{"strided-heads", func(*random) Layout { return strided(32768, kib, 4*kib, 2*kib) }},
	{"tiny", func(r *random) Layout { return paged(r, planes{count: 1, pages: 4096, page: 512, last: 512}) }},
	{"contiguous", func(*random) Layout { return strided(1024, 64*kib, 64*kib, 64*kib) }},
}

// Names are the presets' names.
func Names() []string {
	names := make([]string, len(presets))
	for i, p := range presets {
		names[i] = p.name
	}
	return names
}

// Preset makes the workload of that name. The same name and seed give the same layout on every machine. An unknown name is an error that lists the known ones.
func Preset(name string, seed uint64) (Layout, error) {
	for _, p := range presets {
		if p.name == name {
			l := p.make(newRandom(seed))
			l.Name = name
			return l, nil
		}
	}
	return Layout{}, fmt.Errorf("unknown layout %q, want one of %s", name, strings.Join(Names(), ", "))
}

// Pages moves total bytes in pages of one length between random places, as paged-4k does; the last page holds what is left. Page and total are at least 1. The same numbers give the same layout on
// every machine.
func Pages(total, page, seed uint64) Layout {
	pages := (total-1)/page + 1
	return paged(newRandom(seed), planes{count: 1, pages: int(pages), page: page, last: total - (pages-1)*page})
}

// planes is a paged cache: planes (a layer's keys or values) that hold the same pages, as pieces of one length but for the last page's.
type planes struct {
	count, pages int
	page, last   uint64 // bytes of a page; bytes used of the last one
}

// paged moves the cache from random pages to random pages. Each side has one page list, which holds in all its planes.
func paged(r *random, p planes) Layout {
	var l Layout
	l.Src, l.SrcBlock = p.side(r)
	l.Dst, l.DstBlock = p.side(r)
	return l
}

func (p planes) side(r *random) (list []ports.Descriptor, block uint64) {
	pool := p.pages + p.pages/poolSlack
	table := r.permutation(pool)[:p.pages]
	list = make([]ports.Descriptor, 0, p.count*p.pages)
	for range p.count {
		for i, page := range table {
			bytes := p.page
			if i == p.pages-1 {
				bytes = p.last
			}
			list = append(list, ports.Descriptor{Addr: block + uint64(page)*p.page, Bytes: bytes})
		}
		block += uint64(pool) * p.page
		if p.count > 1 {
			block += (1 + r.below(maxPlaneGap)) * p.page
		}
	}
	return list, block
}

// strided moves pieces that stand at constant distances on each side.
func strided(pieces int, piece, srcStride, dstStride uint64) Layout {
	side := func(stride uint64) (list []ports.Descriptor, block uint64) {
		list = make([]ports.Descriptor, pieces)
		for i := range list {
			list[i] = ports.Descriptor{Addr: uint64(i) * stride, Bytes: piece}
		}
		return list, uint64(pieces) * stride
	}
	var l Layout
	l.Src, l.SrcBlock = side(srcStride)
	l.Dst, l.DstBlock = side(dstStride)
	return l
}

// random draws numbers whose sequence is this package's own, so that a new Go release does not change the presets: PCG is specified, and the rest is here.
type random struct{ pcg *rand.PCG }

func newRandom(seed uint64) *random { return &random{rand.NewPCG(seed, 0x6b76626f756e6365)} }

// below draws from 0 to n-1. The bias of the remainder is far below what these small n could show.
func (r *random) below(n uint64) uint64 { return r.pcg.Uint64() % n }

func (r *random) permutation(n int) []int {
	order := make([]int, n)
	for i := range order {
		j := int(r.below(uint64(i) + 1))
		order[i] = order[j]
		order[j] = i
	}
	return order
}
