package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

// The checker sees one wrong byte anywhere, and passes what a plain copy makes.
func TestCheckerSeesOneWrongByte(t *testing.T) {
	l, err := layout.Preset("tiny", 3)
	require.NoError(t, err)
	c := newChecker(l.Src, l.Dst, l.DstBlock)
	rapid.Check(t, func(t *rapid.T) {
		p := newPattern(rapid.Uint64().Draw(t, "seed"), 7)
		src, dst := make([]byte, l.SrcBlock), make([]byte, l.DstBlock)
		p.fill(src)
		poisonAll(dst)
		for i, d := range l.Dst {
			copy(dst[d.Addr:d.Addr+d.Bytes], src[l.Src[i].Addr:])
		}
		n, err := c.check(dst, p)
		require.NoError(t, err)
		require.EqualValues(t, l.DstBlock, n, "every byte is looked at")
		at := rapid.IntRange(0, len(dst)-1).Draw(t, "at")
		dst[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		_, err = c.check(dst, p)
		require.Error(t, err)
	})
}

// Unaligned pieces: the pattern's bytes are the same however a block is looked at.
func TestPatternIsOfBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPattern(1, 2)
		block := make([]byte, 100)
		p.fill(block)
		from := rapid.IntRange(0, 99).Draw(t, "from")
		to := rapid.IntRange(from, 100).Draw(t, "to")
		require.Equal(t, -1, p.matches(block[from:to], uint64(from)))
		for i := range block {
			require.Equal(t, p.at(uint64(i)), block[i])
		}
	})
}

func TestCheckerCutsBothSides(t *testing.T) {
	c := newChecker([]ports.Descriptor{{Addr: 0, Bytes: 10}}, []ports.Descriptor{{Addr: 20, Bytes: 3}, {Addr: 5, Bytes: 0}, {Addr: 1, Bytes: 7}}, 24)
	require.Equal(t, []ports.Descriptor{{Addr: 0, Bytes: 3}, {Addr: 3, Bytes: 7}}, c.src)
	require.Equal(t, []ports.Descriptor{{Addr: 0, Bytes: 1}, {Addr: 8, Bytes: 12}, {Addr: 23, Bytes: 1}}, c.gaps)
}
