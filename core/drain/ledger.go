package drain

import (
	"fmt"

	"github.com/kvbounce/kvbounce/core/credit"
	"github.com/kvbounce/kvbounce/ports"
)

// Ledger keeps the arena blocks that are in use and the accesses to them, and gives blocks back to the arena. Nothing else does. Not for concurrent use.
type Ledger struct {
	arena   *credit.Arena
	total   Totals
	now     ports.Instant
	changes uint64
}

// Totals are sums over a ledger, or over one party of it.
type Totals struct {
	Blocks        int    // arena blocks held
	Bytes         uint64 // their bytes
	DoubtfulBytes uint64 // bytes of blocks that are retained: an access to them has no evidence
	Doubts        int    // accesses in doubt, direct transfers included
}

// New makes a ledger over an arena. A nil arena is for an agent without bounce: only direct transfers are then kept.
func New(arena *credit.Arena) *Ledger { return &Ledger{arena: arena} }

// Totals are the ledger's sums.
func (l *Ledger) Totals() Totals { return l.total }

// Tick says what time it is.
func (l *Ledger) Tick(now ports.Instant) { l.now = now }

// Changes counts how often something came to be in doubt, or ceased to be.
func (l *Ledger) Changes() uint64 { return l.changes }

// Party is one peer incarnation in the ledger. The zero value is ready.
type Party struct {
	total Totals
	since ports.Instant
}

// Since is when something of the party came to be in doubt first, of what is so without a break.
func (p *Party) Since() ports.Instant { return p.since }

// Totals are the party's sums.
func (p *Party) Totals() Totals { return p.total }

// Account gathers the accesses of one request or one flow. The zero value with a Party is ready.
type Account struct {
	Party *Party
	open  [accesses]int // not closed; includes doubtful ones
	doubt [accesses]int
	ever  [accesses]int // opened and not proved never to have happened
}

// Open reports how many accesses of the kind may still touch memory.
func (a *Account) Open(kind Access) int { return a.open[kind] }

// Doubtful reports how many of them are in doubt: they failed without evidence.
func (a *Account) Doubtful(kind Access) int { return a.doubt[kind] }

// Happened reports whether an access of the kind was, or may have been, really started.
func (a *Account) Happened(kind Access) bool { return a.ever[kind] > 0 }

// Hold is an arena block (or, for a direct transfer, none) and the accesses that may touch it.
//
// Invariant: the block is given back exactly when its owner dropped it and no access is open.
type Hold struct {
	ledger   *Ledger
	account  *Account
	block    credit.Block
	open     [accesses]uint16
	doubt    [accesses]uint16
	dropped  bool
	retained bool
	freed    bool
	since    ports.Instant
}

// Hold takes a block that the arena has just allocated into the ledger. h is the caller's memory, new or of a hold whose block was given back, and is returned.
func (l *Ledger) Hold(h *Hold, b credit.Block, a *Account) *Hold {
	if h.ledger != nil && !h.freed {
		panic("drain: a hold was used again before its block was given back")
	}
	*h = Hold{ledger: l, account: a, block: b, since: l.now}
	h.each(func(t *Totals) { t.Blocks++; t.Bytes += b.Bytes })
	return h
}

// HoldDirect makes a hold without a block, for a direct transfer of the caller's memory.
func (l *Ledger) HoldDirect(a *Account) *Hold { return &Hold{ledger: l, account: a, since: l.now} }

func (h *Hold) each(f func(*Totals)) {
	f(&h.ledger.total)
	if h.account.Party != nil {
		f(&h.account.Party.total)
	}
}

// doubtful changes the sums of what is in doubt. Bytes to take away are given negated.
func (h *Hold) doubtful(doubts int, bytes uint64) {
	if p := h.account.Party; p != nil && p.total.Doubts == 0 && p.total.DoubtfulBytes == 0 {
		p.since = h.ledger.now
	}
	h.each(func(t *Totals) { t.Doubts += doubts; t.DoubtfulBytes += bytes })
	h.ledger.changes++
}

// Since is when the hold was made.
func (h *Hold) Since() ports.Instant { return h.since }

// Block is the held block.
func (h *Hold) Block() credit.Block { return h.block }

// Open says that an access may start now. It is called before the call that may start it.
func (h *Hold) Open(a Access) {
	if h.dropped || h.freed {
		panic("drain: a " + a.String() + " was opened on a dropped block")
	}
	h.open[a]++
	h.account.open[a]++
	h.account.ever[a]++
}

// Close says that one open access of the kind ended, and why. It panics when e is no evidence for that, or when none is open: both are bugs.
func (h *Hold) Close(a Access, e Evidence) {
	if !e.Closes(a) {
		panic(fmt.Sprintf("drain: %q is no evidence that a %s ended", e, a))
	}
	if h.open[a] == 0 {
		panic(fmt.Sprintf("drain: %q closes a %s that is not open", e, a))
	}
	if h.doubt[a] > 0 && h.doubt[a] == h.open[a] {
		h.doubt[a]--
		h.account.doubt[a]--
		h.doubtful(-1, 0)
	}
	h.open[a]--
	h.account.open[a]--
	if e == NothingPosted || e == NeverStarted || e == NotGranted {
		h.account.ever[a]--
	}
	h.settle()
}

// Doubt says that an open access of the kind failed without evidence. It stays open; a later Close may still end it.
func (h *Hold) Doubt(a Access) {
	if h.doubt[a] >= h.open[a] {
		panic("drain: doubt about a " + a.String() + " that is not open")
	}
	h.doubt[a]++
	h.account.doubt[a]++
	h.doubtful(1, 0)
	h.Retain()
}

// IsOpen reports whether an access of the kind may still touch the block.
func (h *Hold) IsOpen(a Access) bool { return h.open[a] > 0 }

// Retain marks the block as one that may stay for long: it can't serve as a reserve of the arena. It is undone by the evidence that frees it.
func (h *Hold) Retain() {
	if h.retained || h.freed || h.block.Bytes == 0 {
		return
	}
	h.retained = true
	h.ledger.arena.Retain(h.block)
	h.doubtful(0, h.block.Bytes)
}

// Drop says that the owner needs the block no more. It is given back when the last open access is closed, at once if there is none.
func (h *Hold) Drop() {
	h.dropped = true
	h.settle()
}

// Freed reports whether the block was given back.
func (h *Hold) Freed() bool { return h.freed }

func (h *Hold) settle() {
	if !h.dropped || h.freed || h.open != [accesses]uint16{} {
		return
	}
	h.freed = true
	if h.block.Bytes == 0 {
		return
	}
	if h.retained {
		h.ledger.arena.Unretain(h.block)
		h.doubtful(0, -h.block.Bytes)
	}
	h.each(func(t *Totals) { t.Blocks--; t.Bytes -= h.block.Bytes })
	h.ledger.arena.Free(h.block)
}
