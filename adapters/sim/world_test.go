package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/ports"
)

// everything makes all sorts of things go wrong, often.
func everything() []Fault {
	var all []Fault
	for kind, n := range options {
		for option := 1; option < n; option++ {
			all = append(all, Fault{Kind: PointKind(kind), Option: option, PPM: 400_000 / uint32(n-1), Budget: 1000})
		}
	}
	return all
}

// babble has four agents do things at random for a while, and returns the trace, its digest, and how often each fault happened. Whatever they are told goes into what
// they do next.
func babble(t require.TestingT, seed uint64, faults []Fault) (lines []string, digest [32]byte, counts []int) {
	d := NewDigest()
	chooser := NewFaults(seed, faults...)
	w := NewVirtual(Config{
		Seed: seed,
		Timing: Timing{
			Frame:    Cost{Base: 3 * time.Microsecond, Late: time.Millisecond},
			Transfer: Cost{Base: 5 * time.Microsecond, PerMiB: 50 * time.Microsecond, Late: time.Second},
			Copy:     Cost{Base: 2 * time.Microsecond, PerMiB: 20 * time.Microsecond, Late: time.Millisecond},
		},
		MoveBytes: 3000,
		Chooser:   chooser,
		Trace: func(e Event) {
			d.Add(e)
			lines = append(lines, e.String())
		},
	})
	const agents, bytes = 4, 16 << 10
	var all []*babbler
	for i := range uint64(agents) {
		id, err := ports.NewIdentity("agent", i)
		require.NoError(t, err)
		a := &babbler{w: w, id: id, random: w.Randomness(string(id)), memory: allocate(t, w, bytes)}
		a.engine, err = NewEngine(w, id, nil)
		require.NoError(t, err)
		a.control, err = NewControl(w, ControlConfig{Identity: id, QueueFrames: 20})
		require.NoError(t, err)
		a.compute, err = NewCompute(w, ComputeConfig{Agent: id, Contexts: 2})
		require.NoError(t, err)
		_, err = a.engine.Register([]ports.Descriptor{{Addr: a.memory, Bytes: bytes}})
		require.NoError(t, err)
		all = append(all, a)
	}
	for _, a := range all {
		for _, b := range all {
			metadata, err := b.engine.Metadata()
			require.NoError(t, err)
			require.NoError(t, a.engine.Connect(b.id, metadata))
			require.NoError(t, a.control.Connect(b.id, b.control.Endpoint()))
		}
		a.peers = all
		w.Schedule(0, "turn of "+string(a.id), a.turn)
	}
	for w.Step() {
	}
	for _, a := range all {
		content := view(t, w, a.memory, bytes)
		d.Add(Event{Data: content})
	}
	return lines, d.Sum(), chooser.Counts()
}

type babbler struct {
	w       *World
	id      ports.Identity
	random  ports.Randomness
	engine  *Engine
	control *Control
	compute *Compute
	memory  uint64
	peers   []*babbler
	events  []ports.Event
	turns   int
	said    uint64
}

func (a *babbler) turn() {
	for frame, _, ok := a.control.Recv(nil); ok; frame, _, ok = a.control.Recv(nil) {
		a.said = a.said*31 + uint64(frame[0])
	}
	for _, message, ok := a.engine.RecvNotify(); ok; _, message, ok = a.engine.RecvNotify() {
		a.said = a.said*31 + uint64(message[0])
	}
	for _, event := range a.events {
		a.said = a.said*31 + uint64(event.Status())
	}
	r := a.random.Uint64() ^ a.said
	peer := a.peers[r>>8%4]
	at := func(shift int) uint64 { return r >> shift % 8 << 10 }
	switch r % 4 {
	case 0:
		to := peer.id
		if r>>20%16 == 0 {
			to = "nobody"
		}
		a.control.Send(to, []byte(fmt.Sprintf("%c%d", byte('a'+r>>10%26), r)))
	case 1:
		_ = a.engine.Notify(peer.id, []byte{byte(r >> 10), 1}) // refused sometimes
	case 2:
		one := func(addr uint64) []ports.Descriptor {
			return []ports.Descriptor{{Addr: addr, Bytes: 5000}, {Addr: addr + 5000, Bytes: 3000}}
		}
		post := a.engine.PostWrite
		if r>>20%2 == 0 {
			post = a.engine.PostRead
		}
		post(peer.id, one(a.memory+at(30)), one(peer.memory+at(40))).Release()
	case 3:
		runs := ports.Runs{Runs: []ports.Run{{Addr: a.memory + at(30), Stride: 200, Piece: 100, Pieces: 30, Step: 100, Table: ports.NoTable}}}
		launch := a.compute.Gather
		if r>>20%2 == 0 {
			launch = a.compute.Scatter
		}
		if event, err := launch(runs, a.memory+at(40)+r>>50%100); err == nil {
			a.events = append(a.events, event)
		}
	}
	if a.turns++; a.turns == 150 && r%3 == 0 {
		_ = a.engine.Close()
	}
	if a.turns < 200 {
		a.w.Schedule(a.w.Now().Add(time.Duration(1+r>>12%20_000)), "turn of "+string(a.id), a.turn)
	}
}

func TestSameSeedSameEvents(t *testing.T) {
	seen := make(map[[32]byte]uint64)
	for seed := range uint64(8) {
		lines, digest, _ := babble(t, seed, everything())
		again, digestAgain, _ := babble(t, seed, everything())
		require.Equal(t, lines, again)
		require.Equal(t, digest, digestAgain)
		require.Greater(t, len(lines), 1000)
		other, same := seen[digest]
		require.False(t, same, "seeds %d and %d have one digest", other, seed)
		seen[digest] = seed
	}
}

// The digest is the same on every machine, and changes only with a change of what the simulator does, which then is made here knowingly.
func TestDigestIsKnown(t *testing.T) {
	_, digest, _ := babble(t, 1, everything())
	require.Equal(t, "e59030ad59742934bb865076d4aeb2dbeb53098622fb4e4b0669d970fb05df40", fmt.Sprintf("%x", digest))
}

// Each fault that can happen does, and the trace has each kind of event.
func TestEverythingHappens(t *testing.T) {
	faults := everything()
	happened := make([]int, len(faults))
	var trace strings.Builder
	for seed := range uint64(12) {
		lines, _, counts := babble(t, seed, faults)
		trace.WriteString(strings.Join(lines, "\n"))
		for i, n := range counts {
			happened[i] += n
		}
	}
	for i, n := range happened {
		require.Positive(t, n, "%+v", faults[i])
	}
	for kind := range eventKinds {
		if kind == TransferRejected || kind == MemoryDeregistered || kind == FrameDropped || kind == AccessRevoked {
			continue // babblers make no mistakes, and TestRevoke has the last
		}
		require.Contains(t, trace.String(), " "+kind.String()+" ")
	}
	require.Contains(t, eventKinds.String(), "kind ", "each kind has a name, and no more")
	for kind := range pointKinds {
		require.NotContains(t, kind.String(), "kind ")
	}
	require.Contains(t, pointKinds.String(), "kind ")
}

// The queue against a sorted list.
func TestQueueIsAPriorityQueue(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var q queue
		var model []entry
		for range rapid.IntRange(0, 200).Draw(r, "steps") {
			if rapid.Bool().Draw(r, "push") {
				at := ports.Instant(rapid.IntRange(0, 20).Draw(r, "at"))
				model = append(model, entry{at: at, seq: q.seq + 1, do: &scheduled{}})
				q.push(at, model[len(model)-1].do)
				continue
			}
			slices.SortFunc(model, func(a, b entry) int {
				if a.before(b) {
					return -1
				}
				return 1
			})
			var ties int
			for ties < len(model) && model[ties].at == model[0].at {
				ties++
			}
			chosen := 0
			choose := func(n int) int { require.Equal(r, ties, n); return chosen }
			if ties > 0 {
				chosen = rapid.IntRange(0, ties-1).Draw(r, "chosen")
			}
			if chosen == 0 && rapid.Bool().Draw(r, "without a choice") {
				choose = nil
			}
			do, at, ok := q.pop(choose)
			require.Equal(r, len(model) > 0, ok)
			if ok {
				require.Same(r, model[chosen].do, do)
				require.Equal(r, model[chosen].at, at)
				model = slices.Delete(model, chosen, chosen+1)
			}
		}
		require.Len(r, q.heap, len(model))
	})
}

// chooser is a Chooser made of a function.
type chooser func(p Point, options int) int

func (c chooser) Choose(p Point, options int) int { return c(p, options) }

// Choosing the order reaches every order of events of one instant.
func TestEveryOrderCanBeChosen(t *testing.T) {
	orders := make(map[string]bool)
	for a := range 3 {
		for b := range 2 {
			picks := []int{a, b}
			var order strings.Builder
			w := NewVirtual(Config{ChooseOrder: true, Chooser: chooser(func(p Point, options int) int {
				require.Equal(t, Point{Kind: NextEvent}, p)
				pick := picks[0]
				picks = picks[1:]
				require.Less(t, pick, options)
				return pick
			})})
			for _, name := range []string{"x", "y", "z"} {
				w.Schedule(5, name, func() { order.WriteString(name) })
			}
			w.Schedule(4, "first", func() { order.WriteString("-") })
			w.AdvanceTo(5)
			orders[order.String()] = true
		}
	}
	require.Len(t, orders, 6)
	require.Contains(t, orders, "-zyx")
}

func TestTimeMovesOnlyInStepAndAdvanceTo(t *testing.T) {
	w := NewVirtual(Config{})
	var at []ports.Instant
	note := func() { at = append(at, w.Now()) }
	require.Equal(t, ports.Never, w.NextAt())
	require.False(t, w.Step())
	w.Schedule(100, "b", note)
	w.Schedule(50, "a", func() {
		note()
		w.Schedule(10, "in the past: now", note)
	})
	w.Schedule(ports.Never, "never", note)
	require.Equal(t, ports.Instant(50), w.NextAt())
	require.Zero(t, w.Now())
	w.AdvanceTo(70)
	require.Equal(t, ports.Instant(70), w.Now())
	w.AdvanceTo(60)
	require.Equal(t, ports.Instant(70), w.Now(), "time never decreases")
	require.True(t, w.Step())
	require.False(t, w.Step())
	w.AdvanceTo(ports.Never - 1)
	require.Equal(t, []ports.Instant{50, 50, 100}, at)
}

func TestRealTimeIsNotStepped(t *testing.T) {
	w := NewRealTime(newRealClock())
	require.Panics(t, func() { w.Step() })
	require.Panics(t, func() { w.Schedule(0, "x", func() {}) })
	before := w.Now()
	require.LessOrEqual(t, before, w.Now())
}

func TestRandomnessIsSeededAndApart(t *testing.T) {
	w := NewVirtual(Config{Seed: 7})
	a, again, b := w.Randomness("a"), w.Randomness("a"), w.Randomness("b")
	other := NewVirtual(Config{Seed: 8}).Randomness("a")
	seen := make(map[uint64]bool)
	for range 1000 {
		x := a.Uint64()
		require.Equal(t, x, again.Uint64())
		for _, y := range []uint64{x, b.Uint64(), other.Uint64()} {
			require.False(t, seen[y])
			seen[y] = true
		}
	}
}

// Two agents of one process move bytes and frames both ways at once, each from a goroutine of its own that sleeps until it is woken.
func TestRealTimeAgentsInTwoGoroutines(t *testing.T) {
	const bytes, rounds = 3<<20 + 5, 6
	w := NewRealTime(newRealClock())
	type agent struct {
		id      ports.Identity
		engine  *Engine
		control *Control
		woken   chan struct{}
		memory  uint64 // a half to send from, a half to receive into
	}
	var agents [2]agent
	for i := range agents {
		a := &agents[i]
		a.id, _ = ports.NewIdentity("agent", uint64(i))
		a.woken = make(chan struct{}, 1)
		wake := func() {
			select {
			case a.woken <- struct{}{}:
			default:
			}
		}
		var err error
		a.engine, err = NewEngine(w, a.id, wake)
		require.NoError(t, err)
		a.control, err = NewControl(w, ControlConfig{Identity: a.id, Wake: wake})
		require.NoError(t, err)
		a.memory = allocate(t, w, 2*bytes)
		_, err = a.engine.Register([]ports.Descriptor{{Addr: a.memory, Bytes: 2 * bytes}})
		require.NoError(t, err)
	}
	var group sync.WaitGroup
	for i := range agents {
		me, peer := &agents[i], &agents[1-i]
		metadata, err := peer.engine.Metadata()
		require.NoError(t, err)
		require.NoError(t, me.engine.Connect(peer.id, metadata))
		require.NoError(t, me.control.Connect(peer.id, peer.control.Endpoint()))
		group.Go(func() {
			source, target := view(t, w, me.memory, bytes), view(t, w, me.memory+bytes, bytes)
			for round := range rounds {
				for k := range source {
					source[k] = byte(k*7 + round + i)
				}
				transfer := me.engine.PostWrite(peer.id, []ports.Descriptor{{Addr: me.memory, Bytes: bytes}}, []ports.Descriptor{{Addr: peer.memory + bytes, Bytes: bytes}})
				for transfer.Status() == ports.Pending {
				}
				if me.control.Send(peer.id, []byte{byte(round)}) != ports.Accepted {
					t.Error("not accepted")
					return
				}
				for {
					frame, _, ok := me.control.Recv(nil)
					if ok {
						if frame[0] != byte(round) {
							t.Errorf("frame %d in round %d", frame[0], round)
						}
						break
					}
					<-me.woken
				}
				for k := range target {
					if target[k] != byte(k*7+round+1-i) {
						t.Errorf("round %d: byte %d is wrong", round, k)
						return
					}
				}
				// The peer must have looked before the next write lands.
				me.control.Send(peer.id, []byte{0xFF})
				for _, _, ok := me.control.Recv(nil); !ok; _, _, ok = me.control.Recv(nil) {
					<-me.woken
				}
			}
		})
	}
	group.Wait()
}
