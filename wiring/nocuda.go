//go:build !cuda

package wiring

import (
	"errors"
	"unsafe"

	"github.com/kvbounce/kvbounce/adapters/nixl"
	"github.com/kvbounce/kvbounce/ports"
)

// ErrNoCUDA is the error of all that concerns GPU memory in a build without the tag cuda.
var ErrNoCUDA = errors.New("this program was built without CUDA, so that GPU memory can't be used: build it with `make build-cuda` (the tag cuda)")

func openCUDA(Params) (ports.GpuCompute, error) { return nil, ErrNoCUDA }

func openDeviceEngine(nixl.Config, uint32) (ports.TransferEngine, error) { return nil, ErrNoCUDA }

// ReadyEvent needs the tag cuda.
func ReadyEvent(uint32, unsafe.Pointer) (ports.Event, error) { return nil, ErrNoCUDA }

// DeviceBlock is a block of a GPU's memory, of which there is none without the tag cuda.
type DeviceBlock struct{}

// AllocateDevice needs the tag cuda.
func AllocateDevice(uint32, uint64) (*DeviceBlock, error) { return nil, ErrNoCUDA }

// Bytes is nil.
func (*DeviceBlock) Bytes() []byte { return nil }

// Push fails.
func (*DeviceBlock) Push() error { return ErrNoCUDA }

// Pull fails.
func (*DeviceBlock) Pull() error { return ErrNoCUDA }

// Descriptor names nothing.
func (*DeviceBlock) Descriptor() ports.Descriptor { return ports.Descriptor{} }

// Free fails.
func (*DeviceBlock) Free() error { return ErrNoCUDA }
