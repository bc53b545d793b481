package nixl

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

// end is an engine with one registered block.
type end struct {
	*Engine
	block ports.Descriptor
	bytes []byte
}

func newBlockEnd(t *testing.T, cfg Config, n int) end {
	t.Helper()
	e := newEngine(t, cfg)
	block, view := allocate(t, n)
	_, err := e.Register([]ports.Descriptor{block})
	require.NoError(t, err)
	return end{e, block, view}
}

// fill writes a pattern that differs from every other seed's.
func (e end) fill(seed byte) {
	for i := range e.bytes {
		e.bytes[i] = byte(i>>8) ^ byte(i) ^ seed
	}
}

func (e end) list() []ports.Descriptor { return []ports.Descriptor{e.block} }

func introduce(t *testing.T, to, peer end) {
	t.Helper()
	metadata, err := peer.Metadata()
	require.NoError(t, err)
	require.NoError(t, to.Connect(peer.identity, metadata))
}

// await drives the engines until the condition holds.
func await(t *testing.T, what string, condition func() bool, engines ...end) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(10 * time.Microsecond) {
		for _, e := range engines {
			e.Progress()
		}
		if time.Now().After(deadline) {
			t.Fatalf("it never happened: %s", what)
		}
	}
}

// stuck gives two ends and a write from a to b that cannot end before b is driven, since they have not shaken hands yet.
func stuck(t *testing.T, memory ports.MemoryKind) (a, b end, transfer ports.Transfer) {
	t.Helper()
	a, b = newBlockEnd(t, Config{Memory: memory}, 1<<20), newBlockEnd(t, Config{Memory: memory}, 1<<20)
	a.fill(1)
	introduce(t, a, b)
	transfer = a.PostWrite(b.identity, a.list(), b.list())
	await(t, "the write is posted", func() bool { return a.keptRequests() > 0 }, a)
	require.Equal(t, ports.Pending, transfer.Status())
	return a, b, transfer
}

func inBothModes(t *testing.T, test func(t *testing.T, memory ports.MemoryKind)) {
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) { test(t, mode.memory) })
	}
}

func TestReleaseDoesNotStopATransferNorFreeItsRequest(t *testing.T) {
	inBothModes(t, func(t *testing.T, memory ports.MemoryKind) {
		a, b, transfer := stuck(t, memory)
		transfer.Release()
		for range 100 {
			a.Progress()
			runtime.Gosched()
		}
		require.Equal(t, 1, a.keptRequests(), "NIXL's request of a released transfer that runs")
		// It runs on, and its request is freed when it is known to have ended.
		await(t, "the request is freed", func() bool { return a.keptRequests() == 0 }, a, b)
		require.True(t, bytes.Equal(a.bytes, b.bytes))
		require.Equal(t, ports.Pending, transfer.Status(), "as it was answered before")
	})
}

func TestDisconnectWaitsForWhatRuns(t *testing.T) {
	inBothModes(t, func(t *testing.T, memory ports.MemoryKind) {
		a, b, transfer := stuck(t, memory)
		a.Disconnect(b.identity)
		await(t, "the transfer ends", func() bool { return transfer.Status() != ports.Pending }, a, b)
		require.Equal(t, ports.Success, transfer.Status(), "had NIXL forgotten the peer, this would be unknown for ever: %v", transfer.Err())
		await(t, "the peer is forgotten", func() bool {
			a.owner.Lock()
			defer a.owner.Unlock()
			return len(a.driver.links) == 0
		}, a)
	})
}

func TestReplacingMetadataWaitsForWhatRuns(t *testing.T) {
	inBothModes(t, func(t *testing.T, memory ports.MemoryKind) {
		a, b, transfer := stuck(t, memory)
		more, _ := allocate(t, 4096)
		r, err := b.Register([]ports.Descriptor{more})
		require.NoError(t, err)
		require.NoError(t, b.Deregister(r))
		introduce(t, a, b) // takes something back, so that it is no mere addition
		after := a.PostWrite(b.identity, a.list(), b.list())
		await(t, "both writes end", func() bool { return transfer.Status() != ports.Pending && after.Status() != ports.Pending }, a, b)
		require.Equal(t, ports.Success, transfer.Status(), "%v", transfer.Err())
		require.Equal(t, ports.Success, after.Status(), "%v", after.Err())
	})
}

// What nixl.md, 2 measured: a transfer whose peer was forgotten answers "not found" for ever, and its bytes land all the same.
func TestAForgottenTransferIsUnknownAndMayLand(t *testing.T) {
	a, b, transfer := stuck(t, ports.Host)
	a.owner.Lock()
	require.NoError(t, a.driver.agent.forget(a.driver.links[b.identity].name))
	a.owner.Unlock()
	await(t, "the transfer fails", func() bool { return transfer.Status() != ports.Pending }, a)
	require.Equal(t, ports.FailedUnknown, transfer.Status())
	require.ErrorIs(t, transfer.Err(), ports.ErrUnknownPeer)
	require.NotErrorIs(t, transfer.Err(), ports.ErrNothingPosted)
	await(t, "the bytes land", func() bool { return bytes.Equal(a.bytes, b.bytes) }, a, b)
	require.Equal(t, 1, a.keptRequests())
}

func TestMetadataThatIsNotNewerChangesNothing(t *testing.T) {
	a, b := newBlockEnd(t, Config{}, 4096), newBlockEnd(t, Config{}, 4096)
	connection, err := b.ConnectionMetadata()
	require.NoError(t, err)
	again, err := b.ConnectionMetadata()
	require.NoError(t, err)
	require.Equal(t, connection, again)
	full, err := b.Metadata()
	require.NoError(t, err)
	require.Less(t, len(connection), len(full))

	// The connection alone serves notifications, not transfers.
	require.NoError(t, a.Connect(b.identity, connection))
	require.NoError(t, a.Notify(b.identity, []byte("hello")))
	await(t, "a notification arrives", func() bool { _, _, ok := b.RecvNotify(); return ok }, a, b)
	refused := a.PostWrite(b.identity, a.list(), b.list())
	require.Equal(t, ports.FailedNothingPosted, refused.Status())
	require.ErrorIs(t, refused.Err(), ports.ErrNotRegistered)

	// What is known stays when the smaller copy comes again.
	require.NoError(t, a.Connect(b.identity, full))
	require.NoError(t, a.Connect(b.identity, connection))
	transfer := a.PostWrite(b.identity, a.list(), b.list())
	await(t, "the write ends", func() bool { return transfer.Status() != ports.Pending }, a, b)
	require.Equal(t, ports.Success, transfer.Status(), "%v", transfer.Err())
}

func TestAnAgentIsNotItsOwnPeer(t *testing.T) {
	a := newBlockEnd(t, Config{}, 4096)
	metadata, err := a.Metadata()
	require.NoError(t, err)
	require.Error(t, a.Connect(a.identity, metadata))
}

func TestWake(t *testing.T) {
	var woken atomic.Int32
	a, b := newBlockEnd(t, Config{Wake: func() { woken.Add(1) }}, 4096), newBlockEnd(t, Config{}, 4096)
	introduce(t, a, b)
	introduce(t, b, a)
	wakes := func(what string, by func(), engines ...end) {
		t.Helper()
		before := woken.Load()
		by()
		await(t, what, func() bool { return woken.Load() > before }, engines...)
	}
	wakes("it is woken for a finished transfer", func() { a.PostWrite(b.identity, a.list(), b.list()) }, b)
	wakes("it is woken for a message", func() { require.NoError(t, b.Notify(a.identity, []byte("hello"))) }, a, b)
}

// NIXL is told of a peer when something is to go to it: who only receives from it makes no connection to it.
func TestAPeerIsLoadedWhenWanted(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			a, b := newBlockEnd(t, Config{Memory: mode.memory}, 4096), newBlockEnd(t, Config{Memory: mode.memory}, 4096)
			introduce(t, a, b)
			introduce(t, b, a)
			loaded := func(e end, peer ports.Identity) (loaded bool) {
				require.NoError(t, e.call(func() error { loaded = e.driver.links[peer].loaded; return nil }))
				return loaded
			}
			transfer := a.PostWrite(b.identity, a.list(), b.list())
			await(t, "the write ends", func() bool { return transfer.Status() != ports.Pending }, a, b)
			require.Equal(t, ports.Success, transfer.Status(), "%v", transfer.Err())
			require.True(t, loaded(a, b.identity))
			require.False(t, loaded(b, a.identity))
			require.NoError(t, b.Notify(a.identity, []byte("hello")))
			await(t, "the message arrives", func() bool { _, _, ok := a.RecvNotify(); return ok }, a, b)
			require.True(t, loaded(b, a.identity))
		})
	}
}

func TestNotifyRefusesWhenTooMuchWaits(t *testing.T) {
	a, b := newBlockEnd(t, Config{}, 4096), newBlockEnd(t, Config{}, 4096)
	introduce(t, a, b)
	large := make([]byte, maxUnsentBytes/4)
	a.owner.Lock() // the thread cannot send meanwhile
	var err error
	for range 10 {
		if err = a.Notify(b.identity, large); err != nil {
			break
		}
	}
	a.owner.Unlock()
	require.ErrorIs(t, err, errNotificationsFull)
	await(t, "there is room again", func() bool { return a.Notify(b.identity, large) == nil }, a, b)
}

// A peer that is killed, at the worst moments, must cost nothing but its own transfers.
func TestAKilledPeer(t *testing.T) {
	survivor, friend := newBlockEnd(t, Config{}, writerBytes), newBlockEnd(t, Config{}, writerBytes)
	introduce(t, survivor, friend)
	lives := func() {
		t.Helper()
		survivor.fill(byte(time.Now().UnixNano()))
		transfer := survivor.PostWrite(friend.identity, survivor.list(), friend.list())
		await(t, "the write to another peer ends", func() bool { return transfer.Status() != ports.Pending }, survivor, friend)
		require.Equal(t, ports.Success, transfer.Status(), "%v", transfer.Err())
		require.True(t, bytes.Equal(survivor.bytes, friend.bytes))
	}

	t.Run("before its first message is looked at", func(t *testing.T) {
		w := startWriter(t, survivor)
		require.Equal(t, "pending", w.write())
		w.kill()
		for range 300 {
			survivor.Progress()
			time.Sleep(100 * time.Microsecond)
		}
		lives()
	})
	t.Run("after it wrote, while we write to it", func(t *testing.T) {
		w := startWriter(t, survivor)
		require.NoError(t, survivor.Connect(w.identity, w.metadata))
		written := make(chan string, 1)
		go func() { written <- w.write() }()
		var status string
		await(t, "the peer has written", func() bool {
			select {
			case status = <-written:
			default:
			}
			return status != ""
		}, survivor)
		require.Equal(t, "success", status)

		target := []ports.Descriptor{{Addr: w.addr, Bytes: writerBytes}}
		well := survivor.PostWrite(w.identity, survivor.list(), target)
		driven := make(chan string, 1)
		go func() { driven <- w.write() }() // drives the peer's engine meanwhile
		await(t, "our write ends", func() bool { return well.Status() != ports.Pending }, survivor)
		require.Equal(t, ports.Success, well.Status(), "%v", well.Err())
		await(t, "the peer is idle", func() bool {
			select {
			case <-driven:
				return true
			default:
				return false
			}
		}, survivor)

		w.kill()
		badly := survivor.PostWrite(w.identity, survivor.list(), target)
		await(t, "our write to the dead fails", func() bool { return badly.Status() != ports.Pending }, survivor)
		require.Equal(t, ports.FailedUnknown, badly.Status(), "%v", badly.Err())
		var nixlError *Error
		require.ErrorAs(t, badly.Err(), &nixlError)
		require.Positive(t, survivor.keptRequests(), "what may still run is kept")
		require.Equal(t, ports.Success, well.Status())
		survivor.Disconnect(w.identity)
		lives()
	})
}

// writer is a process in the role "writer".
type writer struct {
	identity ports.Identity
	metadata []byte
	addr     uint64
	write    func() string // one write of its block to ours; what it says of it
	kill     func()        // as SIGKILL does, until it is gone
}

func startWriter(t *testing.T, to end) writer {
	t.Helper()
	cmd := roleCommand(t, "writer")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill := func() {
		_ = cmd.Process.Kill() // it may be dead already
		_ = cmd.Wait()         // which says that it was killed
	}
	t.Cleanup(kill)
	said, err := readBlobs(out, 3)
	require.NoError(t, err)
	metadata, err := to.Metadata()
	require.NoError(t, err)
	require.NoError(t, writeBlobs(in, []byte(to.identity), metadata, binary.LittleEndian.AppendUint64(nil, to.block.Addr)))
	return writer{
		identity: ports.Identity(said[0]),
		metadata: slices.Clone(said[1]),
		addr:     binary.LittleEndian.Uint64(said[2]),
		write: func() string {
			if err := writeBlobs(in, nil); err != nil {
				return err.Error()
			}
			said, err := readBlobs(out, 1)
			if err != nil {
				return err.Error()
			}
			return string(said[0])
		},
		kill: kill,
	}
}
