//go:build cuda

package wiring

import (
	"fmt"
	"unsafe"

	"github.com/kvbounce/kvbounce/adapters/cuda"
	"github.com/kvbounce/kvbounce/adapters/nixl"
	"github.com/kvbounce/kvbounce/ports"
)

func openCUDA(p Params) (ports.GpuCompute, error) {
	return port[ports.GpuCompute](cuda.New(cuda.Config{
		Device: int(p.Place.Device), Contexts: p.Config.CopyStreams, MaxBlocks: p.Config.CopyBlocks, HighPriority: p.Config.CopyHighPriority, PlainArenas: p.Config.DisableFabricMemory, Logger: p.Log,
	}))
}

// deviceEngine is NIXL with a GPU's primary context current whenever it is called: UCX asks CUDA about memory, and opens peers' memory, in the calling thread's context.
type deviceEngine struct {
	*nixl.Engine
	device *cuda.Device
}

func openDeviceEngine(cfg nixl.Config, ordinal uint32) (ports.TransferEngine, error) {
	device, err := cuda.OpenDevice(int(ordinal))
	if err != nil {
		return nil, err
	}
	e := &deviceEngine{device: device}
	if err := device.Do(func() (err error) { e.Engine, err = nixl.New(cfg); return err }); err != nil {
		return nil, err
	}
	return e, nil
}

// Any goroutine calls these.

func (e *deviceEngine) Register(ranges []ports.Descriptor) (r ports.Registration, err error) {
	err = e.device.Do(func() (err error) { r, err = e.Engine.Register(ranges); return err })
	return r, err
}

func (e *deviceEngine) Deregister(r ports.Registration) error {
	return e.device.Do(func() error { return e.Engine.Deregister(r) })
}

func (e *deviceEngine) Metadata() (metadata []byte, err error) {
	err = e.device.Do(func() (err error) { metadata, err = e.Engine.Metadata(); return err })
	return metadata, err
}

// ConnectionMetadata is for the control channel over notifications.
func (e *deviceEngine) ConnectionMetadata() (metadata []byte, err error) {
	err = e.device.Do(func() (err error) { metadata, err = e.Engine.ConnectionMetadata(); return err })
	return metadata, err
}

func (e *deviceEngine) Close() error { return e.device.Do(e.Engine.Close) }

// The reactor calls these, always on one thread, where the context stays current. That can only fail after an error of CUDA's that fails the engine's call too.

func (e *deviceEngine) PostWrite(peer ports.Identity, local, remote []ports.Descriptor) ports.Transfer {
	_ = e.device.MakeCurrent()
	return e.Engine.PostWrite(peer, local, remote)
}

func (e *deviceEngine) PostRead(peer ports.Identity, local, remote []ports.Descriptor) ports.Transfer {
	_ = e.device.MakeCurrent()
	return e.Engine.PostRead(peer, local, remote)
}

func (e *deviceEngine) Progress() bool {
	_ = e.device.MakeCurrent()
	return e.Engine.Progress()
}

// ReadyEvent makes a CUDA event (a CUevent or cudaEvent_t of the GPU's primary context, recorded already) one that a request can wait for. It must not be destroyed nor
// recorded again before the request ended.
func ReadyEvent(ordinal uint32, event unsafe.Pointer) (ports.Event, error) {
	device, err := cuda.OpenDevice(int(ordinal))
	if err != nil {
		return nil, err
	}
	return device.Ready(event), nil
}

// DeviceBlock is a block of a GPU's memory for transfers, and a copy of its content on the host.
type DeviceBlock struct {
	memory *cuda.Memory
	copy   []byte
}

// AllocateDevice takes at least one byte of a GPU's memory. The content is undefined.
func AllocateDevice(ordinal uint32, bytes uint64) (*DeviceBlock, error) {
	device, err := cuda.OpenDevice(int(ordinal))
	if err != nil {
		return nil, err
	}
	memory, err := device.Allocate(max(bytes, 1))
	if err != nil {
		return nil, err
	}
	return &DeviceBlock{memory, make([]byte, bytes)}, nil
}

// Bytes are the host's copy: what Push writes and Pull reads.
func (b *DeviceBlock) Bytes() []byte { return b.copy }

// Push makes Bytes the block's content.
func (b *DeviceBlock) Push() error { return b.memory.Write(0, b.copy) }

// Pull makes the block's content Bytes.
func (b *DeviceBlock) Pull() error { return b.memory.Read(0, b.copy) }

// Descriptor names the whole block.
func (b *DeviceBlock) Descriptor() ports.Descriptor { return b.memory.Descriptor() }

// Free gives it back. The caller must know that nothing touches it any more.
func (b *DeviceBlock) Free() error {
	if err := b.memory.Free(); err != nil {
		return fmt.Errorf("free a block of GPU memory: %w", err)
	}
	b.copy = nil
	return nil
}
