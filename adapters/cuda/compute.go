//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/kvbounce/kvbounce/kernels"
	"github.com/kvbounce/kvbounce/ports"
)

// blocksOfMultiprocessor is how many blocks each multiprocessor gets without Config.MaxBlocks: the two that it can hold, and as many again twice, which take the place of those that end
// early (gpu.md has the figures).
const blocksOfMultiprocessor = 6

// Config is how a Compute is made.
type Config struct {
	// Device is the GPU's ordinal.
	Device int
	// Contexts is how many copies can be under way at once, at least 1 (the setting COPY_STREAMS).
	Contexts int
	// MaxBlocks caps the blocks of 256 threads that one copy occupies the GPU with, so that something is left for a model. 0 means six for each multiprocessor.
	MaxBlocks int
	// HighPriority gives the copies' streams the device's greatest priority: their blocks start ahead of those of other streams that wait.
	HighPriority bool
	// PlainArenas makes arenas plain device memory also where the driver offers fabric memory.
	PlainArenas bool
	// Logger takes what kind of memory an arena is. nil: nothing is logged.
	Logger *slog.Logger
}

// Compute is a ports.GpuCompute over a GPU.
type Compute struct {
	device          *Device
	context         unsafe.Pointer
	module          cu.Module
	gather, scatter unsafe.Pointer
	maxBlocks       int
	flush           bool // before each scatter, see the package's comment
	fabric          bool // arenas are fabric memory if possible
	log             *slog.Logger

	mu      sync.Mutex // between the reactor and what any goroutine may call
	copiers []*copier
	free    []*copier
	arenas  map[uint64]*Memory // by base
	events  []event            // unused ones, see newEvent
	broken  error              // CUDA's first error
	closed  bool
}

var _ ports.GpuCompute = (*Compute)(nil)

// New loads the kernels and makes the contexts. The first call on a machine takes some 0.1 s more, in which the driver compiles the PTX for its GPU; it keeps the result.
func New(cfg Config) (*Compute, error) {
	if cfg.Contexts < 1 {
		return nil, fmt.Errorf("cuda: Contexts is %d, want at least 1", cfg.Contexts)
	}
	if cfg.MaxBlocks < 0 {
		return nil, fmt.Errorf("cuda: MaxBlocks is %d, want 1 or more, or 0 for the default", cfg.MaxBlocks)
	}
	device, err := OpenDevice(cfg.Device)
	if err != nil {
		return nil, err
	}
	c := &Compute{device: device, context: handle(device.context), maxBlocks: cfg.MaxBlocks, fabric: !cfg.PlainArenas && device.offersFabric(), log: cfg.Logger, arenas: make(map[uint64]*Memory)}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if err := device.Do(func() error { return c.open(cfg) }); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Compute) open(cfg Config) (err error) {
	if c.flush, err = rdmaOrdering(c.device.device); err != nil {
		return err
	}
	if c.maxBlocks == 0 {
		multiprocessors, err := c.device.device.Attribute(cu.MultiprocessorCount)
		if err != nil {
			return named("cuDeviceGetAttribute", err)
		}
		c.maxBlocks = blocksOfMultiprocessor * multiprocessors
	}
	if c.module, err = cu.LoadData(kernels.PTX); err != nil {
		return named("cuModuleLoadData", err)
	}
	for name, to := range map[string]*unsafe.Pointer{kernels.Gather: &c.gather, kernels.Scatter: &c.scatter} {
		function, err := c.module.Function(name)
		if err != nil {
			return named("cuModuleGetFunction", err)
		}
		*to = handle(function)
	}
	priority := 0
	if cfg.HighPriority {
		if _, priority, err = cu.StreamPriorityRange(); err != nil {
			return named("cuCtxGetStreamPriorityRange", err)
		}
	}
	for range cfg.Contexts {
		p, err := newCopier(priority)
		if err != nil {
			return err
		}
		c.copiers, c.free = append(c.copiers, p), append(c.free, p)
	}
	return nil
}

// Contexts is Config.Contexts.
func (c *Compute) Contexts() int { return len(c.copiers) }

// AllocArena takes fabric memory where there is some, and else plain device memory.
func (c *Compute) AllocArena(bytes uint64) (ports.Arena, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ports.Arena{}, ports.ErrClosed
	}
	m, err := c.allocate(bytes)
	if err != nil {
		return ports.Arena{}, fmt.Errorf("cuda arena: %w", err)
	}
	c.arenas[m.base] = m
	return ports.Arena{Base: m.base, Bytes: m.bytes, Place: c.device.Place()}, nil
}

func (c *Compute) allocate(bytes uint64) (*Memory, error) {
	if c.fabric {
		m, err := c.device.allocateFabric(bytes)
		if err == nil {
			c.log.Debug("the arena is fabric memory", "bytes", bytes)
			return m, nil
		}
		c.log.Debug("the arena is plain device memory: the driver offers fabric memory but gives none", "err", err)
	}
	return c.device.Allocate(bytes)
}

// FreeArena gives an arena of this Compute back, after Close too.
func (c *Compute) FreeArena(a ports.Arena) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.arenas[a.Base]
	if !ok {
		return fmt.Errorf("cuda arena: no arena begins at %#x", a.Base)
	}
	if err := m.Free(); err != nil {
		return fmt.Errorf("cuda arena: %w", err)
	}
	delete(c.arenas, a.Base)
	return nil
}

// Gather copies the application's pieces into the block.
func (c *Compute) Gather(runs ports.Runs, block uint64) (ports.Event, error) {
	return c.start(c.gather, runs, block, false)
}

// Scatter copies the block's pieces to the application.
func (c *Compute) Scatter(runs ports.Runs, block uint64) (ports.Event, error) {
	return c.start(c.scatter, runs, block, c.flush)
}

func (c *Compute) start(kernel unsafe.Pointer, runs ports.Runs, block uint64, flush bool) (ports.Event, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, fmt.Errorf("%w: %w", ports.ErrNotLaunched, ports.ErrClosed)
	case c.broken != nil:
		return nil, fmt.Errorf("%w: an earlier copy failed: %w", ports.ErrNotLaunched, c.broken)
	case len(c.free) == 0:
		return nil, ports.ErrBusy
	}
	p := c.free[len(c.free)-1]
	if err := p.prepare(c.device, runs, block, c.maxBlocks); err != nil {
		return nil, fmt.Errorf("%w: %w", ports.ErrNotLaunched, err)
	}
	if p.plan.units == 0 {
		p.ended = true
	} else if untouched, err := launch(p.order(c, kernel, flush)); err != nil {
		c.broken = err
		if untouched {
			err = fmt.Errorf("%w: %w", ports.ErrNotLaunched, err)
		}
		return nil, err
	}
	c.free = c.free[:len(c.free)-1]
	return c.newEvent(p), nil
}

// Close lets the copies under way end, unless CUDA failed, and gives everything back but arenas, which stay until FreeArena.
func (c *Compute) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	err := c.device.Do(func() error {
		var errs []error
		for _, p := range c.copiers {
			if err := p.close(); err != nil && c.broken == nil {
				c.broken = err
			}
		}
		if c.module != (cu.Module{}) {
			errs = append(errs, named("cuModuleUnload", c.module.Unload()))
		}
		return errors.Join(errs...)
	})
	if c.broken != nil {
		return fmt.Errorf("cuda: closed after an error: %w", c.broken)
	}
	return err
}
