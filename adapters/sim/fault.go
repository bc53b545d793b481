package sim

import "github.com/kvbounce/kvbounce/ports"

// Chooser decides what goes wrong. At each point it picks one of the options that the point's kind lists; 0 is always the one in which nothing goes wrong.
// The World calls it, in order, and it must not call the World.
type Chooser interface {
	Choose(p Point, options int) int
}

// Point is where something can go wrong.
type Point struct {
	Kind  PointKind
	Agent ports.Identity // who acts
	Peer  ports.Identity // towards whom; "" if nobody
	Frame []byte         // of SendFrame and SendNotify: the bytes, only until Choose returns
}

// PointKind is a kind of Point.
type PointKind uint8

// The kinds of points, and the type of their options.
const (
	SendFrame   PointKind = iota // FrameFate
	SendNotify                   // FrameFate
	PostOne                      // TransferFate, of a write or read
	LaunchOne                    // CopyFate, of a gather or scatter
	OrphanMoves                  // OrphanFate, of a transfer whose engine was closed
	NextEvent                    // which of the events of one instant, in the order of their causes, happens first
	pointKinds
)

// options is how many each kind has; NextEvent's depend on the moment.
var options = [pointKinds]int{SendFrame: int(frameFates), SendNotify: int(frameFates), PostOne: int(transferFates), LaunchOne: int(copyFates), OrphanMoves: int(orphanFates)}

// String names the kind as traces print it.
func (k PointKind) String() string {
	return name(k, "send-frame", "send-notify", "post", "launch", "orphan-moves", "next-event")
}

// FrameFate is what becomes of a frame or a notification.
type FrameFate uint8

// The fates of a frame.
const (
	FrameArrives FrameFate = iota
	FrameLate
	FrameLost
	FrameTwice   // the second copy comes late. Of a notification: arrives once, since engines do not repeat them
	FrameRefused // Send answers Full, Notify an error
	frameFates
)

// TransferFate is what becomes of a write or read that could be posted.
type TransferFate uint8

// The fates of a transfer. "Late" is up to Timing.Transfer.Late after it would have moved.
const (
	TransferSucceeds           TransferFate = iota
	TransferSucceedsLate                    // pending until late
	TransferNothingPosted                   // FailedNothingPosted
	TransferEndsPartly                      // FailedEnded: a part of the bytes moved
	TransferFails                           // FailedUnknown, and nothing moves
	TransferFailsMovesLate                  // FailedUnknown, and late it moves after all
	TransferFailsMovesPart                  // FailedUnknown, and late a part of it moves
	TransferFailsSucceeds                   // FailedUnknown, and late it moves and says Success
	TransferHangs                           // pending for ever, and nothing moves
	TransferHangsMovesLate                  // pending for ever, and late it moves
	TransferPostFailsMovesLate              // the post itself says FailedUnknown, and late it moves after all
	transferFates
)

// CopyFate is what becomes of a gather or scatter for which a context is free.
type CopyFate uint8

// The fates of a copy. "Late" is up to Timing.Copy.Late after it would have run.
const (
	CopySucceeds      CopyFate = iota
	CopySucceedsLate           // pending until late
	CopyRefused                // ErrBusy, although a context is free
	CopyNotLaunched            // an error that wraps ErrNotLaunched
	CopyFails                  // CopyFailed, and nothing is copied
	CopyFailsRunsLate          // CopyFailed, and late it runs after all
	CopyHangs                  // pending for ever, and nothing is copied
	copyFates
)

// OrphanFate is what becomes of a transfer that has bytes to move when its engine is closed.
type OrphanFate uint8

// The fates of an orphan.
const (
	OrphanStops OrphanFate = iota
	OrphanMovesOn
	orphanFates
)

// choose asks the Chooser. w.mu is held.
func (w *World) choose(p Point, n int) int {
	if w.cfg.Chooser == nil {
		return 0
	}
	option := w.cfg.Chooser.Choose(p, n)
	if option < 0 || option >= n {
		panic("sim: a Chooser chose an option that does not exist")
	}
	return option
}

// fate asks at a point whose kind has fixed options.
func (w *World) fate(p Point) uint8 { return uint8(w.choose(p, options[p.Kind])) }

// Fault is one way in which things go wrong at random.
type Fault struct {
	Kind   PointKind
	Option int    // at least 1
	PPM    uint32 // how often, in a million
	Budget int    // how many times at most
}

// Faults is a Chooser that makes faults happen at random, by a seed.
type Faults struct {
	random stream
	left   []Fault
	counts []int
}

// NewFaults makes a Chooser of these faults. The rates of one kind of point must add up to at most a million.
func NewFaults(seed uint64, faults ...Fault) *Faults {
	return &Faults{random: newStream(seed, "faults"), left: append([]Fault(nil), faults...), counts: make([]int, len(faults))}
}

// Choose draws once for each point.
func (f *Faults) Choose(p Point, options int) int {
	draw := uint32(f.random.below(1_000_000))
	for i := range f.left {
		fault := &f.left[i]
		if fault.Kind != p.Kind {
			continue
		}
		if draw < fault.PPM {
			if fault.Budget == 0 || fault.Option >= options {
				return 0
			}
			fault.Budget--
			f.counts[i]++
			return fault.Option
		}
		draw -= fault.PPM
	}
	return 0
}

// Counts is how often each fault happened, in the order in which they were given.
func (f *Faults) Counts() []int { return append([]int(nil), f.counts...) }
