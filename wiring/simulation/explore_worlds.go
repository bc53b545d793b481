package simulation

import (
	"slices"
	"time"

	"github.com/kvbounce/kvbounce/adapters/sim"
	"github.com/kvbounce/kvbounce/ports"
)

// smallWorld is a configuration that is explored whole.
type smallWorld struct {
	number int
	name   string
	text   string // of a scenario
	ops    []Op
	faults []sim.Fault   // kinds and options that are tried; rates mean nothing
	budget int           // of faults a run
	each   int           // and of one kind of point; 0: no more than the budget
	til    ports.Instant // faults happen before it
}

const (
	submitAt    = ports.Instant(time.Millisecond)
	firstTurns  = submitAt + 1                         // what comes without a repeat is over by then
	exploreTil  = ports.Instant(50 * time.Millisecond) // the first repeats are among what can be lost
	exploreStep = time.Millisecond                     // turns that nothing woke come at multiples of it
)

// tiny is what the configurations have in common.
const tiny = "granule 128\narena 4\nchunk 1\npage_bytes 32\nwindow 2\ncopies 2\neager 100\ntimeout 100ms\nlease 200\nrequests 0\nlate_write 150ms\n"

// What can go wrong.
var (
	framesLost  = []sim.Fault{{Kind: sim.SendFrame, Option: int(sim.FrameLost)}}
	framesTwice = []sim.Fault{{Kind: sim.SendFrame, Option: int(sim.FrameTwice)}}
	writesLate  = []sim.Fault{
		{Kind: sim.PostOne, Option: int(sim.TransferSucceedsLate)}, {Kind: sim.PostOne, Option: int(sim.TransferFailsMovesLate)}, {Kind: sim.PostOne, Option: int(sim.TransferFailsSucceeds)},
	}
	orphans = []sim.Fault{{Kind: sim.OrphanMoves, Option: int(sim.OrphanMovesOn)}}
	device  = []sim.Fault{
		{Kind: sim.PostOne, Option: int(sim.TransferNothingPosted)}, {Kind: sim.PostOne, Option: int(sim.TransferFailsMovesLate)}, {Kind: sim.PostOne, Option: int(sim.TransferFailsSucceeds)},
		{Kind: sim.LaunchOne, Option: int(sim.CopyRefused)}, {Kind: sim.LaunchOne, Option: int(sim.CopyNotLaunched)}, {Kind: sim.LaunchOne, Option: int(sim.CopyFails)},
	}
)

// smallWorlds are the configurations of --exhaustive.
func smallWorlds() []smallWorld {
	add := func(from, to string) Op { return Op{Verb: OpAdd, Agent: from, Peer: to} }
	submit := func(n int, from, to string, pages int) Op {
		return Op{At: submitAt, Verb: OpSubmit, Request: n, Agent: from, Peer: to, Path: "bounce", Pages: pages, Layout: uint64(n)}
	}
	at := func(t ports.Instant, o Op) Op {
		o.At = t
		return o
	}
	cancel := Op{At: submitAt, Verb: OpCancel, Request: 1}
	frames := slices.Concat(framesLost, framesTwice)
	one, two := "senders 1\nreceivers 1\n"+tiny, "senders 2\nreceivers 1\n"+tiny+"eager 0\n"
	// Arenas of two zones: room for two chunks, one of each purpose (core/credit).
	narrow := "arena 2\neager 0\nwindow 1\ncopies 1\n"
	both := "senders 0\nreceivers 0\nboth 2\n" + tiny + narrow
	turns := "eager 0\nwindow 1\ncopies 1\n"
	fenced := "timeout 5s\nfences 100\nsettle 1s\n"
	simple := []Op{add("s1", "r1"), submit(1, "s1", "r1", 2)}
	chunks := []Op{add("s1", "r1"), submit(1, "s1", "r1", 8)}
	soon := submitAt + ports.Instant(time.Millisecond)
	later := submitAt + ports.Instant(150*time.Millisecond) // when late writes land
	worlds := []smallWorld{
		{name: "one sender, one chunk, every order and one fault", text: one, ops: simple, faults: slices.Concat(frames, device), budget: 1},
		{name: "one sender, one chunk, two lost or doubled frames", text: one, ops: simple, faults: frames, budget: 2},
		{name: "one sender, one chunk, cancelled at every moment, one lost or doubled frame", text: one, ops: append(slices.Clone(simple), cancel), faults: frames, budget: 1},
		{name: "one sender, two chunks, every order", text: one, ops: chunks},
		{name: "two senders, one chunk each, no eager gather, every order", text: two, ops: []Op{add("s1", "r1"), add("s2", "r1"), submit(1, "s1", "r1", 2), submit(2, "s2", "r1", 2)}},
		{name: "two agents both ways, one chunk each, room for two, every order", text: both, ops: []Op{add("b1", "b2"), add("b2", "b1"), submit(1, "b1", "b2", 2), submit(2, "b2", "b1", 2)}},
		{name: "one sender, two chunks one after the other, cancelled at every moment, a write that lands late and a lost frame, the next request when it lands", text: one + turns, ops: append(slices.Clone(chunks), cancel, at(later, submit(2, "s1", "r1", 2))), faults: slices.Concat(writesLate, framesLost), budget: 2, each: 1, til: firstTurns},
		{name: "one sender, one chunk, cancelled at every moment, a write that lands late and a lost frame, the next request in the same blocks when it lands", text: one + narrow, ops: append(slices.Clone(simple), cancel, at(later, submit(2, "s1", "r1", 2))), faults: slices.Concat(writesLate, framesLost), budget: 2, each: 1},
		{name: "one sender, two requests, room for one, a write that lands late or a lost frame", text: one + narrow, ops: []Op{add("s1", "r1"), submit(1, "s1", "r1", 2), submit(2, "s1", "r1", 2)}, faults: slices.Concat(writesLate, framesLost), budget: 1, til: firstTurns},
		{name: "two senders, room for one, a write that lands late and a lost frame", text: two + narrow, ops: []Op{add("s1", "r1"), add("s2", "r1"), submit(1, "s1", "r1", 2), submit(2, "s2", "r1", 2)}, faults: slices.Concat(writesLate, framesLost), budget: 2, each: 1, til: firstTurns},
		{name: "the sender dies at every moment, its write goes on or not, it is fenced, another waits for its region", text: two + narrow + fenced, ops: []Op{add("s1", "r1"), add("s2", "r1"), submit(1, "s1", "r1", 2), {At: submitAt, Verb: OpCrash, Agent: "s1"}, {At: soon, Verb: OpFence, Agent: "r1", Peer: "s1"}, at(soon+1, submit(2, "s2", "r1", 2))}, faults: slices.Concat(writesLate, framesLost, orphans), budget: 2, each: 1},
		{name: "the receiver dies at every moment, it is fenced, another receiver is sent to", text: "senders 1\nreceivers 2\n" + tiny + narrow + fenced, ops: []Op{add("s1", "r1"), add("s1", "r2"), submit(1, "s1", "r1", 2), {At: submitAt, Verb: OpCrash, Agent: "r1"}, {At: soon, Verb: OpFence, Agent: "s1", Peer: "r1"}, at(soon+1, submit(2, "s1", "r2", 2))}, faults: slices.Concat(writesLate, framesLost), budget: 2, each: 1},
		{name: "the sender revokes the receiver at every moment, its write lands late or not, the next request in the same blocks", text: one + narrow, ops: append(slices.Clone(simple), Op{At: submitAt, Verb: OpRevoke, Agent: "s1", Peer: "r1"}, at(soon, add("s1", "r1")), at(soon+1, submit(2, "s1", "r1", 2))), faults: slices.Concat(writesLate, framesLost), budget: 2, each: 1},
	}
	for i := range worlds {
		worlds[i].number = i + 1
		if worlds[i].til == 0 {
			worlds[i].til = exploreTil
		}
	}
	return worlds
}
