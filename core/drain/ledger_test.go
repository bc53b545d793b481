package drain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/credit"
)

const (
	arenaBytes = 256 << 10
	granule    = 4 << 10
	chunkLimit = 64 << 10
)

// world is a ledger over a real arena, with one party and one account.
type world struct {
	require.TestingT
	arena   *credit.Arena
	ledger  *Ledger
	party   Party
	account Account
}

func newWorld(t require.TestingT) *world {
	arena, err := credit.NewArena(arenaBytes, granule, chunkLimit)
	require.NoError(t, err)
	w := &world{TestingT: t, arena: arena, ledger: New(arena)}
	w.account.Party = &w.party
	return w
}

func (w *world) hold(bytes uint64) *Hold {
	b, ok := w.arena.Alloc(bytes, credit.ForGrant)
	require.True(w, ok)
	return w.ledger.Hold(new(Hold), b, &w.account)
}

// empty asserts that nothing is held and nothing is open.
func (w *world) empty() {
	require.Equal(w, Totals{}, w.ledger.Totals())
	require.Equal(w, Totals{}, w.party.Totals())
	require.Zero(w, w.arena.LiveBlocks())
	require.Zero(w, w.arena.RetainedBytes())
	require.EqualValues(w, arenaBytes, w.arena.FreeBytes())
	for a := range accesses {
		require.Zero(w, w.account.Open(a))
		require.Zero(w, w.account.Doubtful(a))
	}
}

func TestHoldLife(t *testing.T) {
	t.Run("an unused block goes back when it is dropped", func(t *testing.T) {
		w := newWorld(t)
		h := w.hold(5000)
		require.Equal(t, Totals{Blocks: 1, Bytes: 5000}, w.ledger.Totals())
		require.Equal(t, w.ledger.Totals(), w.party.Totals())
		require.EqualValues(t, 5000, h.Block().Bytes)
		h.Drop()
		require.True(t, h.Freed())
		w.empty()
	})
	t.Run("a block is not dropped by evidence", func(t *testing.T) {
		w := newWorld(t)
		h := w.hold(5000)
		h.Open(Gather)
		h.Close(Gather, CopyCompleted)
		require.False(t, h.Freed(), "its owner may have more to do with it")
		h.Open(Write)
		h.Close(Write, EngineSuccess)
		h.Drop()
		w.empty()
	})
	t.Run("never freed while an access is open", func(t *testing.T) {
		w := newWorld(t)
		h := w.hold(5000)
		h.Open(Gather)
		h.Open(Write)
		h.Drop()
		require.False(t, h.Freed())
		h.Close(Write, NothingPosted)
		require.False(t, h.Freed())
		require.Equal(t, 1, w.arena.LiveBlocks())
		h.Close(Gather, CopyCompleted)
		require.True(t, h.Freed())
		w.empty()
	})
	t.Run("dropped twice is freed once", func(t *testing.T) {
		w := newWorld(t)
		h := w.hold(5000)
		h.Drop()
		other := w.hold(5000)
		require.Equal(t, h.Block(), other.Block(), "the same memory, in other hands")
		h.Drop()
		require.False(t, other.Freed())
		require.Equal(t, 1, w.arena.LiveBlocks())
		other.Drop()
		w.empty()
	})
	t.Run("dropped twice with an access open", func(t *testing.T) {
		w := newWorld(t)
		h := w.hold(5000)
		h.Open(Scatter)
		h.Drop()
		h.Drop()
		require.False(t, h.Freed())
		h.Close(Scatter, CopyCompleted)
		w.empty()
	})
	t.Run("several accesses of a kind", func(t *testing.T) {
		w := newWorld(t)
		h := w.hold(5000)
		h.Open(Write)
		h.Open(Write)
		h.Doubt(Write)
		h.Drop()
		h.Close(Write, EngineSuccess)
		require.False(t, h.Freed())
		require.Equal(t, 1, w.account.Doubtful(Write), "the one that is left is the one in doubt")
		h.Close(Write, FencedAndSettled)
		w.empty()
	})
}

func TestDoubt(t *testing.T) {
	t.Run("retains the block until late evidence", func(t *testing.T) {
		w := newWorld(t)
		h := w.hold(5000)
		h.Open(Write)
		h.Doubt(Write)
		h.Drop()
		require.Equal(t, Totals{Blocks: 1, Bytes: 5000, DoubtfulBytes: 5000, Doubts: 1}, w.ledger.Totals())
		require.Equal(t, w.ledger.Totals(), w.party.Totals())
		require.EqualValues(t, 8192, w.arena.RetainedBytes())
		require.True(t, h.IsOpen(Write))
		require.Equal(t, 1, w.account.Open(Write), "doubt is no end")
		h.Close(Write, EngineSuccess)
		require.True(t, h.Freed())
		w.empty()
	})
	t.Run("a doubt that is cleared does not free what is not dropped", func(t *testing.T) {
		w := newWorld(t)
		h := w.hold(5000)
		h.Open(Write)
		h.Doubt(Write)
		h.Close(Write, Revoked)
		require.False(t, h.Freed())
		require.Zero(t, w.ledger.Totals().Doubts)
		h.Drop()
		w.empty()
	})
	t.Run("retained without doubt", func(t *testing.T) {
		w := newWorld(t)
		h := w.hold(5000)
		h.Open(PeerWrite)
		h.Retain()
		h.Retain()
		require.Equal(t, Totals{Blocks: 1, Bytes: 5000, DoubtfulBytes: 5000}, w.ledger.Totals())
		h.Close(PeerWrite, SenderDrained)
		h.Drop()
		h.Retain()
		w.empty()
	})
}

func TestDirectHold(t *testing.T) {
	w := newWorld(t)
	ledger := New(nil)
	h := ledger.HoldDirect(&w.account)
	h.Open(Direct)
	require.Equal(t, Totals{}, ledger.Totals(), "no block")
	h.Doubt(Direct)
	require.Equal(t, Totals{Doubts: 1}, ledger.Totals())
	h.Drop()
	require.False(t, h.Freed())
	h.Close(Direct, EngineSuccess)
	require.True(t, h.Freed())
	require.Equal(t, Totals{}, ledger.Totals())
	w.empty()
}

func TestHappened(t *testing.T) {
	for e, happened := range map[Evidence]bool{EngineSuccess: true, EndedShort: true, FencedAndSettled: true, Revoked: true, NothingPosted: false} {
		w := newWorld(t)
		h := w.hold(5000)
		require.False(t, w.account.Happened(Write))
		h.Open(Write)
		require.True(t, w.account.Happened(Write), "it may start at any time from now on")
		h.Close(Write, e)
		require.Equal(t, happened, w.account.Happened(Write), e)
	}
	w := newWorld(t)
	h := w.hold(5000)
	h.Open(Gather)
	h.Close(Gather, NeverStarted)
	require.False(t, w.account.Happened(Gather))
	h.Open(PeerWrite)
	h.Close(PeerWrite, NotGranted)
	require.False(t, w.account.Happened(PeerWrite))
	h.Open(Gather)
	h.Close(Gather, CopyCompleted)
	require.True(t, w.account.Happened(Gather))
}

func TestMisusePanics(t *testing.T) {
	for name, misuse := range map[string]func(h *Hold){
		"close of what is not open":         func(h *Hold) { h.Close(Write, EngineSuccess) },
		"close of another kind":             func(h *Hold) { h.Open(Gather); h.Close(Write, EngineSuccess) },
		"close twice":                       func(h *Hold) { h.Open(Gather); h.Close(Gather, CopyCompleted); h.Close(Gather, CopyCompleted) },
		"open after drop":                   func(h *Hold) { h.Open(Gather); h.Drop(); h.Open(Write) },
		"open after free":                   func(h *Hold) { h.Drop(); h.Open(Gather) },
		"doubt about what is not open":      func(h *Hold) { h.Doubt(Write) },
		"doubt twice about the same access": func(h *Hold) { h.Open(Write); h.Doubt(Write); h.Doubt(Write) },
	} {
		t.Run(name, func(t *testing.T) {
			require.Panics(t, func() { misuse(newWorld(t).hold(5000)) })
		})
	}
}

// Accounts and parties count apart, the ledger counts all.
func TestTotalsByParty(t *testing.T) {
	w := newWorld(t)
	other := Party{}
	account := Account{Party: &other}
	mine := w.hold(5000)
	b, ok := w.arena.Alloc(9000, credit.ForStaging)
	require.True(t, ok)
	theirs := w.ledger.Hold(new(Hold), b, &account)
	theirs.Open(Write)
	theirs.Doubt(Write)
	require.Equal(t, Totals{Blocks: 1, Bytes: 5000}, w.party.Totals())
	require.Equal(t, Totals{Blocks: 1, Bytes: 9000, DoubtfulBytes: 9000, Doubts: 1}, other.Totals())
	require.Equal(t, Totals{Blocks: 2, Bytes: 14000, DoubtfulBytes: 9000, Doubts: 1}, w.ledger.Totals())
	require.Zero(t, w.account.Open(Write))
	theirs.Close(Write, NothingPosted)
	theirs.Drop()
	mine.Drop()
	require.Equal(t, Totals{}, other.Totals())
	w.empty()
}

// Since when something of a party is in doubt, and that it changed.
func TestSince(t *testing.T) {
	l := New(nil)
	var p Party
	a := Account{Party: &p}
	l.Tick(10)
	h := l.HoldDirect(&a)
	h.Open(Direct)
	require.EqualValues(t, 10, h.Since())
	require.Zero(t, l.Changes())
	l.Tick(20)
	h.Doubt(Direct)
	require.EqualValues(t, 20, p.Since())
	changes := l.Changes()
	require.NotZero(t, changes)
	l.Tick(30)
	other := l.HoldDirect(&a)
	other.Open(Direct)
	other.Doubt(Direct)
	require.EqualValues(t, 20, p.Since(), "of what is so without a break")
	h.Close(Direct, EngineSuccess)
	other.Close(Direct, Revoked)
	require.Greater(t, l.Changes(), changes)
	l.Tick(40)
	again := l.HoldDirect(&a)
	again.Open(Direct)
	again.Doubt(Direct)
	require.EqualValues(t, 40, p.Since())
}
