package simulation

import (
	"fmt"

	"github.com/kvbounce/kvbounce/adapters/sim"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// Violation is a rule that was broken.
type Violation struct {
	Seed   uint64 `json:"seed"`
	Step   uint64 `json:"step"`
	Rule   string `json:"rule"`
	Text   string `json:"text"`
	Replay string `json:"replay"` // the file that replays it; "" until one was written
}

// oracle watches a run from outside the core and knows which request may touch which memory now. It ends the run at the first violation, since what follows one is noise.
//
// Its rules: what is told (by a handle, or in a frame) must be true of the engines and devices at that moment (false-*); memory is touched only by
// the request that owns it (touch-*, foreign-*, outside-*); a region and staging have one owner (two-owners, region-reuse); bytes of a success are right
// (wrong-bytes, written-twice); everything ends and comes back (liveness, leak); the scheduler is fair (unfair).
type oracle struct {
	w         *World
	violation *Violation

	areas     []area // by the number of the allocation
	flows     map[flowKey]*flow
	pairs     map[pairKey]*pair
	transfers map[uint64]*transfer
	copies    map[uint64]*copying
	said      map[uint64]statement // by frame

	want  wire.Want
	grant wire.Grant
	data  wire.Data
	ack   wire.Ack
	nack  wire.Nack
	drain wire.Drain

	evidence Coverage

	waits []int64 // from a flow's WANT to its first grant, virtual nanoseconds
}

// area is what an allocation is for.
type area struct {
	life  *life
	pool  *pool // pages of the application
	arena bool
	play  bool // registered, and nobody's: hostile peers may write it
}

func newOracle(w *World) *oracle {
	return &oracle{w: w, flows: map[flowKey]*flow{}, pairs: map[pairKey]*pair{}, transfers: map[uint64]*transfer{}, copies: map[uint64]*copying{}, said: map[uint64]statement{}, evidence: Coverage{}}
}

func (o *oracle) broken() bool { return o.violation != nil }

// violate notes the first violation.
func (o *oracle) violate(rule, format string, args ...any) {
	if o.violation == nil {
		o.violation = &Violation{Seed: o.w.setup.seed, Step: o.w.steps, Rule: rule, Text: fmt.Sprintf(format, args...)}
		if o.w.log != nil {
			o.w.log("VIOLATION %s: %s", rule, o.violation.Text)
		}
	}
}

func (o *oracle) addArea(addr uint64, a area) {
	n := sim.AllocationOf(addr)
	for len(o.areas) <= n {
		o.areas = append(o.areas, area{})
	}
	o.areas[n] = a
}

// areaOf is the area that an address belongs to: the zero area if none.
func (o *oracle) areaOf(addr uint64) area {
	if n := sim.AllocationOf(addr); n < len(o.areas) {
		return o.areas[n]
	}
	return area{}
}

// arena notes an agent's arena.
func (o *oracle) arena(l *life, a ports.Arena) {
	granule := l.node.setup.granule
	l.books = &books{base: a.Base, bytes: a.Bytes, granule: granule, slots: make([]slot, (a.Bytes+granule-1)/granule), regions: map[uint64]*region{}}
	o.addArea(a.Base, area{life: l, arena: true})
}

// playground is memory that an agent registers and does not use.
func (o *oracle) playground(l *life) ports.Descriptor {
	base, err := o.w.sim.Allocate(playBytes, ports.Place{})
	must(err)
	o.addArea(base, area{life: l, play: true})
	l.books.play = base
	return ports.Descriptor{Addr: base, Bytes: playBytes}
}

const playBytes = 1024

// books is what the oracle knows of an agent's arena.
type books struct {
	base, bytes, granule uint64
	play                 uint64
	slots                []slot // by granule
	regions              map[uint64]*region
	waiting              []*flow // flows that still want a grant
	freed                bool    // closed without doubt: nothing may touch it any more
}

// slot is one granule: the region that was granted over it last, and the accesses to it that have no evidence of their end.
type slot struct {
	region                           *region
	gathers, reads, writes, scatters int
}

// over returns the granules that a block of the arena has bytes in; none when it leaves the arena.
func (b *books) over(addr, bytes uint64) []slot {
	if addr < b.base || bytes == 0 || bytes > b.bytes || addr-b.base > b.bytes-bytes {
		return nil
	}
	first, last := (addr-b.base)/b.granule, (addr-b.base+bytes-1)/b.granule
	return b.slots[first : last+1]
}

// flowKey names a request towards a receiver.
type flowKey struct {
	from, to ports.Identity
	id       uint64
}

type pairKey struct{ from, to ports.Identity }

// pair is all flows of one sender to one receiver.
type pair struct{ live []*flow }

// flow is a request as the wire shows it.
type flow struct {
	flowKey
	sender, receiver *life    // nil for an identity that no life has
	req              *request // nil for a hostile sender's
	regions          []*region
	posted           int // writes ever handed to the engine
	writes           int // of them without evidence
	scatters         int // without evidence
	drained          bool
	revoked          bool          // the receiver's engine ended the sender's access
	wanted           ports.Instant // when its first WANT arrived; -1: not yet
	chunks, granted  int
	passed           int // grants to others since its last
	rivals           int // most flows that waited meanwhile
}

// region is a block that a receiver granted.
type region struct {
	flow      *flow
	handle    uint64
	addr      uint64
	bytes     uint64
	chunk     uint32
	posted    bool // a write into it was handed to an engine
	written   bool // its sender was told the write's success
	scatters  int  // scatters of it without evidence
	scattered bool
	drained   bool // its receiver was told that no write of the flow can land any more
}

// free reports whether its receiver may use the block again: scattered, or no write can land any more and no scatter runs.
func (r *region) free() bool { return r.scatters == 0 && (r.scattered || r.drained || r.dropped()) }

// dropped reports whether its write succeeded, and nobody is left to scatter it for: the receiver fences the sender.
func (r *region) dropped() bool {
	return r.written && r.flow.receiver != nil && r.flow.receiver.fenceOf(r.flow.from) != nil
}

// transfer is a transfer that has no evidence yet.
type transfer struct {
	owner      *life
	to         ports.Identity
	failed     bool     // without evidence
	failedTurn int      // of its owner, that could not know yet
	fenced     bool     // a fence or a revocation of one side is over for the other: it counts as ended, and must not move
	severed    bool     // the other side revoked its access: it must not move, which its owner can't know
	region     *region  // of a bounce write
	req        *request // of a direct transfer
	source     []slot   // staging
	target     []slot   // region
}

// copying is a gather or scatter that has no evidence yet.
type copying struct {
	life   *life
	block  []slot
	req    *request
	region *region    // of a scatter
	runs   ports.Runs // of a scatter
	window *window    // that it was launched into
	fenced bool       // of a scatter: its process died, and the sender fenced it
}

// statement is what a frame says about other flows, for the moment in which it arrives.
type statement struct {
	flowKey
	drain  bool
	oldest uint64
	chunks int
}

func (o *oracle) flow(k flowKey) *flow {
	f := o.flows[k]
	if f == nil {
		f = &flow{flowKey: k, sender: o.w.byID[k.from], receiver: o.w.byID[k.to], wanted: -1}
		o.flows[k] = f
		o.pair(k.from, k.to).live = append(o.pair(k.from, k.to).live, f)
	}
	if f.req == nil && f.sender != nil {
		for _, r := range f.sender.open {
			if r.h.ID() == k.id && r.to.id == k.to && r.path != "direct" && r.path != "read" {
				f.req = r
			}
		}
	}
	return f
}

func (o *oracle) pair(from, to ports.Identity) *pair {
	k := pairKey{from, to}
	p := o.pairs[k]
	if p == nil {
		p = &pair{}
		o.pairs[k] = p
	}
	return p
}

// event takes an event in before memory is touched.
func (o *oracle) event(e sim.Event) {
	switch e.Kind {
	case sim.FrameSent:
		o.frameSent(e, true)
	case sim.FrameNotTaken:
		o.frameSent(e, false)
	case sim.FrameDelivered:
		if s, ok := o.said[e.ID]; ok {
			o.heard(s, e.At)
		}
	case sim.TransferRange:
		o.transferRange(e)
	case sim.TransferMoves:
		o.transferMoves(e)
	case sim.TransferTold:
		o.transferTold(e)
	case sim.AccessRevoked:
		o.revoked(e.Agent, e.Peer)
	case sim.GatherLaunched, sim.ScatterLaunched:
		if f := sim.CopyFate(e.Detail); f != sim.CopyRefused && f != sim.CopyNotLaunched {
			o.copyLaunched(e)
		}
	case sim.CopyRuns:
		if c := o.copies[e.ID]; c != nil {
			o.copyTouches(c, e)
		}
	case sim.CopyTold:
		o.copyTold(e)
	}
}
