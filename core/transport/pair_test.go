package transport

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// pair is two transports that send to each other over a channel that loses, repeats and reorders frames. Copies and writes end after a few turns.
type pair struct {
	side [2]*harness
	rng  *rand.Rand
	loss int // percent
	wait [2][]inFrame
}

var pairNames = [2]ports.Identity{self, peerA}

func newPair(t *testing.T, seed uint64, loss int, tweak func(*Settings)) *pair {
	p := &pair{rng: rand.New(rand.NewPCG(seed, 0)), loss: loss}
	for i := range p.side {
		h := newHarness(t, tweak)
		h.opt.Self = pairNames[i]
		h.channel.self = pairNames[i]
		h.tr = New(h.opt)
		// Long: what is lost is repeated, and nothing here may end by time alone.
		info := infoOf(pairNames[1-i])
		info.RequestTimeout = 10 * time.Minute
		require.NoError(t, h.addInfo(info))
		p.side[i] = h
	}
	return p
}

// step moves frames, completes some of what runs, and lets both take a turn.
func (p *pair) step() {
	wait := p.quietTime()
	for i, h := range p.side {
		for _, f := range h.sent() {
			frame := inFrame{bytes: f.msg.Append(wire.AppendEnvelope(nil, pairNames[i], f.to))}
			for p.rng.IntN(100) >= p.loss {
				p.wait[1-i] = append(p.wait[1-i], frame)
				if p.rng.IntN(100) >= p.loss {
					break
				}
			}
		}
	}
	for i, h := range p.side {
		p.rng.Shuffle(len(p.wait[i]), func(a, b int) { p.wait[i][a], p.wait[i][b] = p.wait[i][b], p.wait[i][a] })
		n := p.rng.IntN(len(p.wait[i]) + 1)
		h.channel.in = append(h.channel.in, p.wait[i][:n]...)
		p.wait[i] = p.wait[i][n:]
		for _, c := range h.gpu.running() {
			if p.rng.IntN(2) == 0 {
				c.status = ports.CopyDone
			}
		}
		for _, x := range h.pendingWrites() {
			if p.rng.IntN(2) == 0 {
				x.end(ports.Success)
			}
		}
		h.now = h.now.Add(max(wait, time.Duration(p.rng.IntN(2000))*time.Microsecond))
		h.turn()
	}
}

// quietTime is how long nothing can happen but by a timer.
func (p *pair) quietTime() time.Duration {
	wait := 500 * ms
	for i, h := range p.side {
		if len(h.channel.out)+len(h.channel.in)+len(p.wait[i])+len(h.gpu.running())+len(h.pendingWrites()) > 0 {
			return 0
		}
		if at := h.tr.timers.next(); at != ports.Never {
			wait = min(wait, at.Sub(h.now))
		}
	}
	return wait
}

func (p *pair) submit(side int, sizes []uint32) *Handle {
	return p.side[side].submission(Submission{Peer: pairNames[1-side], Chunks: sizes})
}

// TestPairLosesNothing: whatever is lost, repeated or reordered, every request succeeds, cancelled ones quiesce, and both arenas come back, though both sides saturate them.
func TestPairLosesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		eager := rapid.Bool().Draw(rt, "eager")
		p := newPair(t, rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(0, 40).Draw(rt, "loss"), func(s *Settings) {
			s.EagerGather = eager
		})
		size := rapid.SampledFrom([]uint32{1, 4 * kilo, 5 * kilo, 30 * kilo, maxChunk})
		for range rapid.IntRange(1, 12).Draw(rt, "requests") {
			p.submit(rapid.IntRange(0, 1).Draw(rt, "side"), rapid.SliceOfN(size, 1, 6).Draw(rt, "sizes"))
		}
		victims := map[*Handle]bool{}
		for _, h := range p.side {
			for _, hd := range h.handles {
				if rapid.IntRange(0, 4).Draw(rt, "victim") == 0 {
					victims[hd] = true
				}
			}
		}
		cancelAt := rapid.IntRange(0, 100).Draw(rt, "cancel at")
		for i := 0; !p.over(rt, victims); i++ {
			require.Less(rt, i, 60_000, "no end in sight")
			if i == cancelAt {
				for hd := range victims {
					hd.Cancel()
				}
			}
			p.step()
		}
		for _, h := range p.side {
			for range 50 { // the last frames
				p.step()
			}
			h.zero()
		}
	})
}

// over reports whether all requests are physically over; those that were not cancelled must have succeeded.
func (p *pair) over(rt *rapid.T, victims map[*Handle]bool) bool {
	for _, h := range p.side {
		for _, hd := range h.handles {
			if !hd.IsQuiesced() {
				return false
			}
			if !victims[hd] {
				require.NoError(rt, hd.Err())
			}
		}
		for _, q := range h.tr.order {
			if q.tracked > 0 || q.live > 0 {
				return false
			}
		}
	}
	return true
}
