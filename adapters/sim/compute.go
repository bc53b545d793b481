package sim

import (
	"errors"
	"fmt"

	"github.com/kvbounce/kvbounce/ports"
)

// ComputeConfig is how a Compute is made.
type ComputeConfig struct {
	Agent    ports.Identity // whom the trace and the Chooser name
	Contexts int            // copies at once, at least 1
	Place    ports.Place    // in real time: host memory
	Wake     func()         // unless nil, called when a copy ended; must not block
}

// Compute is a ports.GpuCompute within a World. In real time its copies run in the calls of the agents; package host has one with workers of its own.
type Compute struct {
	w      *World
	cfg    ComputeConfig
	bell   bell
	free   int // contexts
	closed bool
	arenas map[uint64]bool // by base
}

var _ ports.GpuCompute = (*Compute)(nil)

// NewCompute makes a device.
func NewCompute(w *World, cfg ComputeConfig) (*Compute, error) {
	if cfg.Contexts < 1 {
		return nil, fmt.Errorf("sim compute: Contexts is %d, want at least 1", cfg.Contexts)
	}
	return &Compute{w: w, cfg: cfg, bell: bell{wake: cfg.Wake}, free: cfg.Contexts, arenas: make(map[uint64]bool)}, nil
}

// Contexts is ComputeConfig.Contexts.
func (c *Compute) Contexts() int { return c.cfg.Contexts }

// AllocArena is World.Allocate.
func (c *Compute) AllocArena(bytes uint64) (ports.Arena, error) {
	c.w.mu.Lock()
	defer c.w.leave()
	if c.closed {
		return ports.Arena{}, ports.ErrClosed
	}
	base, err := c.w.Allocate(bytes, c.cfg.Place)
	if err != nil {
		return ports.Arena{}, fmt.Errorf("sim arena: %w", err)
	}
	c.arenas[base] = true
	return ports.Arena{Base: base, Bytes: bytes, Place: c.cfg.Place}, nil
}

// FreeArena is World.Free, for an arena of this Compute.
func (c *Compute) FreeArena(a ports.Arena) error {
	c.w.mu.Lock()
	defer c.w.leave()
	if !c.arenas[a.Base] {
		return fmt.Errorf("sim arena: no arena begins at %#x", a.Base)
	}
	delete(c.arenas, a.Base)
	return c.w.Free(a.Base)
}

// Gather copies the application's pieces into the block.
func (c *Compute) Gather(runs ports.Runs, block uint64) (ports.Event, error) {
	return c.launch(runs, block, false)
}

// Scatter copies the block's pieces to the application.
func (c *Compute) Scatter(runs ports.Runs, block uint64) (ports.Event, error) {
	return c.launch(runs, block, true)
}

// Close waits for the copies under way in real time. In virtual time nothing can wait: they go on, and their events tell.
func (c *Compute) Close() error {
	c.w.mu.Lock()
	defer c.w.leave()
	if c.closed {
		return nil
	}
	c.closed = true
	c.w.trace(Event{Kind: PortClosed, Agent: c.cfg.Agent})
	for c.w.clock != nil && c.w.queue.nextAt() != ports.Never {
		c.w.drive()
	}
	return nil
}

// copying is one gather or scatter. As an action it copies the next bytes; to the caller it is the event.
type copying struct {
	compute *Compute
	id      uint64
	runs    ports.Runs
	block   uint64
	scatter bool
	bytes   uint64

	// What is copied next.
	run    int
	piece  uint32
	offset uint32
	done   uint64           // bytes
	atEnd  ports.CopyStatus // CopyPending: nothing is told

	status ports.CopyStatus
	err    error
	seen   bool // Status answered that it is final, and the context is free
}

// errCopyInjected is the reason of the failures that a Chooser chose.
var errCopyInjected = errors.New("the simulated device failed")

func (c *Compute) launch(runs ports.Runs, block uint64, scatter bool) (ports.Event, error) {
	w := c.w
	w.mu.Lock()
	defer w.leave()
	switch {
	case c.closed:
		return nil, fmt.Errorf("%w: %w", ports.ErrNotLaunched, ports.ErrClosed)
	case c.free == 0:
		return nil, ports.ErrBusy
	}
	fate := CopyFate(w.fate(Point{Kind: LaunchOne, Agent: c.cfg.Agent}))
	j := &copying{compute: c, id: w.newID(), runs: runs, block: block, scatter: scatter}
	for _, r := range runs.Runs {
		j.bytes += uint64(r.Piece) * uint64(r.Pieces)
	}
	launched := Event{Kind: GatherLaunched, Detail: uint8(fate), Agent: c.cfg.Agent, ID: j.id, Addr: block, Bytes: j.bytes, Runs: runs.Runs, Index: runs.Index}
	if scatter {
		launched.Kind = ScatterLaunched
	}
	w.trace(launched)
	cost := w.cfg.Timing.Copy
	start := func(late bool, atEnd ports.CopyStatus) {
		j.atEnd = atEnd
		way := cost.Base + cost.bytes(min(j.bytes, w.cfg.MoveBytes))
		if late {
			way += w.lateness(cost)
		}
		w.after(way, j)
	}
	switch fate {
	case CopyRefused:
		w.toldByte(c.cfg.Agent, 'l', 1)
		return nil, ports.ErrBusy
	case CopyNotLaunched:
		w.toldByte(c.cfg.Agent, 'l', 2)
		return nil, fmt.Errorf("%w: %w", ports.ErrNotLaunched, errCopyInjected)
	case CopySucceeds:
		start(false, ports.CopyDone)
	case CopySucceedsLate:
		start(true, ports.CopyDone)
	case CopyFails:
		w.after(cost.Base, (*copyFails)(j))
	case CopyFailsRunsLate:
		w.after(cost.Base, (*copyFails)(j))
		start(true, ports.CopyPending)
	case CopyHangs:
	}
	c.free--
	w.live(j)
	return j, nil
}

// copyFails tells of a failure, apart from what is copied.
type copyFails copying

func (f *copyFails) happen(w *World) { (*copying)(f).tell(w, ports.CopyFailed, errCopyInjected) }

// tell changes what Status answers, once.
func (j *copying) tell(w *World, status ports.CopyStatus, reason error) {
	if j.status != ports.CopyPending {
		return
	}
	j.status, j.err = status, reason
	w.trace(Event{Kind: CopyTold, Detail: uint8(status), Agent: j.compute.cfg.Agent, ID: j.id})
	w.ring(&j.compute.bell)
}

// happen copies at most Config.MoveBytes, and comes back for the rest.
func (j *copying) happen(w *World) {
	e := Event{Kind: CopyRuns, Agent: j.compute.cfg.Agent, ID: j.id, From: j.done, Addr: j.block, Bytes: min(w.cfg.MoveBytes, j.bytes-j.done), Runs: j.runs.Runs, Index: j.runs.Index}
	if j.scatter {
		e.Detail = 1
	}
	w.trace(e)
	if err := j.copy(w, e.Bytes); err != nil {
		j.tell(w, ports.CopyFailed, err)
		return
	}
	if j.done < j.bytes {
		w.after(w.cfg.Timing.Copy.bytes(min(j.bytes-j.done, w.cfg.MoveBytes)), j)
		return
	}
	j.runs = ports.Runs{}
	if j.atEnd != ports.CopyPending {
		j.tell(w, j.atEnd, nil)
	}
}

// copy copies the next bytes.
func (j *copying) copy(w *World, bytes uint64) error {
	for bytes > 0 {
		r := &j.runs.Runs[j.run]
		n := min(r.Piece-j.offset, uint32(min(bytes, uint64(r.Piece))))
		factor := uint64(j.piece)
		if r.Table != ports.NoTable {
			factor = uint64(j.runs.Index[uint64(r.Table)+factor])
		}
		// In two's complement a negative stride wraps to the right address.
		app, err := w.memory.view(r.Addr+factor*uint64(r.Stride)+uint64(j.offset), uint64(n))
		if err != nil {
			return err
		}
		block, err := w.memory.view(j.block+r.Offset+uint64(j.piece)*uint64(r.Step)+uint64(j.offset), uint64(n))
		if err != nil {
			return err
		}
		if j.scatter {
			copy(app, block)
		} else {
			copy(block, app)
		}
		bytes -= uint64(n)
		j.done += uint64(n)
		w.moved += uint64(n)
		if j.offset += n; j.offset == r.Piece {
			j.offset = 0
			if j.piece++; j.piece == r.Pieces {
				j.run, j.piece = j.run+1, 0
			}
		}
	}
	return nil
}

// Status does what is due in real time. In virtual time it only tells what happened.
func (j *copying) Status() ports.CopyStatus {
	w := j.compute.w
	w.mu.Lock()
	defer w.leave()
	w.drive()
	if j.status != ports.CopyPending && !j.seen {
		j.seen = true
		j.compute.free++
	}
	w.toldByte(j.compute.cfg.Agent, 'c', byte(j.status))
	return j.status
}

// Err is the reason of CopyFailed.
func (j *copying) Err() error {
	w := j.compute.w
	w.mu.Lock()
	defer w.leave()
	return j.err
}
