package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

// always picks one option at all points of a kind.
func always(kind PointKind, option int) Chooser {
	return chooser(func(p Point, options int) int {
		if p.Kind == kind {
			return option
		}
		return 0
	})
}

const (
	idA = ports.Identity("a#0000000000000001")
	idB = ports.Identity("b#0000000000000002")
)

// faultTiming has late things come long after others.
var faultTiming = Timing{
	Frame:    Cost{Base: time.Microsecond, Late: time.Minute},
	Transfer: Cost{Base: time.Microsecond, Late: time.Minute},
	Copy:     Cost{Base: time.Microsecond, Late: time.Minute},
}

// enginePair is two engines, and a block of memory of each, registered and known to the other.
func enginePair(t *testing.T, w *World, bytes uint64) (a, b *Engine, memoryA, memoryB uint64) {
	engines, memories := [2]*Engine{}, [2]uint64{}
	for i, id := range []ports.Identity{idA, idB} {
		var err error
		engines[i], err = NewEngine(w, id, nil)
		require.NoError(t, err)
		memories[i] = allocate(t, w, bytes)
		_, err = engines[i].Register([]ports.Descriptor{{Addr: memories[i], Bytes: bytes}})
		require.NoError(t, err)
		for k := range view(t, w, memories[i], bytes) {
			view(t, w, memories[i], bytes)[k] = byte(i + 1)
		}
	}
	for i, id := range []ports.Identity{idB, idA} {
		metadata, err := engines[1-i].Metadata()
		require.NoError(t, err)
		require.NoError(t, engines[i].Connect(id, metadata))
	}
	return engines[0], engines[1], memories[0], memories[1]
}

// landed counts the bytes of A's that are in B's memory.
func landed(t *testing.T, w *World, memoryB, bytes uint64) (n int) {
	for _, b := range view(t, w, memoryB, bytes) {
		if b == 1 {
			n++
		}
	}
	return n
}

func TestTransferFates(t *testing.T) {
	const bytes = 10_000
	const none, some, all = 0, -1, bytes
	for _, c := range []struct {
		fate         TransferFate
		soon         ports.TransferStatus // after Base
		landedSoon   int
		finally      ports.TransferStatus
		landedAtLast int
	}{
		{TransferSucceeds, ports.Success, all, ports.Success, all},
		{TransferSucceedsLate, ports.Pending, none, ports.Success, all},
		{TransferNothingPosted, ports.FailedNothingPosted, none, ports.FailedNothingPosted, none},
		{TransferEndsPartly, ports.FailedEnded, some, ports.FailedEnded, some},
		{TransferFails, ports.FailedUnknown, none, ports.FailedUnknown, none},
		{TransferFailsMovesLate, ports.FailedUnknown, none, ports.FailedUnknown, all},
		{TransferFailsMovesPart, ports.FailedUnknown, none, ports.FailedUnknown, some},
		{TransferFailsSucceeds, ports.FailedUnknown, none, ports.Success, all},
		{TransferHangs, ports.Pending, none, ports.Pending, none},
		{TransferHangsMovesLate, ports.Pending, none, ports.Pending, all},
		{TransferPostFailsMovesLate, ports.FailedUnknown, none, ports.FailedUnknown, all},
	} {
		w := NewVirtual(Config{Seed: 3, Timing: faultTiming, MoveBytes: 999, Chooser: always(PostOne, int(c.fate))})
		a, _, memoryA, memoryB := enginePair(t, w, bytes)
		transfer := a.PostWrite(idB, []ports.Descriptor{{Addr: memoryA, Bytes: bytes}}, []ports.Descriptor{{Addr: memoryB, Bytes: bytes}})
		check := func(status ports.TransferStatus, bytesLanded int) {
			t.Helper()
			require.Equal(t, status, transfer.Status(), "fate %d", c.fate)
			n := landed(t, w, memoryB, bytes)
			if bytesLanded == some {
				require.Positive(t, n, "fate %d", c.fate)
				require.Less(t, n, bytes, "fate %d", c.fate)
			} else {
				require.Equal(t, bytesLanded, n, "fate %d", c.fate)
			}
			failed := status != ports.Pending && status != ports.Success
			require.Equal(t, failed, transfer.Err() != nil, "fate %d", c.fate)
			if failed {
				require.ErrorIs(t, transfer.Err(), errInjected)
			}
			require.Equal(t, status == ports.FailedNothingPosted, failed && errorsIsNothingPosted(transfer.Err()), "fate %d", c.fate)
		}
		if c.fate != TransferPostFailsMovesLate { // which the post itself tells
			check(ports.Pending, none)
		}
		w.AdvanceTo(ports.Instant(2 * time.Microsecond))
		check(c.soon, c.landedSoon)
		w.AdvanceTo(ports.Instant(2 * time.Minute))
		check(c.finally, c.landedAtLast)
		require.Equal(t, ports.Never, w.NextAt())
	}
}

func TestFrameFates(t *testing.T) {
	for _, c := range []struct {
		fate          FrameFate
		result        ports.SendResult
		soon, finally int // frames that came
	}{
		{FrameArrives, ports.Accepted, 1, 1},
		{FrameLate, ports.Accepted, 0, 1},
		{FrameLost, ports.Accepted, 0, 0},
		{FrameTwice, ports.Accepted, 1, 2},
		{FrameRefused, ports.Full, 0, 0},
	} {
		w := NewVirtual(Config{Timing: faultTiming, Chooser: always(SendFrame, int(c.fate))})
		a, err := NewControl(w, ControlConfig{Identity: idA})
		require.NoError(t, err)
		b, err := NewControl(w, ControlConfig{Identity: idB})
		require.NoError(t, err)
		require.NoError(t, a.Connect(idB, b.Endpoint()))
		require.Equal(t, c.result, a.Send(idB, []byte("frame")))
		count := 0
		take := func() int {
			for frame, _, ok := b.Recv(nil); ok; frame, _, ok = b.Recv(nil) {
				require.Equal(t, "frame", string(frame))
				count++
			}
			return count
		}
		require.Zero(t, take())
		w.AdvanceTo(ports.Instant(2 * time.Microsecond))
		require.Equal(t, c.soon, take(), "fate %d", c.fate)
		w.AdvanceTo(ports.Instant(2 * time.Minute))
		require.Equal(t, c.finally, take(), "fate %d", c.fate)
		require.Zero(t, a.links[idB].queued, "nothing stays queued")
	}
}

func TestNotifyFates(t *testing.T) {
	for _, c := range []struct {
		fate          FrameFate
		accepted      bool
		soon, finally int
	}{
		{FrameArrives, true, 1, 1},
		{FrameLate, true, 0, 1},
		{FrameLost, true, 0, 0},
		{FrameTwice, true, 1, 1},
		{FrameRefused, false, 0, 0},
	} {
		w := NewVirtual(Config{Timing: faultTiming, Chooser: always(SendNotify, int(c.fate))})
		a, b, _, _ := enginePair(t, w, 1)
		require.Equal(t, c.accepted, a.Notify(idB, []byte("message")) == nil)
		count := 0
		take := func() int {
			for from, message, ok := b.RecvNotify(); ok; from, message, ok = b.RecvNotify() {
				require.Equal(t, idA, from)
				require.Equal(t, "message", string(message))
				count++
			}
			return count
		}
		w.AdvanceTo(ports.Instant(2 * time.Microsecond))
		require.Equal(t, c.soon, take(), "fate %d", c.fate)
		w.AdvanceTo(ports.Instant(2 * time.Minute))
		require.Equal(t, c.finally, take(), "fate %d", c.fate)
	}
}

func TestCopyFates(t *testing.T) {
	const bytes = 5000
	for _, c := range []struct {
		fate          CopyFate
		launched      error
		soon          ports.CopyStatus
		copiedSoon    bool
		finally       ports.CopyStatus
		copiedFinally bool
	}{
		{CopySucceeds, nil, ports.CopyDone, true, ports.CopyDone, true},
		{CopySucceedsLate, nil, ports.CopyPending, false, ports.CopyDone, true},
		{CopyRefused, ports.ErrBusy, 0, false, 0, false},
		{CopyNotLaunched, ports.ErrNotLaunched, 0, false, 0, false},
		{CopyFails, nil, ports.CopyFailed, false, ports.CopyFailed, false},
		{CopyFailsRunsLate, nil, ports.CopyFailed, false, ports.CopyFailed, true},
		{CopyHangs, nil, ports.CopyPending, false, ports.CopyPending, false},
	} {
		w := NewVirtual(Config{Timing: faultTiming, MoveBytes: 999, Chooser: always(LaunchOne, int(c.fate))})
		compute, err := NewCompute(w, ComputeConfig{Agent: idA, Contexts: 1})
		require.NoError(t, err)
		app := allocate(t, w, bytes)
		arena, err := compute.AllocArena(bytes)
		require.NoError(t, err)
		for i := range view(t, w, app, bytes) {
			view(t, w, app, bytes)[i] = 1
		}
		runs := ports.Runs{Runs: []ports.Run{{Addr: app, Piece: bytes, Pieces: 1, Table: ports.NoTable}}}
		event, err := compute.Gather(runs, arena.Base)
		require.ErrorIs(t, err, c.launched)
		check := func(status ports.CopyStatus, copied bool) {
			t.Helper()
			if event != nil {
				require.Equal(t, status, event.Status(), "fate %d", c.fate)
				require.Equal(t, status == ports.CopyFailed, event.Err() != nil, "fate %d", c.fate)
			}
			want := 0
			if copied {
				want = bytes
			}
			require.Equal(t, want, landed(t, w, arena.Base, bytes), "fate %d", c.fate)
		}
		w.AdvanceTo(ports.Instant(2 * time.Microsecond))
		check(c.soon, c.copiedSoon)
		w.AdvanceTo(ports.Instant(2 * time.Minute))
		check(c.finally, c.copiedFinally)
		if c.fate == CopyHangs {
			require.Zero(t, compute.free, "a stuck copy holds its context")
		} else {
			require.Equal(t, 1, compute.free)
		}
	}
}

// What an engine had under way when it was closed stops, or moves on, as the Chooser says: as far as the target's socket, and into its memory when the target drives its engine. What comes later than OrphanMost is lost.
// The handle never claims what is not so.
func TestOrphans(t *testing.T) {
	const bytes = 10_000
	for fate, want := range map[OrphanFate]int{OrphanStops: 0, OrphanMovesOn: bytes} {
		w := NewVirtual(Config{Timing: faultTiming, MoveBytes: 999, Chooser: always(OrphanMoves, int(fate))})
		a, b, memoryA, memoryB := enginePair(t, w, bytes)
		transfer := a.PostWrite(idB, []ports.Descriptor{{Addr: memoryA, Bytes: bytes}}, []ports.Descriptor{{Addr: memoryB, Bytes: bytes}})
		require.NoError(t, a.Close())
		w.AdvanceTo(ports.Instant(time.Minute))
		require.Zero(t, landed(t, w, memoryB, bytes), "nobody drove the target")
		for range bytes/999 + 1 {
			b.Progress()
			w.AdvanceTo(w.Now().Add(time.Second))
		}
		require.Equal(t, want, landed(t, w, memoryB, bytes))
		require.Equal(t, want == bytes, transfer.Status() == ports.Success)
	}
	w := NewVirtual(Config{Timing: faultTiming, Chooser: always(OrphanMoves, int(OrphanMovesOn)), OrphanMost: 1})
	a, b, memoryA, memoryB := enginePair(t, w, bytes)
	a.PostWrite(idB, []ports.Descriptor{{Addr: memoryA, Bytes: bytes}}, []ports.Descriptor{{Addr: memoryB, Bytes: bytes}})
	require.NoError(t, a.Close())
	w.AdvanceTo(ports.Instant(time.Minute))
	b.Progress()
	require.Zero(t, landed(t, w, memoryB, bytes))
}

// Memory that is not registered any more, or not there any more, is not touched, and the transfer fails without evidence.
func TestMovesNeedTheMemory(t *testing.T) {
	const bytes = 10_000
	for what, spoil := range map[string]func(a, b *Engine, w *World, memoryA, memoryB uint64) error{
		"target deregistered": func(a, b *Engine, w *World, memoryA, memoryB uint64) error { return b.Deregister(b.registrations[0]) },
		"source deregistered": func(a, b *Engine, w *World, memoryA, memoryB uint64) error { return a.Deregister(a.registrations[0]) },
		"target freed":        func(a, b *Engine, w *World, memoryA, memoryB uint64) error { return w.Free(memoryB) },
		"source freed":        func(a, b *Engine, w *World, memoryA, memoryB uint64) error { return w.Free(memoryA) },
		"target closed":       func(a, b *Engine, w *World, memoryA, memoryB uint64) error { return b.Close() },
	} {
		w := NewVirtual(Config{Timing: Timing{Transfer: Cost{PerMiB: time.Millisecond}}, MoveBytes: 1000})
		a, b, memoryA, memoryB := enginePair(t, w, bytes)
		target := view(t, w, memoryB, bytes)
		transfer := a.PostWrite(idB, []ports.Descriptor{{Addr: memoryA, Bytes: bytes}}, []ports.Descriptor{{Addr: memoryB, Bytes: bytes}})
		for range 4 {
			require.True(t, w.Step())
		}
		require.NoError(t, spoil(a, b, w, memoryA, memoryB), what)
		for w.Step() {
		}
		require.Equal(t, ports.FailedUnknown, transfer.Status(), what)
		require.NotErrorIs(t, transfer.Err(), ports.ErrNothingPosted, what)
		require.Equal(t, byte(1), target[3999], what)
		require.Equal(t, byte(2), target[4000], what)
	}
}

func TestFaultsKeepRatesAndBudgets(t *testing.T) {
	faults := []Fault{
		{Kind: SendFrame, Option: int(FrameLost), PPM: 100_000, Budget: 1 << 30},
		{Kind: SendFrame, Option: int(FrameLate), PPM: 200_000, Budget: 50},
		{Kind: PostOne, Option: int(TransferHangs), PPM: 1_000_000, Budget: 3},
	}
	f, again := NewFaults(9, faults...), NewFaults(9, faults...)
	got := map[PointKind]map[int]int{SendFrame: {}, PostOne: {}, LaunchOne: {}}
	for range 10_000 {
		for kind := range got {
			option := f.Choose(Point{Kind: kind}, options[kind])
			got[kind][option]++
		}
	}
	require.Equal(t, map[int]int{0: 10_000}, got[LaunchOne])
	require.Equal(t, map[int]int{0: 9997, int(TransferHangs): 3}, got[PostOne])
	require.Equal(t, 50, got[SendFrame][int(FrameLate)])
	require.InDelta(t, 1000, got[SendFrame][int(FrameLost)], 150)
	require.Equal(t, []int{got[SendFrame][int(FrameLost)], 50, 3}, f.Counts())
	require.Equal(t, []int{0, 0, 0}, again.Counts())
}

func TestAChooserCantInventOptions(t *testing.T) {
	w := NewVirtual(Config{Chooser: always(PostOne, int(transferFates))})
	a, _, memoryA, memoryB := enginePair(t, w, 1)
	require.Panics(t, func() {
		a.PostWrite(idB, []ports.Descriptor{{Addr: memoryA, Bytes: 1}}, []ports.Descriptor{{Addr: memoryB, Bytes: 1}})
	})
}
