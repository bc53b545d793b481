package nixl

import (
	"errors"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/ports"
)

// The layout that capi.c assumes of ports.Descriptor.
func TestDescriptorLayout(t *testing.T) {
	var d ports.Descriptor
	require.EqualValues(t, 24, unsafe.Sizeof(d))
	require.EqualValues(t, 0, unsafe.Offsetof(d.Addr))
	require.EqualValues(t, 8, unsafe.Offsetof(d.Bytes))
	require.EqualValues(t, 16, unsafe.Offsetof(d.Place)+unsafe.Offsetof(d.Place.Kind))
	require.EqualValues(t, 20, unsafe.Offsetof(d.Place)+unsafe.Offsetof(d.Place.Device))
	require.EqualValues(t, 1, unsafe.Sizeof(d.Place.Kind))
}

// everything covers all that the tests of cutting use.
var everything = newCoverage([]ports.Descriptor{
	{Addr: 0, Bytes: 1 << 40},
	{Addr: 0, Bytes: 1 << 40, Place: ports.Place{Kind: ports.Device}},
})

// Whatever the limits, the pieces of a transfer are its descriptors, each byte once, in order, with one kind of memory on each side.
func TestCutting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := limits{bytes: rapid.Uint64Range(1, 50).Draw(t, "bytes"), descriptors: rapid.IntRange(1, 5).Draw(t, "descriptors")}
		n := rapid.IntRange(0, 12).Draw(t, "n")
		local, remote := make([]ports.Descriptor, n), make([]ports.Descriptor, n)
		for i := range n {
			bytes := rapid.Uint64Range(0, 120).Draw(t, "piece")
			kind := func(side string) ports.Place {
				return ports.Place{Kind: ports.MemoryKind(rapid.IntRange(0, 1).Draw(t, side))}
			}
			local[i] = ports.Descriptor{Addr: uint64(1000 * i), Bytes: bytes, Place: kind("local")}
			remote[i] = ports.Descriptor{Addr: uint64(100_000 + 1000*i), Bytes: bytes, Place: kind("remote")}
		}
		transfer := newTransfer(opWrite)
		require.NoError(t, transfer.takeLists(local, remote, everything, everything))

		type oneByte struct {
			local, remote           uint64
			localPlace, remotePlace ports.Place
		}
		var want, got []oneByte
		for i := range n {
			for b := range local[i].Bytes {
				want = append(want, oneByte{local[i].Addr + b, remote[i].Addr + b, local[i].Place, remote[i].Place})
			}
		}
		var part [2]ports.Descriptor
		for transfer.unposted() {
			c := transfer.cut(l, &part)
			require.NotEmpty(t, c.local)
			require.Len(t, c.remote, len(c.local))
			require.LessOrEqual(t, len(c.local), l.descriptors)
			total := uint64(0)
			for i, d := range c.local {
				r := c.remote[i]
				require.Equal(t, c.local[0].Place.Kind, d.Place.Kind)
				require.Equal(t, c.remote[0].Place.Kind, r.Place.Kind)
				require.Equal(t, d.Bytes, r.Bytes)
				require.Positive(t, d.Bytes)
				total += d.Bytes
				for b := range d.Bytes {
					got = append(got, oneByte{d.Addr + b, r.Addr + b, d.Place, r.Place})
				}
			}
			require.LessOrEqual(t, total, l.bytes)
			transfer.next, transfer.offset = c.next, c.offset
		}
		require.True(t, slices.Equal(want, got))
	})
}

// Whatever happens to the pieces, what a transfer says keeps to the contract: it claims an end only when no piece may move, and does not change its mind.
func TestVerdicts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "pieces")
		list := make([]ports.Descriptor, n)
		for i := range list {
			list[i] = ports.Descriptor{Addr: uint64(i), Bytes: 1}
		}
		transfer := newTransfer(opWrite)
		require.NoError(t, transfer.takeLists(list, list, everything, everything))
		posted, succeeded, seen := 0, 0, ports.Pending
		reason := errors.New("a reason")
		check := func() {
			changed := transfer.conclude()
			status, err := transfer.Status(), transfer.Err()
			require.Equal(t, changed, status != seen)
			if seen.Ended() {
				require.Equal(t, seen, status)
			}
			if seen == ports.FailedUnknown {
				require.Contains(t, []ports.TransferStatus{ports.FailedUnknown, ports.Success}, status)
			}
			seen = status
			require.Equal(t, status == ports.FailedNothingPosted, errors.Is(err, ports.ErrNothingPosted))
			require.Equal(t, status != ports.Pending && status != ports.Success, err != nil)
			if status.Ended() {
				require.Zero(t, transfer.running+transfer.unproved)
				require.Equal(t, posted, succeeded)
			}
			require.Equal(t, status == ports.Success, succeeded == n)
			if status == ports.FailedNothingPosted {
				require.Zero(t, posted)
			}
		}
		for range 20 {
			switch rapid.SampledFrom([]string{"post", "post", "succeed", "fail", "prove", "abandon"}).Draw(t, "event") {
			case "post":
				if transfer.unposted() {
					transfer.next++
					transfer.piecePosted()
					posted++
				}
			case "succeed":
				if transfer.running > 0 {
					transfer.pieceSucceeded()
					succeeded++
				}
			case "fail":
				if transfer.running > 0 {
					transfer.pieceUnproved(reason)
				}
			case "prove":
				if transfer.unproved > 0 {
					transfer.pieceProved()
					succeeded++
				}
			case "abandon":
				if transfer.unposted() {
					transfer.abandon(reason)
				}
			}
			if transfer.next == len(transfer.local) && !transfer.abandoned {
				transfer.freeLists()
			}
			check()
		}
	})
}

func TestCoverage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		small := rapid.Custom(func(t *rapid.T) ports.Descriptor {
			return ports.Descriptor{
				Addr:  rapid.Uint64Range(0, 60).Draw(t, "addr"),
				Bytes: rapid.Uint64Range(1, 30).Draw(t, "bytes"),
				Place: ports.Place{Kind: ports.MemoryKind(rapid.IntRange(0, 1).Draw(t, "kind")), Device: rapid.Uint32Range(0, 1).Draw(t, "device")},
			}
		})
		ranges := rapid.SliceOfN(small, 0, 8).Draw(t, "ranges")
		c, at := newCoverage(slices.Clone(ranges)), 0
		for _, d := range rapid.SliceOfN(small, 0, 30).Draw(t, "asked") {
			want := slices.ContainsFunc(ranges, func(r ports.Descriptor) bool {
				return r.Place == d.Place && r.Addr <= d.Addr && d.Addr+d.Bytes <= r.Addr+r.Bytes
			})
			require.Equal(t, want, c.covers(d, &at), "%v in %v", d, ranges)
		}
	})
	at := 0
	require.False(t, everything.covers(ports.Descriptor{Addr: ^uint64(0), Bytes: 2}, &at))
}

func TestQueuesAreBounded(t *testing.T) {
	box := inbox{limit: 1000 + 2*messageOverhead}
	require.True(t, box.put(message{"a#0000000000000001", make([]byte, 500)}))
	require.True(t, box.put(message{"b#0000000000000001", make([]byte, 500)}))
	require.False(t, box.put(message{"c#0000000000000001", nil}))
	from, bytes, ok := box.take()
	require.True(t, ok)
	require.EqualValues(t, "a#0000000000000001", from)
	require.Len(t, bytes, 500)
	require.True(t, box.put(message{"c#0000000000000001", nil}))
	for _, want := range []ports.Identity{"b#0000000000000001", "c#0000000000000001"} {
		from, _, ok = box.take()
		require.True(t, ok)
		require.Equal(t, want, from)
	}
	_, _, ok = box.take()
	require.False(t, ok)
	require.True(t, box.put(message{"d#0000000000000001", make([]byte, 5000)}), "one that is larger than the limit, alone")

	q := workQueue{limit: 100}
	require.True(t, q.reserve(500), "one that is larger than the limit, alone")
	require.False(t, q.reserve(1))
	q.unreserve(500)
	require.True(t, q.reserve(60))
	require.False(t, q.reserve(60))
}
