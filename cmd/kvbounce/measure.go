package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

// The ways that transfers are submitted: both paths forced, or the choice left to the agent.
const (
	pathBounce = "bounce"
	pathDirect = "direct"
	pathRouted = "routed"
	// pathPrepared is pathBounce with a plan that was made beforehand.
	pathPrepared = "bounce_prepared"
)

// measurement moves one layout between two workers over several paths in turn, checks every byte and keeps the times. demo, send and bench are made of it.
type measurement struct {
	name     string // of the agents
	layout   layout.Layout
	preset   bool           // the workers make the layout themselves, by its name and the seed
	seed     uint64         // of a preset and of the bytes
	places   [2]ports.Place // where the parties' memory is; a receiver elsewhere has its own say
	legs     []leg
	senders  []int // the parties that send, in turn
	rounds   int
	budget   time.Duration // once it is spent, leastRounds are enough; 0: there is none
	prepared bool
	bar      *progressbar.ProgressBar // counts legs; see steps
}

// leg is what a round does over one path: transfers that follow each other without a pause. Before them the destination is poisoned, after them each of its bytes is checked.
type leg struct {
	path  string
	count int
}

const (
	// warmUps are rounds that are checked but not measured: the first touch of memory and the engine's wire-up are theirs.
	warmUps = 1
	// leastRounds are measured however long they take.
	leastRounds = 3
)

// measured is what a measurement found.
type measured struct {
	engineVersion string
	control       string
	places        [2]ports.Place             // where the parties' memory is
	took          map[string][]time.Duration // by the leg's path
	bounced       map[string]int             // transfers that took the bounce path, by the leg's path
	stages        []transport.Stages         // of the forced bounces
	checked       uint64                     // bytes, those of the warm-ups too
}

// steps are the legs of all rounds.
func (m *measurement) steps() int { return len(m.legs) * len(m.senders) * (m.rounds + warmUps) }

// bytes is what one transfer moves.
func (m *measurement) bytes() (n uint64) {
	for _, d := range m.layout.Src {
		n += d.Bytes
	}
	return n
}

// run opens the workers and measures. The order of the legs turns round from round to round, so that what the machine does besides meets all paths alike.
func (m *measurement) run(parties []party) (*measured, error) {
	opened, err := m.introduce(parties)
	if err != nil {
		return nil, err
	}
	control, err := controlOf(opened[0].Desc)
	if err != nil {
		return nil, err
	}
	got := &measured{engineVersion: opened[0].EngineVersion, control: control, places: [2]ports.Place{opened[0].Place, opened[1].Place}, took: map[string][]time.Duration{}, bounced: map[string]int{}}
	evidence, err := newEvidence(parties)
	if err != nil {
		return nil, err
	}
	legs, serial, began := slices.Clone(m.legs), uint64(0), time.Now()
	for round := range m.rounds + warmUps {
		if m.budget > 0 && round >= warmUps+leastRounds && time.Since(began) > m.budget {
			_ = m.bar.Add(m.steps() - int(serial))
			break
		}
		for _, l := range legs {
			for _, from := range m.senders {
				// Each leg writes other bytes.
				serial++
				if err := m.leg(parties, from, l, serial, evidence, got, round >= warmUps); err != nil {
					return nil, fmt.Errorf("%s transfer in round %d from %s: %w", l.path, round, opened[from].Identity, err)
				}
				_ = m.bar.Add(1)
			}
		}
		slices.Reverse(legs)
	}
	return got, nil
}

// leg does one leg and adds it to what was measured.
func (m *measurement) leg(parties []party, from int, l leg, serial uint64, evidence *evidence, got *measured, counts bool) error {
	sender, receiver := parties[from], parties[1-from]
	if _, err := receiver.do(call{Op: "poison"}); err != nil {
		return err
	}
	path, prepared := l.path, m.prepared
	if path == pathPrepared {
		path, prepared = pathBounce, true
	}
	r, err := sender.do(call{Op: "burst", Path: path, Seed: m.seed, Round: serial, Count: l.count, Prepared: prepared})
	if err != nil {
		return err
	}
	if r.Failure != "" {
		return errors.New(r.Failure)
	}
	if len(r.Transfers) != l.count {
		return fmt.Errorf("the sender timed %d transfers, not %d", len(r.Transfers), l.count)
	}
	c, err := receiver.do(call{Op: "check", Seed: m.seed, Round: serial})
	if err != nil {
		return err
	}
	got.checked += c.Checked
	bounced, err := evidence.of(from, l, m.bytes())
	if err != nil || !counts {
		return err
	}
	got.bounced[l.path] += bounced
	for _, t := range r.Transfers {
		got.took[l.path] = append(got.took[l.path], t.Took)
		if l.path == pathBounce {
			got.stages = append(got.stages, t.Stages)
		}
	}
	return nil
}

// introduce opens both workers and makes each known to the other.
func (m *measurement) introduce(parties []party) ([]reply, error) {
	var opened []reply
	for i, p := range parties {
		// Both have one name, so that one pair of CURVE keys in the environment serves both.
		c := call{Op: "open", Name: m.name, Layout: m.layout.Name, Seed: m.seed, Place: m.places[i]}
		if !m.preset {
			c.Lists = newLists(m.layout)
		}
		r, err := p.do(c)
		if err != nil {
			return nil, err
		}
		opened = append(opened, r)
	}
	for i, p := range parties {
		other := opened[1-i]
		r, err := p.do(call{Op: "add", Desc: other.Desc, DstBase: other.DstBase, Place: other.Place})
		if err != nil {
			return nil, err
		}
		if !r.Bounce {
			return nil, fmt.Errorf("bounce is off between the two agents: %s", r.Reason)
		}
	}
	return opened, nil
}

// controlOf is the control channel in an agent's description.
func controlOf(desc []byte) (string, error) {
	d, err := agent.ParseAgentDesc(desc)
	if err != nil {
		return "", err
	}
	var h wire.Handshake
	err = h.Decode(d.Bounce)
	return h.Control.String(), err
}

// lists are a layout on its way to a worker.
type lists struct {
	Src      [][2]uint64 `json:"src"` // offset into the block, bytes
	Dst      [][2]uint64 `json:"dst"`
	SrcBlock uint64      `json:"src_block"`
	DstBlock uint64      `json:"dst_block"`
}

func newLists(l layout.Layout) *lists {
	pairs := func(list []ports.Descriptor) [][2]uint64 {
		out := make([][2]uint64, len(list))
		for i, d := range list {
			out[i] = [2]uint64{d.Addr, d.Bytes}
		}
		return out
	}
	return &lists{pairs(l.Src), pairs(l.Dst), l.SrcBlock, l.DstBlock}
}

func (l *lists) layout() layout.Layout {
	descriptors := func(pairs [][2]uint64) []ports.Descriptor {
		out := make([]ports.Descriptor, len(pairs))
		for i, p := range pairs {
			out[i] = ports.Descriptor{Addr: p[0], Bytes: p[1]}
		}
		return out
	}
	return layout.Layout{Src: descriptors(l.Src), Dst: descriptors(l.Dst), SrcBlock: l.SrcBlock, DstBlock: l.DstBlock}
}
