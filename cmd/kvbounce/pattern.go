package main

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/kvbounce/kvbounce/ports"
)

// poison fills a destination before a transfer: bytes that no transfer wrote still hold it.
const poison = 0xA5

// poisonAll fills a block with poison.
func poisonAll(block []byte) {
	if len(block) == 0 {
		return
	}
	block[0] = poison
	for n := 1; n < len(block); n *= 2 {
		copy(block[n:], block[:n])
	}
}

// pattern gives every byte of a source block a value that depends on its place and on the round, so that a byte in a wrong place, of
// a wrong round or not written at all is seen.
type pattern uint64

func newPattern(seed, round uint64) pattern {
	return pattern(mix(seed) ^ mix(round+0x9e3779b97f4a7c15))
}

// mix is a bijective scrambling of 64 bits (the finalizer of splitmix64, public domain).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// word is the eight bytes at block offsets 8*i to 8*i+7.
func (p pattern) word(i uint64) uint64 { return mix(uint64(p) + i*0x9e3779b97f4a7c15) }

// fill writes the pattern over a block. Nothing else touches the block meanwhile, and under the race detector every word would be an event of its own.
//
//go:norace
func (p pattern) fill(block []byte) {
	n := len(block) / 8
	for i := range n {
		binary.LittleEndian.PutUint64(block[8*i:], p.word(uint64(i)))
	}
	for i := 8 * n; i < len(block); i++ {
		block[i] = p.at(uint64(i))
	}
}

// at is the byte at a block offset.
func (p pattern) at(offset uint64) byte { return byte(p.word(offset/8) >> (8 * (offset % 8))) }

// matches reports the first place of got that differs from the pattern's bytes from a block offset on, or -1. As with fill, the race detector is left out.
//
//go:norace
func (p pattern) matches(got []byte, offset uint64) int {
	i := 0
	for ; i < len(got) && (offset+uint64(i))%8 != 0; i++ {
		if got[i] != p.at(offset+uint64(i)) {
			return i
		}
	}
	for ; i+8 <= len(got); i += 8 {
		if binary.LittleEndian.Uint64(got[i:]) != p.word((offset+uint64(i))/8) {
			break
		}
	}
	for ; i < len(got); i++ {
		if got[i] != p.at(offset+uint64(i)) {
			return i
		}
	}
	return -1
}

// checker verifies a destination block: each byte that a piece covers holds its source byte, and all others still hold poison.
type checker struct {
	src, dst []ports.Descriptor // cut alike; offsets into the blocks
	gaps     []ports.Descriptor // of the destination block
}

func newChecker(src, dst []ports.Descriptor, dstBlock uint64) *checker {
	c := &checker{}
	var x, y ports.Descriptor
	for i, j := 0, 0; ; {
		for ; x.Bytes == 0 && i < len(src); i++ {
			x = src[i]
		}
		for ; y.Bytes == 0 && j < len(dst); j++ {
			y = dst[j]
		}
		n := min(x.Bytes, y.Bytes)
		if n == 0 {
			break
		}
		c.src = append(c.src, ports.Descriptor{Addr: x.Addr, Bytes: n})
		c.dst = append(c.dst, ports.Descriptor{Addr: y.Addr, Bytes: n})
		x.Addr, x.Bytes, y.Addr, y.Bytes = x.Addr+n, x.Bytes-n, y.Addr+n, y.Bytes-n
	}
	sorted := slices.Clone(c.dst)
	slices.SortFunc(sorted, func(a, b ports.Descriptor) int {
		if a.Addr < b.Addr {
			return -1
		}
		return 1
	})
	end := uint64(0)
	for _, d := range append(sorted, ports.Descriptor{Addr: dstBlock}) {
		if d.Addr > end {
			c.gaps = append(c.gaps, ports.Descriptor{Addr: end, Bytes: d.Addr - end})
		}
		end = max(end, d.Addr+d.Bytes)
	}
	return c
}

// check returns how many bytes it looked at.
func (c *checker) check(block []byte, p pattern) (uint64, error) {
	var n uint64
	for i, d := range c.dst {
		got := block[d.Addr : d.Addr+d.Bytes]
		if at := p.matches(got, c.src[i].Addr); at >= 0 {
			return n, fmt.Errorf("piece %d: byte %d is %#02x, want %#02x", i, at, got[at], p.at(c.src[i].Addr+uint64(at)))
		}
		n += d.Bytes
	}
	for _, d := range c.gaps {
		if i := firstOther(block[d.Addr : d.Addr+d.Bytes]); i >= 0 {
			return n, fmt.Errorf("byte %d, which belongs to no piece, was overwritten with %#02x", d.Addr+uint64(i), block[d.Addr+uint64(i)])
		}
		n += d.Bytes
	}
	return n, nil
}

// firstOther is the first byte that is not poison, or -1.
//
//go:norace
func firstOther(b []byte) int {
	for i, x := range b {
		if x != poison {
			return i
		}
	}
	return -1
}
