package drain

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/core/credit"
)

// model is the ledger as one would write it without a thought of speed: each access is an entry of a list, with its own doubt.
type model struct {
	block    credit.Block
	open     map[Access][]bool // one entry an access: whether it is in doubt
	dropped  bool
	retained bool
}

func (m *model) freed() bool {
	for _, list := range m.open {
		if len(list) > 0 {
			return false
		}
	}
	return m.dropped
}

// close ends the oldest access that is not in doubt, or the oldest of all.
func (m *model) close(a Access) {
	list := m.open[a]
	at := 0
	for i, doubtful := range list {
		if !doubtful {
			at = i
			break
		}
	}
	m.open[a] = append(list[:at:at], list[at+1:]...)
}

// doubt marks the oldest access that is not yet in doubt; false when there is none.
func (m *model) doubt(a Access) bool {
	for i, doubtful := range m.open[a] {
		if !doubtful {
			m.open[a][i] = true
			m.retained = true
			return true
		}
	}
	return false
}

func modelTotals(models []*model) (t Totals) {
	for _, m := range models {
		for _, list := range m.open {
			for _, doubtful := range list {
				if doubtful {
					t.Doubts++
				}
			}
		}
		if m.freed() {
			continue
		}
		t.Blocks++
		t.Bytes += m.block.Bytes
		if m.retained {
			t.DoubtfulBytes += m.block.Bytes
		}
	}
	return t
}

// TestLedgerAgainstModel runs random opens, closes, doubts, retains and drops. A block is live in the arena exactly as long as the model says so, and in the end, with the evidence
// in, the arena is as it was.
func TestLedgerAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		var holds []*Hold
		var models []*model
		hold := func(t *rapid.T) {
			b, ok := w.arena.Alloc(rapid.Uint64Range(1, chunkLimit).Draw(t, "bytes"), credit.ForGrant)
			if !ok {
				return // full
			}
			for _, m := range models {
				if !m.freed() {
					require.False(t, m.block.Offset < b.Offset+b.Bytes && b.Offset < m.block.Offset+m.block.Bytes, "%+v was given out while %+v is held", b, m.block)
				}
			}
			holds = append(holds, w.ledger.Hold(new(Hold), b, &w.account))
			models = append(models, &model{block: b, open: map[Access][]bool{}})
		}
		hold(t) // so that there is one to pick
		pick := func() (*Hold, *model) {
			i := rapid.IntRange(0, len(holds)-1).Draw(t, "hold")
			return holds[i], models[i]
		}
		access := func() Access { return Access(rapid.IntRange(0, int(accesses)-1).Draw(t, "access")) }
		evidence := func(a Access) Evidence { return rapid.SampledFrom(closing[a]).Draw(t, "evidence") }
		t.Repeat(map[string]func(*rapid.T){
			"hold": hold,
			"open": func(t *rapid.T) {
				h, m := pick()
				a := access()
				if m.dropped {
					require.Panics(t, func() { h.Open(a) })
					return
				}
				h.Open(a)
				m.open[a] = append(m.open[a], false)
			},
			"close": func(t *rapid.T) {
				h, m := pick()
				a := access()
				e := evidence(a)
				if len(m.open[a]) == 0 {
					require.Panics(t, func() { h.Close(a, e) })
					return
				}
				h.Close(a, e)
				m.close(a)
			},
			"doubt": func(t *rapid.T) {
				h, m := pick()
				a := access()
				if m.doubt(a) {
					h.Doubt(a)
				} else {
					require.Panics(t, func() { h.Doubt(a) })
				}
			},
			"retain": func(*rapid.T) {
				h, m := pick()
				h.Retain()
				if !m.freed() {
					m.retained = true
				}
			},
			"drop": func(*rapid.T) {
				h, m := pick()
				h.Drop()
				m.dropped = true
			},
			"": func(t *rapid.T) {
				require.Equal(t, modelTotals(models), w.ledger.Totals())
				require.Equal(t, w.ledger.Totals(), w.party.Totals())
				require.Equal(t, w.ledger.Totals().Blocks, w.arena.LiveBlocks())
				for i, h := range holds {
					require.Equal(t, models[i].freed(), h.Freed())
				}
			},
		})
		for i, h := range holds {
			for a := range accesses {
				for range models[i].open[a] {
					h.Close(a, evidence(a))
				}
			}
			h.Drop()
		}
		w.empty()
	})
}
