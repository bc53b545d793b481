package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

// block is memory that a layout is moved from or to. Its content is written and read through Bytes.
type block interface {
	Bytes() []byte
	Push() error // makes Bytes the memory's content
	Pull() error // makes the memory's content Bytes
	Descriptor() ports.Descriptor
	Free() error
}

// hostBlock is memory that is its own Bytes.
type hostBlock struct{ *wiring.HostBlock }

func (hostBlock) Push() error { return nil }
func (hostBlock) Pull() error { return nil }

func allocateBlock(place ports.Place, bytes uint64) (block, error) {
	if place.Kind == ports.Device {
		b, err := wiring.AllocateDevice(place.Device, bytes)
		if err != nil {
			return nil, err
		}
		return b, nil
	}
	b, err := wiring.AllocateHost(bytes)
	if err != nil {
		return nil, err
	}
	return hostBlock{b}, nil
}

// memoryFlag is the flag --memory: "dram", "vram" or "vram:ORDINAL".
type memoryFlag struct{ place ports.Place }

const memoryHelp = `where the bytes are: "dram", or "vram" or "vram:N" for GPU memory (a build with CUDA, see make build-cuda)`

func (f *memoryFlag) String() string { return f.place.Kind.String() }
func (*memoryFlag) Type() string     { return "memory" }

func (f *memoryFlag) Set(s string) error {
	kind, ordinal, numbered := strings.Cut(s, ":")
	var device uint64
	var err error
	if numbered {
		device, err = strconv.ParseUint(ordinal, 10, 16)
	}
	switch {
	case kind == ports.Host.String() && !numbered:
		f.place = ports.Place{}
	case kind == ports.Device.String() && err == nil:
		f.place = ports.Place{Kind: ports.Device, Device: uint32(device)}
	default:
		return errors.New(`allowed are "dram", "vram" and "vram:N"`)
	}
	return nil
}
