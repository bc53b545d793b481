package nixl

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"github.com/kvbounce/kvbounce/ports"
)

// Config says what engine New makes.
type Config struct {
	// Identity is the agent's, and NIXL's name for it.
	Identity ports.Identity
	// Memory is the kind of memory that is mostly moved. Host: one thread makes all calls of NIXL. Device: the reactor's thread does. Both kinds can be registered in
	// either mode; only how long a post blocks the reactor differs.
	Memory ports.MemoryKind
	// Wake is called, on a thread of the adapter's, when a transfer became final, a message arrived or a peer was loaded. It must not block nor call the engine. May be nil. In
	// device mode nothing is noticed between two calls of Progress, so that it is called for loaded peers only.
	Wake func()
	// Logger takes what cannot be returned as an error. nil: nothing is logged.
	Logger *slog.Logger
}

// Pieces of transfers. Over host memory a post copies the bytes while nothing else can happen: 1 MiB, or 64 descriptors of 4 KiB, takes 50 to 200 µs. For device memory a descriptor
// takes some 11 µs whatever its size (gpu.md). Cutting a list of 18432 descriptors so was not slower than one request for all.
var (
	hostLimits   = limits{bytes: 1 << 20, descriptors: 64}
	deviceLimits = limits{bytes: math.MaxUint64, descriptors: 32}
)

// Limits of what waits for somebody.
const (
	// maxUnsentBytes bounds the notifications that wait for the engine's thread. A single larger one is accepted when none waits.
	maxUnsentBytes = 16 << 20
	// maxUnreadBytes bounds the messages that wait for RecvNotify. Beyond it they are lost, as the contract allows: a peer must not fill our memory.
	maxUnreadBytes = 256 << 20
	// messageOverhead is what a waiting message costs besides its bytes.
	messageOverhead = 256
)

// errNotificationsFull: too many bytes of notifications wait to be sent.
var errNotificationsFull = errors.New("nixl: too many notifications wait to be sent")

// Engine is a ports.TransferEngine over NIXL.
type Engine struct {
	identity ports.Identity
	library  library
	logger   *slog.Logger
	wake     func()
	inline   bool // the reactor runs the driver; else the thread does
	machine  uint64
	uid      uint32

	// The reactor's alone.
	peers map[ports.Identity]*peer

	// registered is replaced as a whole by whoever holds owner.
	registered atomic.Pointer[coverage]

	// owner is held while NIXL is called; it guards the next group.
	owner         sync.Mutex
	driver        driver
	registrations map[*registration]struct{}
	revision      uint64 // registrations and deregistrations so far
	removal       uint64 // revision of the last deregistration

	work       workQueue
	spareTasks []func() bool // guarded by owner
	inbox      inbox
	bell       bell
	driven     atomic.Bool // Progress asked for a turn that was not taken yet
	resting    atomic.Bool // Progress is not called for the time being
	moved      atomic.Bool // something happened since Progress last answered
	turns      atomic.Uint64

	closing sync.Once
	ended   chan struct{} // closed when the thread has ended
	endErr  error         // destroy_agent's; read after ended
}

// peer is what the reactor knows of a connected peer.
type peer struct {
	ranges   *coverage
	revision uint64
	failed   atomic.Bool // the driver could not load it
}

var (
	_ ports.TransferEngine = (*Engine)(nil)
	_ ports.Rester         = (*Engine)(nil)
	_ ports.TurnCounter    = (*Engine)(nil)
)

// New loads the library if that was not done before, and makes an agent. The first call of a process takes about 0.1 s, and changes environment variables (see environment.go), so
// it should come before other threads read them.
func New(cfg Config) (*Engine, error) {
	if _, err := ports.ParseIdentity(string(cfg.Identity)); err != nil {
		return nil, fmt.Errorf("nixl: %w", err)
	}
	lib, err := load()
	if err != nil {
		return nil, err
	}
	e := &Engine{
		identity:      cfg.Identity,
		library:       lib,
		logger:        cfg.Logger,
		wake:          cfg.Wake,
		inline:        cfg.Memory == ports.Device,
		machine:       machineID(),
		uid:           uint32(os.Getuid()),
		peers:         make(map[ports.Identity]*peer),
		registrations: make(map[*registration]struct{}),
		work:          workQueue{limit: maxUnsentBytes},
		inbox:         inbox{limit: maxUnreadBytes},
		ended:         make(chan struct{}),
	}
	if e.logger == nil {
		e.logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if e.wake == nil {
		e.wake = func() {}
	}
	e.registered.Store(newCoverage(nil))
	e.driver = driver{
		library:   lib,
		logger:    e.logger,
		limits:    hostLimits,
		deliver:   e.deliver,
		links:     make(map[ports.Identity]*link),
		unsettled: make(map[*link]struct{}),
	}
	if e.inline {
		e.driver.limits = deviceLimits
	}
	opened := make(chan error)
	go e.run(opened)
	if err := <-opened; err != nil {
		return nil, err
	}
	return e, nil
}

// Info implements ports.TransferEngine.
func (e *Engine) Info() ports.EngineInfo {
	return ports.EngineInfo{Name: "nixl", Version: e.library.info.Version, Real: true}
}

// Connect implements ports.TransferEngine. A copy that is not newer than the one that is loaded changes nothing.
func (e *Engine) Connect(id ports.Identity, metadata []byte) error {
	o, err := unmarshal(metadata)
	if err != nil {
		return fmt.Errorf("nixl: connecting to %s: %w", id, err)
	}
	switch {
	case o.identity != id:
		return fmt.Errorf("nixl: connecting to %s: %w: it is %s's", id, ports.ErrBadMetadata, o.identity)
	case id == e.identity:
		return fmt.Errorf("nixl: connecting to %s: an agent cannot be its own peer", id)
	}
	if known := e.peers[id]; known != nil && !known.failed.Load() && known.revision >= o.revision {
		return e.closedError()
	}
	p := &peer{ranges: newCoverage(o.ranges), revision: o.revision}
	note := e.differentUser(o)
	if !e.submit(func() bool { e.driver.connect(id, o, note, &p.failed); return false }) {
		return ports.ErrClosed
	}
	e.peers[id] = p
	e.bell.ring()
	return nil
}

// differentUser warns of the one setting that breaks between users (nixl.md, 10), and answers the words to add to a later error.
func (e *Engine) differentUser(o *offer) (note string) {
	sharedControl := e.library.sharedControl || o.sharedControl
	if !sharedControl || o.machine != e.machine || o.machine == 0 || o.uid == e.uid {
		return ""
	}
	e.logger.Warn("a peer on this machine runs as another user: if transfers to it fail, take UCX_POSIX_ERROR_HANDLING and UCX_MM_ERROR_HANDLING out of both sides' environment", "peer", o.identity, "uid", e.uid, "peer_uid", o.uid)
	return fmt.Sprintf(", which runs as user %d and this process as user %d: control messages over shared memory (UCX_POSIX_ERROR_HANDLING, UCX_MM_ERROR_HANDLING) do not work between users", o.uid, e.uid)
}

// Disconnect implements ports.TransferEngine. NIXL itself forgets the peer when nothing that was posted to it is running any more.
func (e *Engine) Disconnect(id ports.Identity) {
	if e.peers[id] == nil {
		return
	}
	delete(e.peers, id)
	e.submit(func() bool { return e.driver.disconnect(id) })
	e.bell.ring()
}

// PostWrite implements ports.TransferEngine.
func (e *Engine) PostWrite(id ports.Identity, local, remote []ports.Descriptor) ports.Transfer {
	return e.post(opWrite, id, local, remote)
}

// PostRead implements ports.TransferEngine.
func (e *Engine) PostRead(id ports.Identity, local, remote []ports.Descriptor) ports.Transfer {
	return e.post(opRead, id, local, remote)
}

func (e *Engine) post(op operation, id ports.Identity, local, remote []ports.Descriptor) *transfer {
	if e.work.closed.Load() {
		return failedAtOnce(ports.ErrClosed)
	}
	p := e.peers[id]
	if p == nil {
		return failedAtOnce(fmt.Errorf("%w %s", ports.ErrUnknownPeer, id))
	}
	t := newTransfer(op)
	if err := t.takeLists(local, remote, e.registered.Load(), p.ranges); err != nil {
		t.freeLists()
		return failedAtOnce(err)
	}
	if len(t.local) == 0 {
		t.freeLists()
		t.conclude()
		return t
	}
	if !e.submit(func() bool { return e.driver.admit(id, t) }) {
		return failedAtOnce(ports.ErrClosed)
	}
	e.hand()
	return t
}

// Notify implements ports.TransferEngine.
func (e *Engine) Notify(id ports.Identity, message []byte) error {
	if err := e.closedError(); err != nil {
		return err
	}
	if e.peers[id] == nil {
		return fmt.Errorf("nixl: %w %s", ports.ErrUnknownPeer, id)
	}
	if !e.work.reserve(len(message) + messageOverhead) {
		return errNotificationsFull
	}
	message = append([]byte(nil), message...)
	if !e.submit(func() bool {
		e.work.unreserve(len(message) + messageOverhead)
		e.driver.notify(id, message)
		return false
	}) {
		return ports.ErrClosed
	}
	e.hand()
	return nil
}

// RecvNotify implements ports.TransferEngine.
func (e *Engine) RecvNotify() (from ports.Identity, message []byte, ok bool) {
	return e.inbox.take()
}

// Progress implements ports.TransferEngine. In host mode it asks the thread for a turn and reports what happened meanwhile.
func (e *Engine) Progress() (moved bool) {
	if !e.inline {
		e.resting.Store(false)
		if !e.driven.Swap(true) {
			e.bell.ring()
		}
		return e.moved.Swap(false)
	}
	e.tryTurn(true)
	return e.moved.Swap(false)
}

// Turns implements ports.TurnCounter.
func (e *Engine) Turns() uint64 { return e.turns.Load() }

// Rest implements ports.Rester. In device mode NIXL is the reactor's to call.
func (e *Engine) Rest() bool {
	if e.inline {
		return false
	}
	if !e.resting.Swap(true) {
		e.bell.ring()
	}
	return true
}

// hand gets what was submitted going: by the thread, or here and now, if nobody else is at it.
func (e *Engine) hand() {
	if !e.inline {
		e.bell.ring()
		return
	}
	e.tryTurn(false)
}

// tryTurn takes a turn on the reactor's thread, unless another thread is calling NIXL.
func (e *Engine) tryTurn(driven bool) {
	if !e.owner.TryLock() {
		return
	}
	defer e.owner.Unlock()
	if e.driver.agent == nil {
		return // closed
	}
	if moved, posted := e.turn(driven); moved || posted {
		e.moved.Store(true)
	}
}

// Close implements ports.TransferEngine. Transfers that may still run become failed-unknown; destroying NIXL's agent was seen to stop them over host memory, but proves nothing.
func (e *Engine) Close() error {
	e.closing.Do(func() {
		e.work.close()
		e.bell.ring()
	})
	<-e.ended
	return e.endErr
}

func (e *Engine) closedError() error {
	if e.work.closed.Load() {
		return ports.ErrClosed
	}
	return nil
}
