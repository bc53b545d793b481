package porttest

import (
	"math"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

// engineSizes are lengths at which copies tend to go wrong.
var engineSizes = []int{1, 2, 3, 7, 8, 31, 64, 100, 4095, 4096, 4097, 65535, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3<<20 + 5}

// engineDirection is a write or a read, told by which block is copied to which.
type engineDirection struct {
	name string
	post func(b *engineBench, local, remote []ports.Descriptor) ports.Transfer
	ends func(local, remote engineBlock) (from, to engineBlock)
}

var engineDirections = []engineDirection{
	{
		"write",
		func(b *engineBench, local, remote []ports.Descriptor) ports.Transfer {
			return b.A.Engine.PostWrite(b.B.Identity, local, remote)
		},
		func(local, remote engineBlock) (from, to engineBlock) { return local, remote },
	},
	{
		"read",
		func(b *engineBench, local, remote []ports.Descriptor) ports.Transfer {
			return b.A.Engine.PostRead(b.B.Identity, local, remote)
		},
		func(local, remote engineBlock) (from, to engineBlock) { return remote, local },
	},
}

// engineCopy is one pair of a transfer, as offsets into the two blocks.
type engineCopy struct{ local, remote, bytes int }

// copies moves pairs in one transfer and checks every byte of both blocks, those around the targets too.
func (b *engineBench) copies(direction engineDirection, local, remote engineBlock, pairs []engineCopy) {
	b.Helper()
	from, to := direction.ends(local, remote)
	unchanged, want := slices.Clone(from.bytes), slices.Clone(to.bytes)
	var locals, remotes []ports.Descriptor
	for _, p := range pairs {
		locals = append(locals, local.at(p.local, p.bytes))
		remotes = append(remotes, remote.at(p.remote, p.bytes))
		fromAt, toAt := p.local, p.remote
		if direction.name == "read" {
			fromAt, toAt = p.remote, p.local
		}
		copy(want[toAt:toAt+p.bytes], from.bytes[fromAt:])
	}
	transfer := direction.post(b, locals, remotes)
	b.succeed(transfer)
	transfer.Release()
	b.sameBytes(unchanged, from.bytes, "source")
	b.sameBytes(want, to.bytes, "target")
}

// pieces lays n pieces at random places of a block without overlap, of at most size bytes, some empty.
func (b *engineBench) pieces(n, size int) []engineCopy {
	pairs := make([]engineCopy, n)
	localOrder, remoteOrder := b.random.Perm(n), b.random.Perm(n)
	for i := range pairs {
		bytes := b.random.IntN(size + 1)
		slack := size - bytes
		pairs[i] = engineCopy{localOrder[i]*size + b.random.IntN(slack+1), remoteOrder[i]*size + b.random.IntN(slack+1), bytes}
	}
	return pairs
}

var engineTransferTests = []engineTest{
	{"one range of any size at any address, both ways", func(b *engineBench) {
		local, remote := b.connected(4 << 20)
		for _, direction := range engineDirections {
			for i, n := range engineSizes {
				b.scramble(local.bytes[:64])
				b.scramble(remote.bytes[:64])
				b.copies(direction, local, remote, []engineCopy{{i, 3 * i, n}})
			}
		}
	}},
	{"many ranges, both ways", func(b *engineBench) {
		local, remote := b.connected(4 << 20)
		for _, direction := range engineDirections {
			b.copies(direction, local, remote, b.pieces(4096, 1024))
			b.copies(direction, local, remote, b.pieces(33, 100_000))
			b.copies(direction, local, remote, b.pieces(2, 2<<20))
		}
	}},
	{"ranges of many registrations in one transfer", func(b *engineBench) {
		var sources, targets []engineBlock
		for i := range 20 {
			sources = append(sources, b.register(b.A, 1000+i))
			targets = append(targets, b.register(b.B, 1000+i))
		}
		b.introduce(b.A, b.B)
		b.introduce(b.B, b.A)
		var local, remote []ports.Descriptor
		for i := range sources {
			local, remote = append(local, sources[i].Descriptor), append(remote, targets[i].Descriptor)
		}
		b.succeed(b.A.Engine.PostWrite(b.B.Identity, local, remote))
		for i := range sources {
			b.sameBytes(sources[i].bytes, targets[i].bytes, "target")
		}
	}},
	{"empty ranges are skipped, and a transfer of nothing succeeds", func(b *engineBench) {
		local, remote := b.connected(4096)
		for _, direction := range engineDirections {
			b.copies(direction, local, remote, nil)
			b.copies(direction, local, remote, []engineCopy{{0, 0, 0}})
			b.copies(direction, local, remote, []engineCopy{{5, 9, 0}, {100, 1000, 77}, {4096, 4096, 0}})
		}
	}},
	{"the slices are copied before the post returns", func(b *engineBench) {
		local, remote := b.connected(1 << 20)
		before := slices.Clone(remote.bytes)
		l, r := []ports.Descriptor{local.at(0, 1000)}, []ports.Descriptor{remote.at(5000, 1000)}
		transfer := b.A.Engine.PostWrite(b.B.Identity, l, r)
		l[0], r[0] = local.at(2000, 3000), remote.at(9000, 3000)
		b.succeed(transfer)
		copy(before[5000:6000], local.bytes)
		b.sameBytes(before, remote.bytes, "target")
	}},
	{"many transfers at once, in both directions", func(b *engineBench) {
		const n, size = 32, 50_000
		local, remote := b.connected(4 * n * size)
		wantRemote, wantLocal := slices.Clone(remote.bytes), slices.Clone(local.bytes)
		var transfers []ports.Transfer
		for i := range n {
			// Four stripes of each block: sources of A's writes, targets of A's reads, of B's writes, sources of B's reads.
			a, c, d, e := i*size, (n+i)*size, (2*n+i)*size, (3*n+i)*size
			one := func(k engineBlock, at int) []ports.Descriptor { return []ports.Descriptor{k.at(at, size)} }
			transfers = append(transfers,
				b.A.Engine.PostWrite(b.B.Identity, one(local, a), one(remote, a)),
				b.A.Engine.PostRead(b.B.Identity, one(local, c), one(remote, c)),
				b.B.Engine.PostWrite(b.A.Identity, one(remote, d), one(local, d)),
				b.B.Engine.PostRead(b.A.Identity, one(remote, e), one(local, e)))
			copy(wantRemote[a:a+size], local.bytes[a:])
			copy(wantLocal[c:c+size], remote.bytes[c:])
			copy(wantLocal[d:d+size], remote.bytes[d:])
			copy(wantRemote[e:e+size], local.bytes[e:])
		}
		for _, transfer := range transfers {
			b.succeed(transfer)
		}
		b.sameBytes(wantRemote, remote.bytes, "B's block")
		b.sameBytes(wantLocal, local.bytes, "A's block")
	}},
}

var engineRefusalTests = []engineTest{
	{"lists of different length", func(b *engineBench) {
		local, remote := b.connected(4096)
		before := slices.Clone(remote.bytes)
		one, two := []ports.Descriptor{local.at(0, 100)}, []ports.Descriptor{remote.at(0, 50), remote.at(50, 50)}
		b.refused(b.A.Engine.PostWrite(b.B.Identity, one, two))
		b.refused(b.A.Engine.PostWrite(b.B.Identity, nil, two))
		b.refused(b.A.Engine.PostRead(b.B.Identity, one, nil))
		b.sameBytes(before, remote.bytes, "target")
	}},
	{"pairs of different bytes, the first, the last and an empty one", func(b *engineBench) {
		local, remote := b.connected(4096)
		before := slices.Clone(remote.bytes)
		for _, wrong := range []int{0, 1, 2} {
			for _, n := range []int{0, 99, 101} {
				var l, r []ports.Descriptor
				for i := range 3 {
					l, r = append(l, local.at(i*200, 100)), append(r, remote.at(i*200, 100))
				}
				l[wrong] = local.at(wrong*200, n)
				b.refused(b.A.Engine.PostWrite(b.B.Identity, l, r))
				b.refused(b.A.Engine.PostRead(b.B.Identity, l, r))
			}
		}
		b.sameBytes(before, remote.bytes, "target")
	}},
	{"a range outside what is registered, here or at the peer", func(b *engineBench) {
		local, remote := b.connected(8192)
		strayLocal, strayRemote := b.alloc(b.A, 4096), b.alloc(b.B, 4096)
		before := slices.Clone(remote.bytes)
		localBefore, strayBefore := slices.Clone(local.bytes), slices.Clone(strayRemote.bytes)
		good := func(k engineBlock) ports.Descriptor { return k.at(0, 4096) }
		beyond := ports.Descriptor{Addr: math.MaxUint64 - 100, Bytes: 4096, Place: local.Place}
		pairs := [][2]ports.Descriptor{
			{strayLocal.Descriptor, good(remote)},
			{good(local), strayRemote.Descriptor},
			{local.at(4097, 4096), good(remote)}, // over its end
			{good(local), remote.at(-1, 4096)},   // before its begin
			{beyond, good(remote)},               // over the end of the address space
			{good(local), beyond},                //
			{{Addr: local.Addr, Bytes: 4096, Place: ports.Place{Kind: 1 - local.Place.Kind}}, good(remote)}, // another kind of memory
		}
		for i, pair := range pairs {
			// Alone, and as the last of many: then nothing of the many may be posted either.
			many := []ports.Descriptor{}
			for range 1000 {
				many = append(many, local.at(0, 8))
			}
			manyRemote := []ports.Descriptor{}
			for j := range 1000 {
				manyRemote = append(manyRemote, remote.at(j*8, 8))
			}
			for _, lists := range [][2][]ports.Descriptor{{{pair[0]}, {pair[1]}}, {append(many, pair[0]), append(manyRemote, pair[1])}} {
				for _, direction := range engineDirections {
					transfer := direction.post(b, lists[0], lists[1])
					status := b.finish(transfer)
					require.NotEqual(b, ports.Success, status, "pair %d, %s", i, direction.name)
					if b.TellsUnregistered || status == ports.FailedNothingPosted {
						b.refused(transfer)
						b.sameBytes(before, remote.bytes, "target")
						b.sameBytes(localBefore, local.bytes, "source")
						b.sameBytes(strayBefore, strayRemote.bytes, "stray target")
					}
					if b.TellsUnregistered {
						require.ErrorIs(b, transfer.Err(), ports.ErrNotRegistered, "pair %d, %s", i, direction.name)
					}
				}
			}
		}
	}},
	{"a range over two adjacent registrations", func(b *engineBench) {
		k, remote := b.alloc(b.A, 8192), b.register(b.B, 8192)
		_, err := b.A.Engine.Register([]ports.Descriptor{k.at(0, 4096), k.at(4096, 4096)})
		require.NoError(b, err)
		b.introduce(b.A, b.B)
		b.introduce(b.B, b.A)
		before := slices.Clone(remote.bytes)
		status := b.finish(b.write(k.at(4000, 200), remote.at(0, 200)))
		require.NotEqual(b, ports.Success, status)
		if b.TellsUnregistered {
			require.Equal(b, ports.FailedNothingPosted, status)
			b.sameBytes(before, remote.bytes, "target")
		}
		b.succeed(b.A.Engine.PostWrite(b.B.Identity, []ports.Descriptor{k.at(4000, 96), k.at(4096, 104)}, []ports.Descriptor{remote.at(0, 96), remote.at(96, 104)}))
		b.sameBytes(k.bytes[4000:4200], remote.bytes[:200], "target")
	}},
}

var engineHandleTests = []engineTest{
	{"success is latched, and has no error", func(b *engineBench) {
		local, remote := b.connected(4096)
		transfer := b.write(local.Descriptor, remote.Descriptor)
		require.NoError(b, engineErrUnlessFailed(transfer))
		b.succeed(transfer)
		b.A.Engine.Disconnect(b.B.Identity)
		for range 100 {
			b.drive()
			require.Equal(b, ports.Success, transfer.Status())
			require.NoError(b, transfer.Err())
		}
	}},
	{"Release: status and error stay as answered, a second call does nothing", func(b *engineBench) {
		local, remote := b.connected(4096)
		well := b.write(local.Descriptor, remote.Descriptor)
		b.succeed(well)
		badly := b.A.Engine.PostWrite(b.A.Identity, []ports.Descriptor{local.Descriptor}, []ports.Descriptor{remote.Descriptor})
		b.refused(badly, ports.ErrUnknownPeer)
		for range 3 {
			well.Release()
			badly.Release()
			b.drive()
			require.Equal(b, ports.Success, well.Status())
			require.NoError(b, well.Err())
			require.Equal(b, ports.FailedNothingPosted, badly.Status())
			require.ErrorIs(b, badly.Err(), ports.ErrNothingPosted)
		}
	}},
	{"Release of a pending transfer harms nobody, and its status stays as it was answered", func(b *engineBench) {
		local, remote := b.connected(8 << 20)
		for range 4 {
			transfer := b.write(local.Descriptor, remote.Descriptor)
			answered := transfer.Status()
			transfer.Release()
			b.settle()
			require.Equal(b, answered, transfer.Status())
			transfer.Release()
		}
		// The released ones may still run: a transfer elsewhere must not mind.
		source, target := b.register(b.A, 4096), b.register(b.B, 4096)
		b.introduce(b.A, b.B)
		b.succeed(b.write(source.Descriptor, target.Descriptor))
		b.sameBytes(source.bytes, target.bytes, "target")
	}},
}

// engineErrUnlessFailed is the error of a transfer that has not failed, which must be nil.
func engineErrUnlessFailed(transfer ports.Transfer) error {
	err := transfer.Err()
	switch transfer.Status() {
	case ports.Pending, ports.Success:
		return err
	}
	return nil
}
