//go:build cuda

package wiring_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

// UCX moves bytes between two agents of one process over CUDA IPC only if told so. It reads this when NIXL is loaded.
func init() { os.Setenv("UCX_CUDA_IPC_ENABLE_SAME_PROCESS", "y") }

// vram is what content blocks of the tests have: GPU memory, or memory of the host.
type vram interface {
	Bytes() []byte
	Push() error
	Pull() error
	Descriptor() ports.Descriptor
	Free() error
}

type hostMemory struct{ *wiring.HostBlock }

func (hostMemory) Push() error { return nil }
func (hostMemory) Pull() error { return nil }

func allocateVRAM(t testing.TB, place ports.Place, n uint64) vram {
	var m vram
	if place.Kind == ports.Device {
		b, err := wiring.AllocateDevice(place.Device, n)
		require.NoError(t, err)
		m = b
	} else {
		b, err := wiring.AllocateHost(n)
		require.NoError(t, err)
		m = hostMemory{b}
	}
	t.Cleanup(func() { require.NoError(t, m.Free()) })
	return m
}

var gpu = ports.Place{Kind: ports.Device}

// vramPair is two agents and a layout between their memories.
type vramPair struct {
	a, b     *wiring.Node
	src, dst vram
	layout   layout.Layout
	request  agent.Request
}

func newVRAMPair(t testing.TB, control, preset string, source, destination ports.Place) *vramPair {
	l, err := layout.Preset(preset, 1)
	require.NoError(t, err)
	p := &vramPair{layout: l, src: allocateVRAM(t, source, l.SrcBlock), dst: allocateVRAM(t, destination, l.DstBlock)}
	open := func(name string, place ports.Place) *wiring.Node {
		c, _, err := config.FromEnv(os.Environ())
		require.NoError(t, err)
		c.Enable, c.Control, c.ControlBind = true, control, "tcp://127.0.0.1:0"
		n, err := wiring.New(wiring.Params{Name: name, Config: c, Place: place, BounceRequired: true})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, n.Close()) })
		return n
	}
	p.a, p.b = open("a", source), open("b", destination)
	_, err = p.a.Register([]ports.Descriptor{p.src.Descriptor()}, agent.Direct)
	require.NoError(t, err)
	_, err = p.b.Register([]ports.Descriptor{p.dst.Descriptor()}, agent.Direct)
	require.NoError(t, err)
	d, err := p.b.Describe()
	require.NoError(t, err)
	report, err := p.a.AddPeer(d, false)
	require.NoError(t, err)
	require.True(t, report.Bounce, report.Reason)
	p.request = agent.Request{Peer: p.b.Identity(), Local: moved(l.Src, p.src.Descriptor()), Remote: moved(l.Dst, p.dst.Descriptor())}
	return p
}

func moved(list []ports.Descriptor, block ports.Descriptor) []ports.Descriptor {
	out := slices.Clone(list)
	for i := range out {
		out[i].Addr += block.Addr
		out[i].Place = block.Place
	}
	return out
}

// transfer moves the layout and checks every byte of the destination, also those between its pieces.
func (p *vramPair) transfer(t testing.TB, route agent.Route) *agent.Handle {
	r := rand.New(rand.NewPCG(uint64(route), 9))
	for i := range p.src.Bytes() {
		p.src.Bytes()[i] = byte(r.Uint32())
	}
	for i := range p.dst.Bytes() {
		p.dst.Bytes()[i] = 0xA5
	}
	require.NoError(t, p.src.Push())
	require.NoError(t, p.dst.Push())
	want := bytes.Clone(p.dst.Bytes())
	for i, s := range p.layout.Src {
		copy(want[p.layout.Dst[i].Addr:][:s.Bytes], p.src.Bytes()[s.Addr:][:s.Bytes])
	}
	p.request.Route = route
	h, err := p.a.Submit(p.request)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, h.Wait(ctx))
	require.NoError(t, h.WaitQuiesced(ctx))
	require.NoError(t, p.dst.Pull())
	require.True(t, bytes.Equal(want, p.dst.Bytes()))
	return h
}

func TestVRAMBothPaths(t *testing.T) {
	for _, control := range []string{config.ControlZMQ, config.ControlNIXL} {
		t.Run(control, func(t *testing.T) {
			p := newVRAMPair(t, control, "paged-4k", gpu, gpu)
			for _, route := range []agent.Route{agent.ForceBounce, agent.ForceDirect, agent.Auto, agent.ForceBounce} {
				p.transfer(t, route)
			}
			require.EqualValues(t, 3, p.a.BounceSubmits())
		})
	}
}

// One side in host memory, one on the GPU: each agent's arena is where its memory is, and the engine crosses over.
func TestVRAMToHostAndBack(t *testing.T) {
	host := ports.Place{}
	for _, places := range [][2]ports.Place{{host, gpu}, {gpu, host}} {
		t.Run(fmt.Sprintf("%s to %s", places[0], places[1]), func(t *testing.T) {
			p := newVRAMPair(t, config.ControlZMQ, "tiny", places[0], places[1])
			p.transfer(t, agent.ForceDirect)
			p.transfer(t, agent.ForceBounce)
		})
	}
}

func TestVRAMWithAWorldIsRefused(t *testing.T) {
	_, err := wiring.New(wiring.Params{Name: "a", Config: testConfig(), Place: gpu, World: wiring.NewWorld()})
	require.ErrorContains(t, err, "Params.Place is vram:0")
}

func TestVRAMModule(t *testing.T) {
	var a *agent.Agent
	app := fxtest.New(t, quiet(), wiring.CUDA, fx.Supply(wiring.Params{Name: "fx", Config: testConfig(), BounceRequired: true}), fx.Populate(&a))
	app.RequireStart()
	require.True(t, a.BounceEnabled())
	app.RequireStop()
}

// A request may be cancelled at any time: whatever phase it is in, each of its pages is as it was or as it becomes, nothing of it is left, and the next request is as any other.
func TestVRAMCancelInEachPhase(t *testing.T) {
	for _, control := range []string{config.ControlZMQ, config.ControlNIXL} {
		t.Run(control, func(t *testing.T) {
			p := newVRAMPair(t, control, "paged-4k", gpu, gpu)
			plan, err := p.a.Prepare(p.b.Identity(), p.request.Local, p.request.Remote)
			require.NoError(t, err)
			phases := map[string]int{}
			for step := range 150 {
				if step%30 == 0 {
					p.transfer(t, agent.ForceBounce)
					p.fill(t, byte(step))
				}
				h, err := p.a.Submit(agent.Request{Peer: p.b.Identity(), Plan: plan, Route: agent.ForceBounce})
				require.NoError(t, err)
				for began := time.Now(); time.Since(began) < time.Duration(step)*4*time.Microsecond; {
				}
				h.Cancel()
				err = h.Wait(t.Context())
				require.NoError(t, h.WaitQuiesced(t.Context()))
				switch s := h.Stages(); {
				case err == nil:
					phases["over"]++
				case s.DataAck > 0:
					phases["scatter"]++
				case s.Write > 0:
					phases["data"]++
				case s.Gather > 0:
					phases["write"]++
				default:
					phases["gather"]++
				}
				if err != nil {
					require.ErrorIs(t, err, transport.ErrCancelled)
				}
				if step%30 == 29 {
					p.eachPageOldOrNew(t, byte(step-29))
				}
			}
			t.Log("cancelled in", phases)
			for _, phase := range []string{"gather", "write", "data", "over"} {
				require.Positive(t, phases[phase], "%s: %v", phase, phases)
			}
			p.transfer(t, agent.ForceBounce)
			require.Eventually(t, func() bool { // a request without a write is quiesced before its DRAIN is answered
				return len(p.a.Stats().Unproved)+len(p.b.Stats().Unproved) == 0
			}, time.Minute, time.Millisecond)
		})
	}
}

// fill sets every byte of the destination.
func (p *vramPair) fill(t testing.TB, old byte) {
	for i := range p.dst.Bytes() {
		p.dst.Bytes()[i] = old
	}
	require.NoError(t, p.dst.Push())
}

// eachPageOldOrNew checks the destination of requests that may have been cancelled, which fill filled.
func (p *vramPair) eachPageOldOrNew(t testing.TB, old byte) {
	require.NoError(t, p.dst.Pull())
	got := p.dst.Bytes()
	untouched := func(b []byte) bool { return len(b) == bytes.Count(b, []byte{old}) }
	last := uint64(0)
	order := make([]int, len(p.layout.Dst))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(p.layout.Dst[a].Addr, p.layout.Dst[b].Addr) })
	for _, i := range order {
		s, d := p.layout.Src[i], p.layout.Dst[i]
		page := got[d.Addr : d.Addr+d.Bytes]
		require.True(t, untouched(page) || bytes.Equal(page, p.src.Bytes()[s.Addr:s.Addr+s.Bytes]), "page %d", i)
		require.True(t, untouched(got[last:d.Addr]), "before page %d", i)
		last = d.Addr + d.Bytes
	}
	require.True(t, untouched(got[last:]))
}

// BenchmarkVRAM prints how long a prepared request of 18432 pages of 4 KiB takes from Submit to the end of Wait, for two agents in this process, with the
// settings of the environment. Run it with -benchtime=1x.
func BenchmarkVRAM(b *testing.B) {
	for _, control := range []string{config.ControlZMQ, config.ControlNIXL} {
		b.Run(control, func(b *testing.B) {
			p := newVRAMPair(b, control, "paged-4k", gpu, gpu)
			p.transfer(b, agent.ForceBounce)
			plan, err := p.a.Prepare(p.b.Identity(), p.request.Local, p.request.Remote)
			require.NoError(b, err)
			for name, r := range map[string]agent.Request{"prepared": {Peer: p.b.Identity(), Plan: plan}, "planned anew": p.request} {
				r.Route = agent.ForceBounce
				var took []time.Duration
				stages := make([][]time.Duration, 5)
				for range 200 {
					began := time.Now()
					h, err := p.a.Submit(r)
					require.NoError(b, err)
					require.NoError(b, h.Wait(b.Context()))
					took = append(took, time.Since(began))
					s := h.Stages()
					for i, d := range []time.Duration{s.WantGrant, s.Gather, s.Write, s.DataAck, s.Total} {
						stages[i] = append(stages[i], d)
					}
				}
				slices.Sort(took)
				for _, s := range stages {
					slices.Sort(s)
				}
				fmt.Printf("%s, %s: p50 %v, least %v, p99 %v; medians of want to last grant %v, gather %v, write %v, data to last ack %v, all in the reactor %v\n", control, name,
					took[len(took)/2], took[0], took[len(took)*99/100], stages[0][100], stages[1][100], stages[2][100], stages[3][100], stages[4][100])
			}
		})
	}
}
