package nixl

import (
	"os"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/ports/porttest"
)

// Both modes must keep the contract. Over host memory the device mode is only slower than it should be.
var modes = []struct {
	name   string
	memory ports.MemoryKind
}{{"host", ports.Host}, {"device", ports.Device}}

func TestContract(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			porttest.TransferEngine(t, func(t *testing.T) porttest.EnginePair {
				return porttest.EnginePair{A: newEnd(t, mode.memory), B: newEnd(t, mode.memory), TellsUnregistered: true}
			})
		})
	}
}

func newEnd(t testing.TB, memory ports.MemoryKind) porttest.EngineEnd {
	t.Helper()
	e := newEngine(t, Config{Memory: memory})
	return porttest.EngineEnd{Engine: e, Identity: e.identity, Alloc: func(n int) (ports.Descriptor, []byte) { return allocate(t, n) }}
}

var incarnations atomic.Uint64

// newIdentity names an agent that never was before, on this machine too: two test processes may meet.
func newIdentity(t testing.TB, name string) ports.Identity {
	t.Helper()
	id, err := ports.NewIdentity(name, uint64(os.Getpid())<<32+incarnations.Add(1))
	require.NoError(t, err)
	return id
}

// newEngine makes an engine with an identity of its own, closed when the test ends.
func newEngine(t testing.TB, cfg Config) *Engine {
	t.Helper()
	if cfg.Identity == "" {
		cfg.Identity = newIdentity(t, "test")
	}
	e, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// allocate maps memory outside the Go heap, with large pages where the kernel gives them. It stays mapped for the process's life: a peer may know it for longer than
// the test (nixl.md, 10).
func allocate(t testing.TB, n int) (ports.Descriptor, []byte) {
	t.Helper()
	view, err := unix.Mmap(-1, 0, max(n, 1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	_ = unix.Madvise(view, unix.MADV_HUGEPAGE) // not every kernel has them
	return ports.Descriptor{Addr: uint64(uintptr(unsafe.Pointer(&view[0]))), Bytes: uint64(n)}, view[:n]
}
