package transport

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// allowed is CheckDestinations as one would write it without a thought of speed: each byte of each piece, as exact integers, against each range.
func allowed(ranges []ports.Descriptor, runs ports.Runs, place ports.Place) bool {
	for _, r := range runs.Runs {
		for k := range r.Pieces {
			m := uint64(k)
			if r.Table != ports.NoTable {
				m = uint64(runs.Index[r.Table+k])
			}
			first := new(big.Int).Mul(new(big.Int).SetUint64(m), big.NewInt(r.Stride))
			first.Add(first, new(big.Int).SetUint64(r.Addr))
			for b := range r.Piece {
				at := new(big.Int).Add(first, big.NewInt(int64(b)))
				if !inRanges(ranges, at, place) {
					return false
				}
			}
		}
	}
	return true
}

func inRanges(ranges []ports.Descriptor, at *big.Int, place ports.Place) bool {
	for _, d := range ranges {
		off := new(big.Int).Sub(at, new(big.Int).SetUint64(d.Addr))
		if d.Place == place && off.Sign() >= 0 && off.Cmp(new(big.Int).SetUint64(d.Bytes)) < 0 {
			return true
		}
	}
	return false
}

// aDescriptor draws a range among few addresses, at the bottom or the top of the address space.
func aDescriptor() *rapid.Generator[ports.Descriptor] {
	return rapid.Custom(func(t *rapid.T) ports.Descriptor {
		d := ports.Descriptor{Addr: anAddress(t), Bytes: rapid.Uint64Range(0, 40).Draw(t, "bytes")}
		if top := math.MaxUint64 - d.Addr; top < 100 {
			d.Bytes = min(d.Bytes, top+1)
		}
		if rapid.IntRange(0, 4).Draw(t, "device") == 0 {
			d.Place = ports.Place{Kind: ports.Device, Device: rapid.Uint32Range(0, 1).Draw(t, "ordinal")}
		}
		return d
	})
}

func anAddress(t *rapid.T) uint64 {
	a := rapid.Uint64Range(0, 99).Draw(t, "address")
	if rapid.Bool().Draw(t, "top") {
		return math.MaxUint64 - a
	}
	return a
}

func someRuns() *rapid.Generator[ports.Runs] {
	return rapid.Custom(func(t *rapid.T) ports.Runs {
		index := rapid.SliceOfN(rapid.OneOf(rapid.Uint32Range(0, 8), rapid.Uint32()), 1, 6).Draw(t, "index")
		stride := rapid.OneOf(rapid.Int64Range(-30, 30), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, math.MinInt64 + 1}))
		var runs []ports.Run
		for range rapid.IntRange(1, 3).Draw(t, "runs") {
			r := ports.Run{Addr: anAddress(t), Stride: stride.Draw(t, "stride"), Piece: rapid.Uint32Range(1, 6).Draw(t, "piece"), Pieces: rapid.Uint32Range(1, 5).Draw(t, "pieces"), Table: ports.NoTable}
			if rapid.Bool().Draw(t, "indexed") {
				r.Table = rapid.Uint32Range(0, uint32(len(index))-1).Draw(t, "table")
				r.Pieces = min(r.Pieces, uint32(len(index))-r.Table)
			}
			runs = append(runs, r)
		}
		return ports.Runs{Runs: runs, Index: index}
	})
}

func TestDestinationsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g Registry
		all := rapid.SliceOfN(aDescriptor(), 0, 6).Draw(t, "ranges")
		for i := range all {
			g.Add(all[i : i+1])
		}
		if len(all) > 0 && rapid.Bool().Draw(t, "remove") {
			i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
			g.Remove(all[i : i+1])
			all = append(all[:i:i], all[i+1:]...)
		}
		runs := someRuns().Draw(t, "runs")
		require.NoError(t, wire.CheckRuns(runs), "what the decoder lets through")
		err := g.CheckDestinations(runs, ports.Place{})
		require.Equal(t, allowed(all, runs, ports.Place{}), err == nil, "%v", err)
	})
}

func TestPlacesAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		chunk := rapid.Uint64Range(1, 64).Draw(t, "chunk")
		var runs ports.Runs
		sum, inside := uint64(0), true
		for range rapid.IntRange(1, 4).Draw(t, "runs") {
			r := ports.Run{
				Offset: rapid.OneOf(rapid.Uint64Range(0, 70), rapid.Just(uint64(math.MaxUint64-60))).Draw(t, "offset"),
				Piece:  rapid.Uint32Range(1, 20).Draw(t, "piece"), Pieces: rapid.Uint32Range(1, 4).Draw(t, "pieces"), Step: rapid.Uint32Range(0, 20).Draw(t, "step"), Table: ports.NoTable,
			}
			runs.Runs = append(runs.Runs, r)
			for k := range uint64(r.Pieces) {
				end := new(big.Int).SetUint64(r.Offset)
				end.Add(end, new(big.Int).SetUint64(k*uint64(r.Step)+uint64(r.Piece)))
				inside = inside && end.Cmp(new(big.Int).SetUint64(chunk)) <= 0
				sum += uint64(r.Piece)
			}
		}
		require.Equal(t, inside && sum <= chunk, checkPlaces(runs, chunk) == nil)
	})
}

func TestRegistry(t *testing.T) {
	var g Registry
	require.False(t, g.covers(ports.Descriptor{Addr: 5, Bytes: 1}), "nothing is registered")
	require.True(t, g.covers(ports.Descriptor{Addr: 5}), "no bytes need no registration")
	require.Error(t, g.CheckDestinations(planned(0, 8).Scatter, ports.Place{}))
	one, two := []ports.Descriptor{{Addr: 100, Bytes: 50}, {Addr: 150, Bytes: 50}}, []ports.Descriptor{{Addr: 120, Bytes: 200}}
	g.Add(one)
	g.Add(two)
	require.True(t, g.covers(ports.Descriptor{Addr: 100, Bytes: 220}), "across registrations")
	require.False(t, g.covers(ports.Descriptor{Addr: 100, Bytes: 221}))
	require.False(t, g.covers(ports.Descriptor{Addr: 100, Bytes: 1, Place: ports.Place{Kind: ports.Device}}))
	require.False(t, g.covers(ports.Descriptor{Addr: 100, Bytes: math.MaxUint64}))
	g.Remove(two)
	require.True(t, g.covers(ports.Descriptor{Addr: 100, Bytes: 100}))
	require.False(t, g.covers(ports.Descriptor{Addr: 150, Bytes: 51}))
	g.Remove(two)
	g.Remove(one)
	require.False(t, g.covers(ports.Descriptor{Addr: 100, Bytes: 1}))
}

// covers reports whether all bytes of the descriptor are registered.
func (g *Registry) covers(d ports.Descriptor) bool {
	spans := g.merged.Load()
	if d.Bytes == 0 {
		return true
	}
	last := d.Addr + d.Bytes - 1
	return spans != nil && last >= d.Addr && covers(*spans, d.Addr, last, d.Place)
}
