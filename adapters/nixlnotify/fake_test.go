package nixlnotify

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

// network is what fake engines reach each other over. As with NIXL an identity may stand for several engines, told apart by their connection.
type network struct {
	mu      sync.Mutex
	engines []*fakeEngine
}

// fakeEngine carries notifications at once. Like NIXL it keeps a loaded connection until Disconnect, and a copy of the metadata with fewer registrations changes nothing.
type fakeEngine struct {
	ports.TransferEngine // panics where a test should not get
	net                  *network
	self                 fakeMetadata
	peers                map[ports.Identity]fakeMetadata
	inbox                []message
	refuse               error // what Notify answers
	closed               bool
	connects             int
}

type fakeMetadata struct {
	Identity      ports.Identity
	Connection    int
	Registrations int
}

func (n *network) open(id ports.Identity) *fakeEngine {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := &fakeEngine{net: n, self: fakeMetadata{Identity: id, Connection: len(n.engines)}, peers: make(map[ports.Identity]fakeMetadata)}
	n.engines = append(n.engines, e)
	return e
}

func (m fakeMetadata) bytes() []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // it is made of plain fields
	}
	return b
}

func (e *fakeEngine) ConnectionMetadata() ([]byte, error) { return e.self.bytes(), nil }

func (e *fakeEngine) full(registrations int) []byte {
	m := e.self
	m.Registrations = registrations
	return m.bytes()
}

func (e *fakeEngine) Connect(peer ports.Identity, metadata []byte) error {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	var m fakeMetadata
	if err := json.Unmarshal(metadata, &m); err != nil {
		return fmt.Errorf("%w: %w", ports.ErrBadMetadata, err)
	}
	if m.Identity != peer {
		return fmt.Errorf("%w: it is %s's", ports.ErrBadMetadata, m.Identity)
	}
	if known, ok := e.peers[peer]; ok && (known.Connection != m.Connection || known.Registrations >= m.Registrations) {
		return nil
	}
	e.connects++
	e.peers[peer] = m
	return nil
}

func (e *fakeEngine) Disconnect(peer ports.Identity) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	delete(e.peers, peer)
}

func (e *fakeEngine) Notify(peer ports.Identity, bytes []byte) error {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	m, ok := e.peers[peer]
	switch {
	case !ok:
		return ports.ErrUnknownPeer
	case e.refuse != nil:
		return e.refuse
	}
	if m.Connection < len(e.net.engines) && !e.net.engines[m.Connection].closed {
		to := e.net.engines[m.Connection]
		to.inbox = append(to.inbox, message{e.self.Identity, slices.Clone(bytes)})
	}
	return nil
}

func (e *fakeEngine) RecvNotify() (ports.Identity, []byte, bool) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	if len(e.inbox) == 0 {
		return "", nil, false
	}
	m := e.inbox[0]
	e.inbox = e.inbox[1:]
	return m.from, m.bytes, true
}

func (e *fakeEngine) PostWrite(peer ports.Identity, _, _ []ports.Descriptor) ports.Transfer {
	return fakeTransfer{peer}
}

func (e *fakeEngine) PostRead(peer ports.Identity, _, _ []ports.Descriptor) ports.Transfer {
	return fakeTransfer{peer}
}

func (e *fakeEngine) Close() error {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	e.closed = true
	return nil
}

type fakeTransfer struct{ peer ports.Identity }

func (fakeTransfer) Status() ports.TransferStatus { return ports.Success }
func (fakeTransfer) Err() error                   { return nil }
func (fakeTransfer) Release()                     {}

// end is an agent's engine as it sees it, its channel, and what is below.
type end struct {
	*Engine
	channel *Channel
	fake    *fakeEngine
	id      ports.Identity
}

const (
	testMaxFrame    = 1 << 20
	testQueueFrames = 64
)

func (n *network) end(t *testing.T, name string) end {
	t.Helper()
	id, err := ports.NewIdentity(name, uint64(len(n.engines)+1))
	require.NoError(t, err)
	fake := n.open(id)
	e, c, err := New(fake, Config{MaxFrame: testMaxFrame, QueueFrames: testQueueFrames})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		require.NoError(t, e.Close())
	})
	return end{e, c, fake, id}
}

// pair is two ends that do not know each other.
func pair(t *testing.T) (a, b end) {
	n := &network{}
	return n.end(t, "alice"), n.end(t, "bob")
}

// received takes all frames and all messages that arrived.
func (e end) received() (frames, messages []string) {
	for {
		frame, _, ok := e.channel.Recv(nil)
		if !ok {
			break
		}
		frames = append(frames, string(frame))
	}
	for {
		_, m, ok := e.RecvNotify()
		if !ok {
			return frames, messages
		}
		messages = append(messages, string(m))
	}
}

// frame is one with this content.
func frame(content string) []byte { return []byte(ports.FrameMagic + content) }
