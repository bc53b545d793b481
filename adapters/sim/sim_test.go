package sim

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/ports/porttest"
)

// realClock is the process's monotonic clock.
type realClock struct{ start time.Time }

func newRealClock() realClock { return realClock{start: time.Now()} }

func (c realClock) Now() ports.Instant { return ports.Instant(time.Since(c.start)) }

// worlds are the kinds of worlds that must keep the contracts of the ports.
func worlds() map[string]func() *World {
	slow := Cost{Base: 5 * time.Microsecond, PerMiB: 100 * time.Microsecond}
	return map[string]func() *World{
		"real time": func() *World { return NewRealTime(newRealClock()) },
		"virtual time": func() *World {
			return NewVirtual(Config{Timing: Timing{Frame: slow, Transfer: slow, Copy: slow}, MoveBytes: 5000})
		},
	}
}

// turn lets time pass.
func turn(w *World) {
	if w.clock == nil {
		w.Step()
		return
	}
	runtime.Gosched()
}

// settle lets everything happen that is on its way.
func settle(w *World) {
	for w.clock == nil && w.Step() {
	}
}

func allocate(t require.TestingT, w *World, bytes uint64) uint64 {
	addr, err := w.Allocate(bytes, ports.Place{})
	require.NoError(t, err)
	return addr
}

func view(t require.TestingT, w *World, addr, bytes uint64) []byte {
	b, err := w.View(addr, bytes)
	require.NoError(t, err)
	return b
}

func TestComputeContract(t *testing.T) {
	for name, newWorld := range worlds() {
		t.Run(name, func(t *testing.T) {
			porttest.GpuCompute(t, func(t *testing.T) porttest.ComputeFixture {
				w := newWorld()
				compute, err := NewCompute(w, ComputeConfig{Agent: "a#0000000000000001", Contexts: 3})
				require.NoError(t, err)
				return porttest.ComputeFixture{
					Compute:  compute,
					Allocate: func(bytes uint64) uint64 { return allocate(t, w, bytes) },
					Write:    func(addr uint64, from []byte) { copy(view(t, w, addr, uint64(len(from))), from) },
					Read:     func(addr uint64, to []byte) { copy(to, view(t, w, addr, uint64(len(to)))) },
					Wait:     func() { turn(w) },
				}
			})
		})
	}
}

func TestEngineContract(t *testing.T) {
	for name, newWorld := range worlds() {
		t.Run(name, func(t *testing.T) {
			porttest.TransferEngine(t, func(t *testing.T) porttest.EnginePair {
				w := newWorld()
				end := func(id ports.Identity) porttest.EngineEnd {
					engine, err := NewEngine(w, id, nil)
					require.NoError(t, err)
					t.Cleanup(func() { require.NoError(t, engine.Close()) })
					return porttest.EngineEnd{Engine: engine, Identity: id, Alloc: func(bytes int) (ports.Descriptor, []byte) {
						addr := allocate(t, w, uint64(bytes))
						return ports.Descriptor{Addr: addr, Bytes: uint64(bytes)}, view(t, w, addr, uint64(bytes))
					}}
				}
				return porttest.EnginePair{A: end("a#0000000000000001"), B: end("b#0000000000000002"), Drive: func() { turn(w) }, TellsUnregistered: true}
			})
		})
	}
}

func TestControlContract(t *testing.T) {
	for name, newWorld := range worlds() {
		t.Run(name, func(t *testing.T) {
			porttest.ControlChannel(t, func(t *testing.T) porttest.ControlFixture {
				w := newWorld()
				var agents uint64
				open := func(t *testing.T, endpoint string) porttest.ControlEnd {
					agents++
					id, err := ports.NewIdentity("agent", agents)
					require.NoError(t, err)
					channel, err := NewControl(w, ControlConfig{Identity: id, Endpoint: endpoint, QueueFrames: 50, FrameLimit: 100_000})
					require.NoError(t, err)
					return porttest.ControlEnd{Identity: id, Channel: channel}
				}
				return porttest.ControlFixture{
					A:           open(t, ""),
					B:           open(t, ""),
					Open:        func(t *testing.T) porttest.ControlEnd { return open(t, "") },
					Reopen:      func(t *testing.T, endpoint []byte) porttest.ControlEnd { return open(t, string(endpoint)) },
					MaxFrame:    100_000,
					QueueFrames: 50,
					Nowhere:     []byte("memory:nowhere"),
					Malformed:   [][]byte{[]byte("memory:"), []byte("tcp://127.0.0.1:1"), []byte("memory:a b"), []byte("memory:\x00"), {0xff}},
					Drive:       func() { settle(w) },
				}
			})
		})
	}
}
