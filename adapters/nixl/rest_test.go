package nixl

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

// An engine at rest hears its peers whatever it keeps: a request that failed when another peer was killed, which is kept for ever, and a transfer that waits for a peer that was not loaded.
func TestRestWithSomethingKept(t *testing.T) {
	var wakes atomic.Int64
	survivor, friend := newBlockEnd(t, Config{Wake: func() { wakes.Add(1) }}, writerBytes), newBlockEnd(t, Config{}, writerBytes)
	introduce(t, friend, survivor)
	introduce(t, survivor, friend)
	hears := func(what string) {
		t.Helper()
		for _, _, ok := survivor.RecvNotify(); ok; _, _, ok = survivor.RecvNotify() { // what came before
		}
		require.True(t, survivor.Rest())
		wakes.Store(0)
		require.NoError(t, friend.Notify(survivor.identity, []byte(what)))
		var got []byte
		require.Eventually(t, func() bool {
			friend.Progress()
			_, message, ok := survivor.RecvNotify()
			got = message
			return ok
		}, 30*time.Second, time.Millisecond, what)
		require.Equal(t, what, string(got))
		require.Eventually(t, func() bool { return wakes.Load() > 0 }, 30*time.Second, time.Millisecond, what)
		w := friend.PostWrite(survivor.identity, friend.list(), survivor.list())
		await(t, what, func() bool { return w.Status() != ports.Pending }, friend)
		require.Equal(t, ports.Success, w.Status())
	}
	hears("nothing kept")

	w := startWriter(t, survivor)
	require.NoError(t, survivor.Connect(w.identity, w.metadata))
	wrote := make(chan string, 1)
	go func() { wrote <- w.write() }()
	await(t, "the peer wrote", func() bool { return len(wrote) > 0 }, survivor)
	failed := survivor.PostWrite(w.identity, survivor.list(), []ports.Descriptor{{Addr: w.addr, Bytes: writerBytes}}) // the writer does not look after it
	await(t, "the write is under way", func() bool { return survivor.keptRequests() > 0 }, survivor)
	w.kill()
	await(t, "a write to a killed peer fails", func() bool { return failed.Status() != ports.Pending }, survivor)
	survivor.Disconnect(w.identity)
	await(t, "the peer is forgotten", func() bool { return survivor.links() == 1 }, survivor)
	require.Positive(t, survivor.keptRequests())
	hears("a failed request kept")

	require.NoError(t, survivor.call(func() error {
		survivor.driver.queue = append(survivor.driver.queue, &transfer{link: &link{}})
		return nil
	}))
	hears("a transfer waits")
	require.NoError(t, survivor.call(func() error { survivor.driver.queue = nil; return nil }))
}

// links is how many peers NIXL knows.
func (e *Engine) links() (n int) {
	_ = e.call(func() error { n = len(e.driver.links); return nil })
	return n
}

// While the thread is at something else no turn is counted, however often Progress asks for one.
func TestTurnsAreTheThreads(t *testing.T) {
	e := newEngine(t, Config{Identity: newIdentity(t, "me"), Memory: ports.Host})
	release, stuck := make(chan struct{}), make(chan struct{})
	go func() {
		_ = e.call(func() error { close(stuck); <-release; return nil }) // as memory that takes long to pin
	}()
	<-stuck
	before := e.Turns()
	for range 1000 {
		e.Progress()
	}
	require.Equal(t, before, e.Turns())
	close(release)
	require.Eventually(t, func() bool {
		e.Progress()
		return e.Turns() > before+10
	}, 20*time.Second, time.Millisecond)
}
