//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/kvbounce/kvbounce/ports"
)

// Device is a GPU and its primary context. Any goroutine.
type Device struct {
	ordinal int
	device  cu.Device
	context cu.CUContext
}

// devices are those that were opened. Their primary contexts stay until the process ends, as with the CUDA runtime: others keep addresses and handles in them (UCX), and making one again
// takes 0.2 s.
var devices struct {
	sync.Mutex
	opened map[int]*Device
}

// OpenDevice takes the GPU with this ordinal, from 0 on, as CUDA_VISIBLE_DEVICES numbers them.
func OpenDevice(ordinal int) (*Device, error) {
	devices.Lock()
	defer devices.Unlock()
	if d := devices.opened[ordinal]; d != nil {
		return d, nil
	}
	count, err := cu.NumDevices()
	if err != nil {
		return nil, named("cuDeviceGetCount", err)
	}
	if ordinal < 0 || ordinal >= count {
		return nil, fmt.Errorf("cuda: device %d does not exist, allowed are 0 to %d", ordinal, count-1)
	}
	d := &Device{ordinal: ordinal}
	if d.device, err = cu.GetDevice(ordinal); err != nil {
		return nil, named("cuDeviceGet", err)
	}
	if d.context, err = d.device.RetainPrimaryCtx(); err != nil {
		return nil, named("cuDevicePrimaryCtxRetain", err)
	}
	if devices.opened == nil {
		devices.opened = make(map[int]*Device)
	}
	devices.opened[ordinal] = d
	return d, nil
}

// Place is the GPU's memory.
func (d *Device) Place() ports.Place {
	return ports.Place{Kind: ports.Device, Device: uint32(d.ordinal)}
}

// MakeCurrent makes the primary context current on the calling thread, and leaves it so.
func (d *Device) MakeCurrent() error { return current(handle(d.context)) }

// Do runs f with the primary context current, on a thread that f can rely on, and puts back what was current there.
func (d *Device) Do(f func() error) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.PushCurrentCtx(d.context); err != nil {
		return named("cuCtxPushCurrent", err)
	}
	defer func() {
		_, popped := cu.PopCurrentCtx()
		err = errors.Join(err, named("cuCtxPopCurrent", popped))
	}()
	return f()
}

// arenaAlignment is what ports.Arena asks for. CUDA promises 256 bytes, and for large allocations gives 2 MiB.
const arenaAlignment = 4096

// Memory is device memory as transfers want it: plain (cuMemAlloc), or fabric memory (fabric.go). Write and Read return when it is done. Any goroutine.
type Memory struct {
	device     *Device
	allocation cu.DevicePtr
	base       uint64
	bytes      uint64
	fabric     *fabricMemory // nil: plain
}

// Allocate takes at least one byte, on a 4096-byte boundary. The content is undefined.
func (d *Device) Allocate(bytes uint64) (*Memory, error) {
	const largest = 1 << 46
	if bytes == 0 || bytes > largest {
		return nil, fmt.Errorf("cuda: can't allocate %d bytes, allowed are 1 to %d", bytes, uint64(largest))
	}
	m := &Memory{device: d, bytes: bytes}
	err := d.Do(func() (err error) {
		if m.allocation, err = cu.MemAlloc(int64(bytes)); err != nil || uint64(m.allocation)%arenaAlignment == 0 {
			return named("cuMemAlloc", err)
		}
		if err = cu.MemFree(m.allocation); err != nil {
			return named("cuMemFree", err)
		}
		m.allocation, err = cu.MemAlloc(int64(bytes + arenaAlignment))
		return named("cuMemAlloc", err)
	})
	if err != nil {
		return nil, fmt.Errorf("%d bytes of device %d: %w", bytes, d.ordinal, err)
	}
	m.base = (uint64(m.allocation) + arenaAlignment - 1) &^ (arenaAlignment - 1)
	return m, nil
}

// Descriptor names all of it.
func (m *Memory) Descriptor() ports.Descriptor {
	return ports.Descriptor{Addr: m.base, Bytes: m.bytes, Place: m.device.Place()}
}

// Free gives it back. Nothing may touch it any more.
func (m *Memory) Free() error {
	return m.device.Do(func() error {
		if m.fabric != nil {
			return m.fabric.free()
		}
		return named("cuMemFree", cu.MemFree(m.allocation))
	})
}

// Write copies bytes of the host to an offset.
func (m *Memory) Write(offset uint64, from []byte) error { return m.device.Write(m.base+offset, from) }

// Read copies bytes at an offset to the host.
func (m *Memory) Read(offset uint64, to []byte) error { return m.device.Read(m.base+offset, to) }

// Write copies bytes of the host to an address on the device.
func (d *Device) Write(addr uint64, from []byte) error {
	if len(from) == 0 {
		return nil
	}
	return d.Do(func() error {
		if err := cu.MemcpyHtoD(cu.DevicePtr(addr), unsafe.Pointer(unsafe.SliceData(from)), int64(len(from))); err != nil {
			return named("cuMemcpyHtoD", err)
		}
		return settle()
	})
}

// Read copies bytes at an address on the device to the host.
func (d *Device) Read(addr uint64, to []byte) error {
	if len(to) == 0 {
		return nil
	}
	return d.Do(func() error {
		return named("cuMemcpyDtoH", cu.MemcpyDtoH(unsafe.Pointer(unsafe.SliceData(to)), cu.DevicePtr(addr), int64(len(to))))
	})
}

// settle waits for what was queued on the default stream: a copy of pageable memory may return earlier than it ends (CUDA Driver API, "API synchronization behavior"), and
// the streams of a Compute do not wait for that stream.
func settle() error { return named("cuStreamSynchronize", cu.NoStream.Synchronize()) }
