package transport

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// The fakes are the smallest ports that a scripted test can drive: nothing in them moves by itself.

var errTest = errors.New("made by the test")

// fakeChannel is a control channel whose frames the test puts in and takes out.
type fakeChannel struct {
	onRecv    func() // before each look for a frame; may be nil
	t         *testing.T
	self      ports.Identity
	in        []inFrame
	out       []sentFrame
	endpoints map[ports.Identity]string
	full      bool  // Send reports Full
	refuse    error // of Connect
}

type inFrame struct {
	bytes []byte
	key   string
}

type sentFrame struct {
	to  ports.Identity
	msg wire.Message
}

func (c *fakeChannel) Kind() ports.ControlKind { return ports.ControlMemory }
func (c *fakeChannel) Endpoint() []byte        { return []byte("mem:self") }
func (c *fakeChannel) WaitFD() int             { return -1 }
func (c *fakeChannel) Close() error            { return nil }

func (c *fakeChannel) Connect(p ports.Identity, endpoint []byte) error {
	if c.refuse != nil {
		return c.refuse
	}
	c.endpoints[p] = string(endpoint)
	return nil
}

// Disconnect drops what the test has not taken yet, as the port's contract allows.
func (c *fakeChannel) Disconnect(p ports.Identity) {
	delete(c.endpoints, p)
	keep := c.out[:0]
	for _, f := range c.out {
		if f.to != p {
			keep = append(keep, f)
		}
	}
	c.out = keep
}

func (c *fakeChannel) Send(p ports.Identity, frame []byte) ports.SendResult {
	if _, ok := c.endpoints[p]; !ok {
		return ports.NoPeer
	}
	if c.full {
		return ports.Full
	}
	f, err := wire.DecodeFrame(bytes.Clone(frame))
	require.NoError(c.t, err, "every frame that is sent decodes")
	require.Equal(c.t, c.self, f.From)
	require.Equal(c.t, p, f.To)
	c.out = append(c.out, sentFrame{to: p, msg: f.Message})
	return ports.Accepted
}

func (c *fakeChannel) Recv(buf []byte) (frame []byte, key string, ok bool) {
	if c.onRecv != nil {
		c.onRecv()
	}
	if len(c.in) == 0 {
		return nil, "", false
	}
	f := c.in[0]
	c.in = c.in[1:]
	return append(buf[:0], f.bytes...), f.key, true
}

// fakeTransfer is a transfer whose status the test sets.
type fakeTransfer struct {
	peer          ports.Identity
	read          bool
	local, remote []ports.Descriptor
	status        ports.TransferStatus
	err           error
	released      bool
}

func (x *fakeTransfer) Status() ports.TransferStatus { return x.status }
func (x *fakeTransfer) Err() error                   { return x.err }
func (x *fakeTransfer) Release()                     { x.released = true }

// end sets the status, with an error where a failure has one.
func (x *fakeTransfer) end(s ports.TransferStatus) {
	x.status, x.err = s, nil
	switch s {
	case ports.FailedNothingPosted:
		x.err = ports.ErrNothingPosted
	case ports.FailedEnded, ports.FailedUnknown:
		x.err = errTest
	}
}

// fakeEngine keeps what is posted.
type fakeEngine struct {
	ports.TransferEngine // Register and the like are not the transport's
	transfers            []*fakeTransfer
	progressed           int
	moves                bool // Progress reports so
	rests, resting       bool // Rest reports so, and was called since Progress
	connected            map[ports.Identity]string
	disconnects          int
	refuse               error // of Connect
	notifyErr            error
	notified             []string
}

// countedEngine is driven by another thread.
type countedEngine struct {
	*fakeEngine
	turns uint64
}

func (e *countedEngine) Turns() uint64 { return e.turns }

func (e *fakeEngine) Progress() bool { e.progressed++; e.resting = false; return e.moves }

func (e *fakeEngine) Rest() bool { e.resting = e.rests; return e.rests }

func (e *fakeEngine) Connect(p ports.Identity, metadata []byte) error {
	if e.refuse != nil {
		return e.refuse
	}
	e.connected[p] = string(metadata)
	return nil
}

func (e *fakeEngine) Disconnect(p ports.Identity) { delete(e.connected, p); e.disconnects++ }

func (e *fakeEngine) post(p ports.Identity, read bool, local, remote []ports.Descriptor) ports.Transfer {
	x := &fakeTransfer{peer: p, read: read, local: append([]ports.Descriptor(nil), local...), remote: append([]ports.Descriptor(nil), remote...)}
	e.transfers = append(e.transfers, x)
	return x
}

func (e *fakeEngine) PostWrite(p ports.Identity, local, remote []ports.Descriptor) ports.Transfer {
	return e.post(p, false, local, remote)
}

func (e *fakeEngine) PostRead(p ports.Identity, local, remote []ports.Descriptor) ports.Transfer {
	return e.post(p, true, local, remote)
}

func (e *fakeEngine) Notify(_ ports.Identity, message []byte) error {
	if e.notifyErr != nil {
		return e.notifyErr
	}
	e.notified = append(e.notified, string(message))
	return nil
}

// fakeCopy is a gather or scatter that the test completes.
type fakeCopy struct {
	scatter bool
	runs    ports.Runs
	block   uint64
	status  ports.CopyStatus
}

func (c *fakeCopy) Status() ports.CopyStatus { return c.status }

func (c *fakeCopy) Err() error {
	if c.status == ports.CopyFailed {
		return errTest
	}
	return nil
}

// fakeCompute keeps what is launched.
type fakeCompute struct {
	ports.GpuCompute
	contexts  int
	copies    []*fakeCopy
	gatherErr error // the next gathers' launch error
	scatErr   error
}

func (g *fakeCompute) Contexts() int { return g.contexts }

func (g *fakeCompute) launch(scatter bool, runs ports.Runs, block uint64, err error) (ports.Event, error) {
	if err != nil {
		return nil, err
	}
	if len(g.running()) >= g.contexts {
		return nil, ports.ErrBusy
	}
	c := &fakeCopy{scatter: scatter, runs: runs, block: block}
	g.copies = append(g.copies, c)
	return c, nil
}

func (g *fakeCompute) Gather(runs ports.Runs, block uint64) (ports.Event, error) {
	return g.launch(false, runs, block, g.gatherErr)
}

func (g *fakeCompute) Scatter(runs ports.Runs, block uint64) (ports.Event, error) {
	return g.launch(true, runs, block, g.scatErr)
}

func (g *fakeCompute) running() (list []*fakeCopy) {
	for _, c := range g.copies {
		if c.status == ports.CopyPending {
			list = append(list, c)
		}
	}
	return list
}

// fakeEvent is a caller's ready event.
type fakeEvent struct{ status ports.CopyStatus }

func (e *fakeEvent) Status() ports.CopyStatus { return e.status }
func (e *fakeEvent) Err() error {
	if e.status == ports.CopyFailed {
		return errTest
	}
	return nil
}
