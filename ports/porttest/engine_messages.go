package porttest

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

// messages are told apart by their content, whatever order they come in.
func (b *engineBench) messages(tag string) map[string][]byte {
	messages := map[string][]byte{}
	add := func(m []byte) { messages[string(m)] = m }
	add([]byte{})
	add([]byte{0})
	add([]byte{0, 0, 0})
	add([]byte("a\x00b\x00\x00c"))
	for _, n := range []int{1, 7, 63, 1000, 4096, 8192, 8193, 100_000} {
		m := make([]byte, n+len(tag))
		copy(m, tag)
		b.scramble(m[len(tag):])
		add(m)
	}
	for i := range 50 {
		add(fmt.Appendf(nil, "%s %d", tag, i))
	}
	return messages
}

// send has a message accepted. The bytes are spoilt right after, since the engine must have copied them.
func (b *engineBench) send(from, to EngineEnd, message []byte) {
	b.Helper()
	sent := slices.Clone(message)
	b.await("a notification is accepted", func() bool { return from.Engine.Notify(to.Identity, sent) == nil })
	for i := range sent {
		sent[i] ^= 0x5A
	}
}

// receive takes what has arrived, and spoils it, since it belongs to the caller. Everything must be one of the messages, whole.
func (b *engineBench) receive(at, from EngineEnd, expected, missing map[string][]byte) {
	b.Helper()
	for {
		sender, message, ok := at.Engine.RecvNotify()
		if !ok {
			return
		}
		require.Equal(b, from.Identity, sender)
		want, known := expected[string(message)]
		if !known {
			b.Fatalf("a message of %d bytes arrived that nobody sent", len(message))
		}
		require.True(b, bytes.Equal(want, message))
		delete(missing, string(message))
		for i := range message {
			message[i] = 0xEE
		}
	}
}

// arrive drives until all messages have arrived. Lost ones are sent again now and then: the contract allows loss.
func (b *engineBench) arrive(from, to EngineEnd, expected map[string][]byte) {
	b.Helper()
	missing := make(map[string][]byte)
	for key, m := range expected {
		missing[key] = m
	}
	turns := 0
	b.await("every notification arrives", func() bool {
		b.receive(to, from, expected, missing)
		turns++
		if turns%100_000 == 0 {
			for _, m := range missing {
				_ = from.Engine.Notify(to.Identity, slices.Clone(m)) // refused: tried again in a later round
			}
		}
		return len(missing) == 0
	})
}

var engineNotifyTests = []engineTest{
	{"none has arrived when none was sent", func(b *engineBench) {
		b.connected(4096)
		b.settle()
		for _, end := range []EngineEnd{b.A, b.B} {
			_, _, ok := end.Engine.RecvNotify()
			require.False(b, ok)
		}
	}},
	{"any bytes arrive whole, both ways, in any order; the engine copies, the caller owns", func(b *engineBench) {
		b.connected(4096)
		there, back := b.messages("there"), b.messages("back")
		for _, m := range there {
			b.send(b.A, b.B, m)
		}
		for _, m := range back {
			b.send(b.B, b.A, m)
		}
		b.arrive(b.A, b.B, there)
		b.arrive(b.B, b.A, back)
	}},
	{"transfers and notifications do not disturb each other", func(b *engineBench) {
		local, remote := b.connected(1 << 20)
		messages := b.messages("beside")
		for _, m := range messages {
			b.send(b.A, b.B, m)
		}
		transfer := b.write(local.Descriptor, remote.Descriptor)
		b.arrive(b.A, b.B, messages)
		b.succeed(transfer)
		b.sameBytes(local.bytes, remote.bytes, "target")
	}},
}

var engineProgressTests = []engineTest{
	{"reports that a transfer became final", func(b *engineBench) {
		local, remote := b.connected(1 << 20)
		b.succeed(b.write(local.Descriptor, remote.Descriptor))
		b.calm()
		transfer := b.write(local.Descriptor, remote.Descriptor)
		final := transfer.Status() != ports.Pending
		b.movedA = false
		b.await("Progress reports the end of a transfer", func() bool {
			// One that was final when it was returned need not be reported.
			return transfer.Status() == ports.Success && (b.movedA || final)
		})
	}},
	{"reports that a message arrived", func(b *engineBench) {
		b.connected(4096)
		hello := map[string][]byte{"hello": []byte("hello")}
		b.send(b.A, b.B, hello["hello"])
		b.arrive(b.A, b.B, hello)
		b.calm()
		b.movedB = false
		arrived := false
		b.send(b.A, b.B, []byte("again"))
		b.await("Progress reports a message", func() bool {
			_, _, ok := b.B.Engine.RecvNotify()
			arrived = arrived || ok
			return arrived && b.movedB
		})
	}},
	{"reports nothing when nothing happens", func(b *engineBench) {
		b.connected(4096)
		b.calm()
	}},
	{"a peer's transfers need no call but Progress here", func(b *engineBench) {
		local, remote := b.connected(2 << 20)
		transfer := b.B.Engine.PostWrite(b.A.Identity, []ports.Descriptor{remote.Descriptor}, []ports.Descriptor{local.Descriptor})
		b.succeed(transfer)
		b.sameBytes(remote.bytes, local.bytes, "target")
	}},
}

// engineRestTests are for engines that are a ports.Rester; of the others Rest answers nothing.
var engineRestTests = []engineTest{
	{"at rest, messages arrive and peers' transfers move without Progress", func(b *engineBench) {
		local, remote := b.connected(2 << 20)
		rester, ok := b.B.Engine.(ports.Rester)
		if !ok {
			return
		}
		b.calm()
		if !rester.Rest() {
			return
		}
		onlyA := b.EnginePair
		onlyA.B.Engine = asleep{b.B.Engine}
		one := &engineBench{T: b.T, EnginePair: onlyA, random: b.random}
		for round := range 3 {
			message := []byte{byte(round)}
			b.send(b.A, b.B, message)
			one.await("a message arrives", func() bool {
				_, got, ok := b.B.Engine.RecvNotify()
				return ok && bytes.Equal(got, message)
			})
			one.succeed(one.write(local.Descriptor, remote.Descriptor))
			b.sameBytes(local.bytes, remote.bytes, "target")
			b.scramble(local.bytes)
		}
		b.await("Progress reports what happened at rest", func() bool { return b.movedB })
		b.succeed(b.B.Engine.PostWrite(b.A.Identity, []ports.Descriptor{remote.Descriptor}, []ports.Descriptor{local.Descriptor})) // it works again
	}},
}

// asleep is an engine whose reactor does not call Progress.
type asleep struct{ ports.TransferEngine }

func (asleep) Progress() bool { return false }

// calm drives until nothing moves for some time.
func (b *engineBench) calm() {
	b.Helper()
	still := 0
	b.await("nothing moves any more", func() bool {
		runtime.Gosched()
		if b.drive() {
			still = 0
		}
		still++
		return still > 100
	})
}

var engineCloseTests = []engineTest{
	{"a second call does nothing", func(b *engineBench) {
		require.NoError(b, b.A.Engine.Close())
		require.NoError(b, b.A.Engine.Close())
	}},
	{"everything afterwards says that it is closed", func(b *engineBench) {
		local, remote := b.connected(4096)
		m := b.metadata(b.B)
		before := slices.Clone(remote.bytes)
		require.NoError(b, b.A.Engine.Close())

		_, err := b.A.Engine.Register([]ports.Descriptor{local.Descriptor})
		require.ErrorIs(b, err, ports.ErrClosed)
		require.ErrorIs(b, b.A.Engine.Deregister(local.registration), ports.ErrClosed)
		_, err = b.A.Engine.Metadata()
		require.ErrorIs(b, err, ports.ErrClosed)
		require.ErrorIs(b, b.A.Engine.Connect(b.B.Identity, m), ports.ErrClosed)
		require.ErrorIs(b, b.A.Engine.Notify(b.B.Identity, []byte("hello")), ports.ErrClosed)
		b.refused(b.write(local.Descriptor, remote.Descriptor), ports.ErrClosed)
		b.refused(b.A.Engine.PostRead(b.B.Identity, []ports.Descriptor{local.Descriptor}, []ports.Descriptor{remote.Descriptor}), ports.ErrClosed)
		b.A.Engine.Disconnect(b.B.Identity)
		b.A.Engine.Progress()
		b.sameBytes(before, remote.bytes, "target")
	}},
	{"final transfers stay as they were, and pending ones claim nothing that is not so", func(b *engineBench) {
		local, remote := b.connected(8 << 20)
		well := b.write(local.Descriptor, remote.Descriptor)
		b.succeed(well)
		before := slices.Clone(remote.bytes)
		b.scramble(local.bytes)
		transfer := b.write(local.Descriptor, remote.Descriptor)
		require.NoError(b, b.A.Engine.Close())
		require.Equal(b, ports.Success, well.Status())
		b.checkClaim(transfer, before, local, remote)
		transfer.Release()
	}},
	{"from another goroutine", func(b *engineBench) {
		b.connected(4096)
		done := make(chan error, 1)
		go func() { done <- b.A.Engine.Close() }()
		require.NoError(b, <-done)
	}},
	{"the other end lives on", func(b *engineBench) {
		local, _ := b.connected(4096)
		require.NoError(b, b.A.Engine.Close())
		b.settle()
		require.NoError(b, b.B.Engine.Deregister(b.register(b.B, 4096).registration))
		_ = local
	}},
}
