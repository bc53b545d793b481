package porttest

import (
	"math"
	"slices"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

var engineRegisterTests = []engineTest{
	{"Info names the engine, alike at both ends", func(b *engineBench) {
		info := b.A.Engine.Info()
		require.NotEmpty(b, info.Name)
		require.Equal(b, info, b.B.Engine.Info())
	}},
	{"copies the slice before it returns: the memory is usable although the slice changed", func(b *engineBench) {
		source, target := b.alloc(b.A, 4096), b.register(b.B, 4096)
		given := []ports.Descriptor{source.Descriptor}
		_, err := b.A.Engine.Register(given)
		require.NoError(b, err)
		given[0] = ports.Descriptor{}
		b.introduce(b.A, b.B)
		b.introduce(b.B, b.A)
		b.succeed(b.write(source.Descriptor, target.Descriptor))
		b.sameBytes(source.bytes, target.bytes, "target")
	}},
	{"takes no ranges, and empty ranges", func(b *engineBench) {
		k := b.alloc(b.A, 4096)
		for _, ranges := range [][]ports.Descriptor{nil, {k.at(0, 0)}, {k.at(0, 0), k.Descriptor}} {
			r, err := b.A.Engine.Register(ranges)
			require.NoError(b, err)
			require.NoError(b, b.A.Engine.Deregister(r))
		}
	}},
	{"a second Deregister is an error, and the memory can be registered again", func(b *engineBench) {
		k := b.register(b.A, 8192)
		require.NoError(b, b.A.Engine.Deregister(k.registration))
		require.Error(b, b.A.Engine.Deregister(k.registration))
		again, err := b.A.Engine.Register([]ports.Descriptor{k.Descriptor})
		require.NoError(b, err)
		require.NoError(b, b.A.Engine.Deregister(again))
	}},
	{"another engine's registration is refused", func(b *engineBench) {
		k := b.register(b.B, 4096)
		require.Error(b, b.A.Engine.Deregister(k.registration))
		require.NoError(b, b.B.Engine.Deregister(k.registration))
	}},
	{"a range that does not fit 64 bits is refused, and with it all others", func(b *engineBench) {
		local, remote := b.connected(4096)
		other := b.alloc(b.A, 4096)
		before := slices.Clone(remote.bytes)
		beyond := ports.Descriptor{Addr: math.MaxUint64 - 10, Bytes: 100, Place: local.Place}
		_, err := b.A.Engine.Register([]ports.Descriptor{other.Descriptor, beyond})
		require.Error(b, err)
		if b.TellsUnregistered {
			b.refused(b.write(other.Descriptor, remote.Descriptor), ports.ErrNotRegistered)
			b.sameBytes(before, remote.bytes, "target")
		}
	}},
	{"deregistered memory is no memory for transfers", func(b *engineBench) {
		local, remote := b.connected(4096)
		before := slices.Clone(remote.bytes)
		require.NoError(b, b.A.Engine.Deregister(local.registration))
		if b.TellsUnregistered {
			b.refused(b.write(local.Descriptor, remote.Descriptor), ports.ErrNotRegistered)
			b.sameBytes(before, remote.bytes, "target")
		}
	}},
	{"Register, Deregister, Metadata and Info from any goroutine while transfers run", func(b *engineBench) {
		local, remote := b.connected(1 << 20)
		var done sync.WaitGroup
		for _, end := range []EngineEnd{b.A, b.A, b.B} {
			k := b.alloc(end, 4096)
			done.Go(func() {
				for range 20 {
					r, err := end.Engine.Register([]ports.Descriptor{k.Descriptor})
					if err != nil {
						b.Errorf("Register: %v", err)
						return
					}
					if _, err := end.Engine.Metadata(); err != nil {
						b.Errorf("Metadata: %v", err)
					}
					if end.Engine.Info().Name == "" {
						b.Error("Info has no name")
					}
					if err := end.Engine.Deregister(r); err != nil {
						b.Errorf("Deregister: %v", err)
					}
				}
			})
		}
		for range 10 {
			b.scramble(local.bytes[:100])
			b.succeed(b.write(local.Descriptor, remote.Descriptor))
			b.sameBytes(local.bytes, remote.bytes, "target")
		}
		done.Wait()
	}},
}

var engineMetadataTests = []engineTest{
	{"the caller owns the bytes", func(b *engineBench) {
		source, target := b.register(b.A, 4096), b.register(b.B, 4096)
		spoilt := b.metadata(b.B)
		for i := range spoilt {
			spoilt[i] = 0xAA
		}
		b.introduce(b.A, b.B)
		b.introduce(b.B, b.A)
		b.succeed(b.write(source.Descriptor, target.Descriptor))
	}},
	{"a damaged copy is refused and harms nothing, before and after a good one", func(b *engineBench) {
		source, target := b.register(b.A, 4096), b.register(b.B, 4096)
		good := b.metadata(b.B)
		b.introduce(b.B, b.A)
		b.refuseDamaged(good)
		require.NoError(b, b.A.Engine.Connect(b.B.Identity, good))
		b.succeed(b.write(source.Descriptor, target.Descriptor))
		b.sameBytes(source.bytes, target.bytes, "target")

		b.refuseDamaged(good)
		b.scramble(source.bytes)
		b.succeed(b.write(source.Descriptor, target.Descriptor))
		b.sameBytes(source.bytes, target.bytes, "target")
	}},
	{"another agent's metadata is refused and harms nothing", func(b *engineBench) {
		local, remote := b.connected(4096)
		other, err := ports.NewIdentity("somebody-else", 42)
		require.NoError(b, err)
		require.ErrorIs(b, b.A.Engine.Connect(other, b.metadata(b.B)), ports.ErrBadMetadata)
		require.ErrorIs(b, b.A.Engine.Connect(b.B.Identity, b.metadata(b.A)), ports.ErrBadMetadata)
		b.refused(b.A.Engine.PostWrite(other, []ports.Descriptor{local.Descriptor}, []ports.Descriptor{remote.Descriptor}), ports.ErrUnknownPeer)
		b.succeed(b.write(local.Descriptor, remote.Descriptor))
	}},
}

// refuseDamaged offers A all sorts of damaged copies of B's metadata.
func (b *engineBench) refuseDamaged(good []byte) {
	b.Helper()
	refuse := func(damaged []byte, how string, at int) {
		b.Helper()
		require.ErrorIs(b, b.A.Engine.Connect(b.B.Identity, damaged), ports.ErrBadMetadata, "%s %d", how, at)
	}
	for i := range good {
		damaged := slices.Clone(good)
		damaged[i] ^= 1 << (i % 8)
		refuse(damaged, "a flipped bit in byte", i)
	}
	for n := range good {
		refuse(good[:n:n], "cut to", n)
	}
	refuse(append(slices.Clone(good), 0), "with an additional byte after", len(good))
	refuse(append(slices.Clone(good), good...), "twice, each of", len(good))
	refuse(nil, "nothing at all", 0)
}

var enginePeerTests = []engineTest{
	{"a peer that was never connected is unknown", func(b *engineBench) {
		local, remote := b.register(b.A, 4096), b.register(b.B, 4096)
		before := slices.Clone(remote.bytes)
		b.refused(b.write(local.Descriptor, remote.Descriptor), ports.ErrUnknownPeer)
		b.refused(b.A.Engine.PostRead(b.B.Identity, []ports.Descriptor{local.Descriptor}, []ports.Descriptor{remote.Descriptor}), ports.ErrUnknownPeer)
		require.ErrorIs(b, b.A.Engine.Notify(b.B.Identity, []byte("hello")), ports.ErrUnknownPeer)
		b.A.Engine.Disconnect(b.B.Identity)
		b.sameBytes(before, remote.bytes, "target")
	}},
	{"transfers may be posted right after Connect, which copied its bytes", func(b *engineBench) {
		source, target := b.register(b.A, 4096), b.register(b.B, 4096)
		b.introduce(b.B, b.A)
		m := b.metadata(b.B)
		require.NoError(b, b.A.Engine.Connect(b.B.Identity, m))
		clear(m)
		b.succeed(b.write(source.Descriptor, target.Descriptor))
		b.sameBytes(source.bytes, target.bytes, "target")
	}},
	{"a proof that nothing was posted is latched, and keeps its error", func(b *engineBench) {
		local, remote := b.register(b.A, 4096), b.register(b.B, 4096)
		transfer := b.write(local.Descriptor, remote.Descriptor)
		b.refused(transfer, ports.ErrUnknownPeer)
		b.introduce(b.A, b.B)
		b.settle()
		b.refused(transfer, ports.ErrUnknownPeer)
	}},
	{"notifications may be sent right after Connect", func(b *engineBench) {
		b.introduce(b.A, b.B)
		b.introduce(b.B, b.A)
		hello := map[string][]byte{"hello": []byte("hello")}
		b.send(b.A, b.B, hello["hello"])
		b.arrive(b.A, b.B, hello)
	}},
	{"one direction needs no introduction in the other", func(b *engineBench) {
		source, target := b.register(b.A, 4096), b.register(b.B, 4096)
		b.introduce(b.A, b.B)
		b.succeed(b.write(source.Descriptor, target.Descriptor))
		b.sameBytes(source.bytes, target.bytes, "target")
	}},
	{"the same copy again changes nothing", func(b *engineBench) {
		local, remote := b.connected(1 << 20)
		running := b.write(local.Descriptor, remote.Descriptor)
		b.introduce(b.A, b.B)
		b.succeed(running)
		b.introduce(b.A, b.B)
		b.succeed(b.write(local.Descriptor, remote.Descriptor))
		b.sameBytes(local.bytes, remote.bytes, "target")
	}},
	{"a newer copy adds registrations, and what was there goes on", func(b *engineBench) {
		local, remote := b.connected(2 << 20)
		running := b.write(local.Descriptor, remote.Descriptor)
		added := b.register(b.B, 4096)
		b.introduce(b.A, b.B)
		b.succeed(b.write(local.at(5, 4096), added.Descriptor))
		b.succeed(running)
		b.sameBytes(local.bytes, remote.bytes, "old target")
		b.sameBytes(local.bytes[5:5+4096], added.bytes, "added target")
		b.scramble(local.bytes)
		b.succeed(b.write(local.Descriptor, remote.Descriptor))
		b.sameBytes(local.bytes, remote.bytes, "old target, again")
	}},
	{"a newer copy may also have less, and what is left goes on", func(b *engineBench) {
		local, remote := b.connected(4096)
		more := b.register(b.B, 4096)
		b.introduce(b.A, b.B)
		b.succeed(b.write(local.Descriptor, more.Descriptor))
		require.NoError(b, b.B.Engine.Deregister(more.registration))
		b.introduce(b.A, b.B)
		b.scramble(local.bytes)
		b.succeed(b.write(local.Descriptor, remote.Descriptor))
		b.sameBytes(local.bytes, remote.bytes, "target")
		if b.TellsUnregistered {
			b.refused(b.write(local.Descriptor, more.Descriptor), ports.ErrNotRegistered)
		}
	}},
	{"a disconnected peer is unknown, and can be connected again", func(b *engineBench) {
		local, remote := b.connected(4096)
		b.succeed(b.write(local.Descriptor, remote.Descriptor))
		for range 3 {
			b.A.Engine.Disconnect(b.B.Identity)
			b.A.Engine.Disconnect(b.B.Identity)
			b.refused(b.write(local.Descriptor, remote.Descriptor), ports.ErrUnknownPeer)
			require.ErrorIs(b, b.A.Engine.Notify(b.B.Identity, []byte("hello")), ports.ErrUnknownPeer)
			b.settle()
			b.introduce(b.A, b.B)
			b.scramble(local.bytes)
			b.succeed(b.write(local.Descriptor, remote.Descriptor))
			b.sameBytes(local.bytes, remote.bytes, "target")
		}
	}},
	{"a transfer under way at Disconnect never claims what is not so", func(b *engineBench) {
		local, remote := b.connected(8 << 20)
		before := slices.Clone(remote.bytes)
		transfer := b.write(local.Descriptor, remote.Descriptor)
		b.A.Engine.Disconnect(b.B.Identity)
		b.settle()
		b.checkClaim(transfer, before, local, remote)
		// Connecting again must not change what was claimed, and serves new transfers.
		claimed := transfer.Status()
		b.introduce(b.A, b.B)
		b.succeed(b.write(local.Descriptor, remote.Descriptor))
		if claimed.Ended() {
			require.Equal(b, claimed, transfer.Status())
		}
		b.sameBytes(local.bytes, remote.bytes, "target")
	}},
}

// checkClaim compares what a transfer of a whole block says with the bytes.
func (b *engineBench) checkClaim(transfer ports.Transfer, before []byte, local, remote engineBlock) {
	b.Helper()
	switch transfer.Status() {
	case ports.Success:
		b.sameBytes(local.bytes, remote.bytes, "target of a success")
	case ports.FailedNothingPosted:
		b.sameBytes(before, remote.bytes, "target of a transfer that was not posted")
	case ports.FailedEnded:
		after := slices.Clone(remote.bytes)
		b.settle()
		b.sameBytes(after, remote.bytes, "target of a transfer that ended")
	}
}
