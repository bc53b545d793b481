package porttest

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

// EnginePair is two agents' engines of one kind that can reach each other. The fixture closes them when the test ends (t.Cleanup); closing twice is part of the contract.
type EnginePair struct {
	A, B EngineEnd
	// Drive does what the world around the engines must do for them to move, such as letting a simulator's time pass. nil: nothing. The suite calls both engines' Progress by itself.
	Drive func()
	// TellsUnregistered says that the engine recognises ranges that are not registered, here and at the peer, which the contract asks for only "if the engine can tell".
	TellsUnregistered bool
}

// EngineEnd is one agent's engine and what a test needs beside it.
type EngineEnd struct {
	Engine   ports.TransferEngine
	Identity ports.Identity
	// Alloc gives memory that this engine can register: its place and address as one descriptor, and a view of the same bytes. It stays mapped until the test has ended and the engines
	// are closed.
	Alloc func(bytes int) (ports.Descriptor, []byte)
}

// TransferEngine checks that an engine keeps the contract of ports.TransferEngine. newPair is called for each test that needs engines that do not know each other, and
// once for each group of the others.
//
//	func TestContract(t *testing.T) {
//		porttest.TransferEngine(t, newPair)
//	}
func TransferEngine(t *testing.T, newPair func(t *testing.T) EnginePair) {
	groups := []struct {
		name  string
		fresh bool // each test has a pair of its own
		tests []engineTest
	}{
		{"Register", false, engineRegisterTests},
		{"Metadata", true, engineMetadataTests},
		{"Peers", true, enginePeerTests},
		{"Transfers", false, engineTransferTests},
		{"Refusals", false, engineRefusalTests},
		{"Handles", false, engineHandleTests},
		{"Notify", false, engineNotifyTests},
		{"Progress", false, engineProgressTests},
		{"Rest", false, engineRestTests},
		{"Close", true, engineCloseTests},
	}
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) {
			var shared EnginePair
			if !group.fresh {
				shared = newPair(t)
			}
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) {
					pair := shared
					if group.fresh {
						pair = newPair(t)
					}
					test.run(&engineBench{T: t, EnginePair: pair, random: rand.New(rand.NewPCG(1, 2))})
				})
			}
		})
	}
}

type engineTest struct {
	name string
	run  func(b *engineBench)
}

// engineBench is a pair under test, with the steps that the tests are made of.
type engineBench struct {
	*testing.T
	EnginePair
	random         *rand.Rand
	movedA, movedB bool // what Progress reported since a test cleared it
}

// Limits of a wait. A real engine needs time, a simulated one turns; neither is a statement about speed.
const (
	engineWaitTurns = 5_000_000
	engineWaitTime  = 30 * time.Second
)

// drive lets everything move once.
func (b *engineBench) drive() (moved bool) {
	a, bb := b.A.Engine.Progress(), b.B.Engine.Progress()
	b.movedA, b.movedB = b.movedA || a, b.movedB || bb
	if b.Drive != nil {
		b.Drive()
	}
	return a || bb
}

// await drives until the condition holds, and fails the test when it never does.
func (b *engineBench) await(what string, condition func() bool) {
	b.Helper()
	deadline := time.Now().Add(engineWaitTime)
	idle := 0
	for range engineWaitTurns {
		if condition() {
			return
		}
		if b.drive() {
			idle = 0
			continue
		}
		idle++
		runtime.Gosched()
		if idle < 64 {
			continue
		}
		if b.Drive == nil {
			time.Sleep(20 * time.Microsecond) // leave the processor to the engines' own threads
		}
		if idle%64 == 0 && time.Now().After(deadline) {
			break
		}
	}
	b.Fatalf("it never happened: %s", what)
}

// finish drives until the transfer is not pending.
func (b *engineBench) finish(transfer ports.Transfer) ports.TransferStatus {
	b.Helper()
	b.await("the transfer becomes final", func() bool { return transfer.Status() != ports.Pending })
	return transfer.Status()
}

// succeed drives until the transfer has succeeded.
func (b *engineBench) succeed(transfer ports.Transfer) {
	b.Helper()
	require.Equal(b, ports.Success, b.finish(transfer), "error: %v", transfer.Err())
	require.NoError(b, transfer.Err())
}

// engineBlock is registered memory of one end.
type engineBlock struct {
	ports.Descriptor
	bytes        []byte
	registration ports.Registration
}

// at is n bytes from the offset on.
func (k engineBlock) at(offset, n int) ports.Descriptor {
	return ports.Descriptor{Addr: k.Addr + uint64(offset), Bytes: uint64(n), Place: k.Place}
}

// alloc gives memory with random content, not registered.
func (b *engineBench) alloc(end EngineEnd, n int) engineBlock {
	b.Helper()
	d, view := end.Alloc(n)
	require.Equal(b, uint64(n), d.Bytes, "the fixture's memory")
	require.Len(b, view, n, "the fixture's memory")
	b.scramble(view)
	return engineBlock{Descriptor: d, bytes: view}
}

func (b *engineBench) scramble(view []byte) {
	for i := range view {
		view[i] = byte(b.random.Uint32())
	}
}

// register gives registered memory.
func (b *engineBench) register(end EngineEnd, n int) engineBlock {
	b.Helper()
	k := b.alloc(end, n)
	r, err := end.Engine.Register([]ports.Descriptor{k.Descriptor})
	require.NoError(b, err)
	k.registration = r
	return k
}

// metadata takes an end's metadata.
func (b *engineBench) metadata(end EngineEnd) []byte {
	b.Helper()
	m, err := end.Engine.Metadata()
	require.NoError(b, err)
	require.NotEmpty(b, m)
	return m
}

// introduce lets one end know the other's metadata.
func (b *engineBench) introduce(to, peer EngineEnd) {
	b.Helper()
	require.NoError(b, to.Engine.Connect(peer.Identity, b.metadata(peer)))
}

// connected gives one registered block at each end, and introduces the ends to each other.
func (b *engineBench) connected(n int) (local, remote engineBlock) {
	b.Helper()
	local, remote = b.register(b.A, n), b.register(b.B, n)
	b.introduce(b.A, b.B)
	b.introduce(b.B, b.A)
	return local, remote
}

// write is A's write of one range to B.
func (b *engineBench) write(local, remote ports.Descriptor) ports.Transfer {
	return b.A.Engine.PostWrite(b.B.Identity, []ports.Descriptor{local}, []ports.Descriptor{remote})
}

// refused checks a transfer that must fail as proof that nothing was posted.
func (b *engineBench) refused(transfer ports.Transfer, reasons ...error) {
	b.Helper()
	require.NotNil(b, transfer)
	require.Equal(b, ports.FailedNothingPosted, b.finish(transfer), "error: %v", transfer.Err())
	require.ErrorIs(b, transfer.Err(), ports.ErrNothingPosted)
	for _, reason := range reasons {
		require.ErrorIs(b, transfer.Err(), reason)
	}
}

// sameBytes compares without printing megabytes.
func (b *engineBench) sameBytes(want, got []byte, what string) {
	b.Helper()
	if bytes.Equal(want, got) {
		return
	}
	require.Len(b, got, len(want), what)
	for i := range want {
		if want[i] != got[i] {
			b.Fatalf("%s: byte %d of %d is %#x, want %#x", what, i, len(want), got[i], want[i])
		}
	}
}

// settle drives for a while, so that what should not happen has its chance to.
func (b *engineBench) settle() {
	for range 200 {
		b.drive()
		runtime.Gosched()
	}
}
