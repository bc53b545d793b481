package simulation

import (
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/adapters/sim"
	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
)

// Millions of requests leave memory where it started (protocol.md, 7; attacks.md, 9). The oracle keeps what it saw, so here agents run on the simulated ports without one: nothing but the core can grow.

// soak is one sender and its receivers. Each slot of memory is in use by one request at a time, and used again once that is quiesced.
type soak struct {
	w       *sim.World
	random  draw
	sender  *soakAgent
	targets []*soakAgent
	stuck   ports.Identity // the receiver of the one request that nothing ever proves; "" if there is none
	faulty  bool           // the next transfer to it fails without evidence
	cancel  int            // percent of requests

	turns                       uint64 // of the sender
	slots                       []*soakSlot
	submitted                   int
	succeeded, cancelled, other int
}

// soakSlot is memory of one request.
type soakSlot struct {
	local, remote []ports.Descriptor
	to            *soakAgent
	h             *agent.Handle
	cancelAt      uint64 // the turn of the sender; 0: never
}

type soakAgent struct {
	id    ports.Identity
	agent *agent.Agent
	alarm *sim.Alarm
	desc  agent.AgentDesc
	base  uint64

	nextTurn ports.Instant // at the earliest
}

const (
	soakSlots = 24 // requests at once
	soakPages = 6  // of 64 bytes: two chunks
	soakPage  = 64
)

// newSoak makes the agents, which know each other.
func newSoak(t *testing.T, receivers, cancel int, stuck bool) *soak {
	k := &soak{random: newDraw(1, "soak"), cancel: cancel}
	cost := sim.Cost{Base: time.Microsecond}
	k.w = sim.NewVirtual(sim.Config{Seed: 1, Chooser: k, Timing: sim.Timing{Frame: cost, Transfer: cost, Copy: cost}})
	k.sender = k.start(t, "s")
	for i := range receivers {
		k.targets = append(k.targets, k.start(t, fmt.Sprintf("r%d", i+1)))
	}
	for _, to := range k.targets {
		k.sender.agent.AddPeerAsync(to.desc, false, func(_ agent.PeerReport, err error) { require.NoError(t, err) })
	}
	k.w.AdvanceTo(k.w.Now().Add(time.Millisecond))
	if stuck {
		last := k.targets[receivers-1]
		k.targets, k.stuck, k.faulty = k.targets[:receivers-1], last.id, true
		slot := k.slot(soakSlots, last)
		k.submit(t, slot)
		k.w.AdvanceTo(k.w.Now().Add(time.Second))
		require.Equal(t, transport.Failed, slot.h.Status())
		require.False(t, slot.h.IsQuiesced())
	}
	for i := range soakSlots {
		k.slots = append(k.slots, k.slot(i, k.targets[i%len(k.targets)]))
	}
	return k
}

// Choose implements sim.Chooser: only the one transfer fails.
func (k *soak) Choose(p sim.Point, _ int) int {
	if p.Kind == sim.PostOne && p.Peer == k.stuck && k.faulty {
		k.faulty = false
		return int(sim.TransferFails)
	}
	return 0
}

func (k *soak) start(t *testing.T, name string) *soakAgent {
	a := &soakAgent{}
	var err error
	a.id, err = ports.NewIdentity(name, 7)
	require.NoError(t, err)
	wake := func() {
		if at := max(k.w.Now(), a.nextTurn); a.alarm != nil && at < a.alarm.At() {
			a.alarm.Set(at)
		}
	}
	engine, err := sim.NewEngine(k.w, a.id, wake)
	require.NoError(t, err)
	control, err := sim.NewControl(k.w, sim.ControlConfig{Identity: a.id, Endpoint: "memory:" + name, Wake: wake})
	require.NoError(t, err)
	compute, err := sim.NewCompute(k.w, sim.ComputeConfig{Agent: a.id, Contexts: 8, Wake: wake})
	require.NoError(t, err)
	c := config.Default()
	c.Enable, c.ArenaSize, c.ArenaGranularity, c.MaxChunkSize = true, 128<<8, 128, 256
	_, err = c.Validate()
	require.NoError(t, err)
	a.agent, err = agent.New(agent.Options{Identity: a.id, StartedUnixNS: 1, Config: c, Engine: engine, Control: control, Compute: compute, Clock: k.w, Rand: k.w.Randomness(name), Wake: wake, BounceRequired: true})
	require.NoError(t, err)
	bytes := uint64((soakSlots + 1) * soakPages * 2 * soakPage)
	a.base, err = k.w.Allocate(bytes, ports.Place{})
	require.NoError(t, err)
	_, err = a.agent.Register([]ports.Descriptor{{Addr: a.base, Bytes: bytes}}, agent.BounceOnly)
	require.NoError(t, err)
	a.desc, err = a.agent.Describe()
	require.NoError(t, err)
	a.alarm = k.w.NewAlarm(name, func() {
		a.nextTurn = k.w.Now().Add(turnCost)
		_, next := a.agent.Poll(k.w.Now())
		if next != ports.Never {
			next = max(next, a.nextTurn)
		}
		if next < a.alarm.At() {
			a.alarm.Set(next)
		}
		if a == k.sender {
			k.turns++
		}
	})
	a.alarm.Set(k.w.Now())
	return a
}

// slot is the n-th piece of memory on both sides: every second page, so that neighbours are not merged.
func (k *soak) slot(n int, to *soakAgent) *soakSlot {
	s := &soakSlot{to: to}
	for i := range soakPages {
		at := uint64((n*soakPages+i)*2) * soakPage
		s.local = append(s.local, ports.Descriptor{Addr: k.sender.base + at, Bytes: soakPage})
		s.remote = append(s.remote, ports.Descriptor{Addr: to.base + at, Bytes: soakPage})
	}
	return s
}

func (k *soak) submit(t *testing.T, s *soakSlot) {
	var err error
	s.h, err = k.sender.agent.Submit(agent.Request{Peer: s.to.id, Local: s.local, Remote: s.remote, Route: agent.ForceBounce})
	require.NoError(t, err)
	k.submitted++
	s.cancelAt = 0
	if k.random.percent(k.cancel) {
		s.cancelAt = k.turns + 1 + k.random.below(16)
	}
}

// until makes requests until n were submitted, and waits until all are quiesced and all that is kept for a while is gone.
func (k *soak) until(t *testing.T, n int) {
	for open := 1; open > 0; {
		open = 0
		for _, s := range k.slots {
			if s.h != nil && s.cancelAt > 0 && (k.turns >= s.cancelAt || s.h.IsQuiesced()) {
				s.h.Cancel()
				s.cancelAt = 0
			}
			if s.h != nil && s.h.IsQuiesced() {
				switch {
				case s.h.Status() == transport.Succeeded:
					k.succeeded++
				case isCancelled(s.h.Err()):
					k.cancelled++
				default:
					k.other++
				}
				s.h = nil
			}
			if s.h == nil && k.submitted < n {
				k.submit(t, s)
			}
			if s.h != nil {
				open++
			}
		}
		require.True(t, k.w.Step() || open == 0, "%d requests are open and nothing will happen", open)
	}
	k.w.AdvanceTo(k.w.Now().Add(5 * time.Second)) // what is repeated
}

// footprint is what the process and the cores of all agents hold.
type footprint struct{ heap, entries int }

func (k *soak) footprint() footprint {
	var f footprint
	seen := map[uintptr]bool{}
	for _, a := range append(k.targets[:len(k.targets):len(k.targets)], k.sender) {
		f.entries += entriesOf(reflect.ValueOf(a.agent), seen)
	}
	seen = nil
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what a sync.Pool holds survives one
	runtime.ReadMemStats(&m)
	f.heap = int(m.HeapAlloc)
	return f
}

// entriesOf counts what a value of the core holds: elements of maps and slices, and objects, whatever their names. It does not follow ports.
func entriesOf(v reflect.Value, seen map[uintptr]bool) (n int) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || seen[v.Pointer()] || !strings.Contains(v.Type().Elem().PkgPath(), "/core/") {
			return 0
		}
		seen[v.Pointer()] = true
		return 1 + entriesOf(v.Elem(), seen)
	case reflect.Interface:
		return entriesOf(v.Elem(), seen)
	case reflect.Struct:
		for i := range v.NumField() {
			n += entriesOf(v.Field(i), seen)
		}
	case reflect.Slice, reflect.Array:
		n = v.Len()
		if kind := v.Type().Elem().Kind(); kind < reflect.Array {
			return n // plain numbers
		}
		for i := range v.Len() {
			n += entriesOf(v.Index(i), seen)
		}
	case reflect.Map:
		n = v.Len()
		for each := v.MapRange(); each.Next(); {
			n += entriesOf(each.Value(), seen)
		}
	}
	return n
}

// soaks are the kinds of load. Of a peer whose request is unproved for ever, nothing may hold back what others' requests leave.
var soaks = []struct {
	name              string
	receivers, cancel int
	stuck             bool
}{
	{"successful", 1, 0, false},
	{"cancelled", 1, 100, false},
	{"mixed, one peer's request unproved for ever", 4, 50, true},
}

// How much more may be held after many requests than after a few: what does not depend on their number.
const (
	soakEntries = 200
	soakHeap    = 256 << 10
)

// TestRequestsLeaveNothing sees that neither the heap nor any table of the core grows with the number of requests. KVBOUNCE_SOAK is how many: make soak.
func TestRequestsLeaveNothing(t *testing.T) {
	few, most, step := 1_500, 6_000, 4_500
	if text := os.Getenv("KVBOUNCE_SOAK"); text != "" {
		var err error
		most, err = strconv.Atoi(text)
		require.NoError(t, err, "KVBOUNCE_SOAK is a number of requests")
		step = max(most/10, 1)
		few = min(few, most)
	}
	for _, kind := range soaks {
		t.Run(kind.name, func(t *testing.T) {
			k := newSoak(t, kind.receivers, kind.cancel, kind.stuck)
			k.until(t, few)
			first := k.footprint()
			began := time.Now()
			t.Logf("%9d requests: heap %6d KiB, %5d entries", k.submitted, first.heap>>10, first.entries)
			for n := step; k.submitted < most; n += step {
				k.until(t, min(max(n, few+step), most))
				now := k.footprint()
				t.Logf("%9d requests: heap %6d KiB, %5d entries; %d succeeded, %d cancelled; %v", k.submitted, now.heap>>10, now.entries, k.succeeded, k.cancelled, time.Since(began).Round(time.Second))
				require.LessOrEqual(t, now.entries, first.entries+soakEntries)
				require.LessOrEqual(t, now.heap, first.heap+soakHeap)
			}
			require.Zero(t, k.other)
			if kind.cancel == 0 {
				require.Zero(t, k.cancelled)
			} else {
				require.Greater(t, k.cancelled, most/5)
			}
			require.NotZero(t, k.succeeded)
		})
	}
}
