package nixl

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

// The answers that real NIXL gives only when machines fail come from a library of our own, testdata/fake.c, which also watches that no request is released that may run. A process loads one
// library, so the scenarios run in a process of their own.

func TestEvidence(t *testing.T) {
	for _, release := range []struct{ name, flag string }{{"1.5", "-DSINCE_1_5"}, {"1.4", "-DBEFORE_1_5"}} {
		t.Run(release.name, func(t *testing.T) {
			library := filepath.Join(t.TempDir(), libraryName)
			out, err := exec.Command("gcc", release.flag, "-Wall", "-shared", "-fPIC", "-fvisibility=hidden", "-o", library, "testdata/fake.c").CombinedOutput()
			require.NoError(t, err, "%s", out)
			out, err = roleCommand(t, "fake-"+release.name, LibraryEnv+"="+library).CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.NotContains(t, string(out), "1 registrations left")
			require.Contains(t, string(out), "0 registrations left")
		})
	}
}

// scenario is what becomes of a transfer to a peer whose name is the script of NIXL's answers.
type scenario struct {
	script string
	pieces int
	want   []ports.TransferStatus // one after the other, the last one for ever
	is     error                  // what the error is, if it fails
}

const (
	fakePending = ports.Pending
	fakeSuccess = ports.Success
	fakeNothing = ports.FailedNothingPosted
	fakeEnded   = ports.FailedEnded
	fakeUnknown = ports.FailedUnknown
)

var scenarios = []scenario{
	{"well", 1, []ports.TransferStatus{fakeSuccess}, nil},
	{"well", 9, []ports.TransferStatus{fakeSuccess}, nil},
	{"post 1 status 1 1 0 -2", 1, []ports.TransferStatus{fakeSuccess}, nil},
	{"post 1 status 1 1 0 -2", 9, []ports.TransferStatus{fakeSuccess}, nil},
	{"post 1 status 1", 200, []ports.TransferStatus{fakePending}, nil},

	// Nothing was posted.
	{"create -2", 1, []ports.TransferStatus{fakeNothing}, nil},
	{"create -6", 3, []ports.TransferStatus{fakeNothing}, ports.ErrUnknownPeer},
	{"load -2", 1, []ports.TransferStatus{fakeNothing}, ports.ErrUnknownPeer},

	// What was posted has ended, and nothing else will be.
	{"second create -2", 3, []ports.TransferStatus{fakeEnded}, nil},

	// A failed post proves nothing.
	{"post -1", 1, []ports.TransferStatus{fakeUnknown}, nil},
	{"post -2", 1, []ports.TransferStatus{fakeUnknown}, nil},
	{"post -2 status 0", 1, []ports.TransferStatus{fakeUnknown}, nil},
	{"post -4", 3, []ports.TransferStatus{fakeUnknown}, nil},
	{"second post -2", 3, []ports.TransferStatus{fakeUnknown}, nil},

	// Nor does a failed status; NIXL latches it, except "not found", after which success may come.
	{"post 1 status 1 -2 0", 1, []ports.TransferStatus{fakeUnknown}, nil},
	{"post 1 status 1 -1 0", 1, []ports.TransferStatus{fakeUnknown}, nil},
	{"post 1 status -6", 1, []ports.TransferStatus{fakeUnknown}, ports.ErrUnknownPeer},
	{"post 1 status -6 -6 -6 0", 1, []ports.TransferStatus{fakeUnknown, fakeSuccess}, nil},
	{"post 1 status 1 -6 -6 0", 1, []ports.TransferStatus{fakeUnknown, fakeSuccess}, nil},
	{"post 1 status -6 -6 1 1 -2", 1, []ports.TransferStatus{fakeUnknown}, nil},
}

// runFake is the process that loads the fake library.
func runFake(version string) error {
	all := scenarios
	refused := scenario{"post -6 status -6", 3, []ports.TransferStatus{fakeNothing}, ports.ErrUnknownPeer}
	refusedLater := scenario{"second post -6 status -6", 3, []ports.TransferStatus{fakeEnded}, nil}
	if version == "1.4" {
		// Up to 1.4.0 that code does not exist: whatever it means, it is no proof.
		refused.want, refusedLater.want = []ports.TransferStatus{fakeUnknown}, []ports.TransferStatus{fakeUnknown}
	}
	all = append(all, refused, refusedLater)

	errs := []error{runFakeMessages()} // first: the fake sends messages once
	for _, memory := range []ports.MemoryKind{ports.Host, ports.Device} {
		for i, s := range all {
			if err := runScenario(memory, uint64(i+1), s); err != nil {
				errs = append(errs, fmt.Errorf("%v, %q, %d pieces: %w", memory, s.script, s.pieces, err))
			}
		}
	}
	return errors.Join(append(errs, runFakeRegistrations(), runFakeInfo(version))...)
}

func runScenario(memory ports.MemoryKind, n uint64, s scenario) error {
	id, err := ports.NewIdentity("fake", n)
	if err != nil {
		return err
	}
	e, err := New(Config{Identity: id, Memory: memory})
	if err != nil {
		return err
	}
	defer e.Close()
	peer, err := ports.NewIdentity(s.script, n)
	if err != nil {
		return err
	}
	range1 := ports.Descriptor{Addr: 1 << 30, Bytes: 1 << 30}
	registered, err := e.Register([]ports.Descriptor{range1})
	if err != nil {
		return err
	}
	o := offer{identity: peer, ranges: []ports.Descriptor{range1}, blob: []byte(peer)}
	if err := e.Connect(peer, o.marshal()); err != nil {
		return err
	}
	// Pieces are cut by kind of memory or by size: by size in host mode, by number of descriptors in device mode.
	list := make([]ports.Descriptor, 0, s.pieces*32)
	for i := range s.pieces {
		if memory == ports.Host {
			list = append(list, ports.Descriptor{Addr: range1.Addr, Bytes: 1 << 20})
			continue
		}
		for j := range 32 {
			list = append(list, ports.Descriptor{Addr: range1.Addr + uint64(32*i+j), Bytes: 1})
		}
	}
	transfer := e.PostWrite(peer, list, list)
	for _, want := range s.want {
		deadline := time.Now().Add(10 * time.Second)
		for transfer.Status() != want && time.Now().Before(deadline) {
			e.Progress()
			runtime.Gosched()
		}
		if got := transfer.Status(); got != want {
			return fmt.Errorf("%v (%v), want %v", got, transfer.Err(), want)
		}
	}
	last := s.want[len(s.want)-1]
	for range 300 { // it stays so
		e.Progress()
		runtime.Gosched()
	}
	err = transfer.Err()
	switch {
	case transfer.Status() != last:
		return fmt.Errorf("%v turned into %v", last, transfer.Status())
	case errors.Is(err, ports.ErrNothingPosted) != (last == fakeNothing):
		return fmt.Errorf("%v with the error %q", last, err)
	case (err != nil) != (last != fakePending && last != fakeSuccess):
		return fmt.Errorf("%v with the error %v", last, err)
	case s.is != nil && !errors.Is(err, s.is):
		return fmt.Errorf("the error %q is not %q", err, s.is)
	}
	// Requests are kept exactly as long as they may run.
	deadline := time.Now().Add(10 * time.Second)
	for last.Ended() != (e.keptRequests() == 0) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%v with %d requests kept", last, e.keptRequests())
		}
		e.Progress()
		runtime.Gosched()
	}
	if err := e.Deregister(registered); err != nil {
		return err
	}
	if err := e.Close(); err != nil {
		return err
	}
	// What was pending proves nothing now, the rest is as it was.
	if last == fakePending {
		last = fakeUnknown
	}
	if got := transfer.Status(); got != last {
		return fmt.Errorf("after Close it is %v", got)
	}
	transfer.Release()
	return nil
}

// keptRequests is how many requests of NIXL's the engine holds because they may run.
func (e *Engine) keptRequests() int {
	e.owner.Lock()
	defer e.owner.Unlock()
	return len(e.driver.running) + len(e.driver.unproved)
}

// runFakeMessages reads what the fake sends at the first look: two senders that differ only behind a NUL, one that cannot be looked up, and one that is no agent of ours.
func runFakeMessages() error {
	e, err := New(Config{Identity: "fake#00000000000000f1"})
	if err != nil {
		return err
	}
	defer e.Close()
	var got []string
	for deadline := time.Now().Add(10 * time.Second); len(got) < 2 && time.Now().Before(deadline); runtime.Gosched() {
		e.Progress()
		if from, message, ok := e.RecvNotify(); ok {
			got = append(got, fmt.Sprintf("%s:%q", from, message))
		}
	}
	if from, message, ok := e.RecvNotify(); ok {
		got = append(got, fmt.Sprintf("%s:%q", from, message))
	}
	want := []string{`twin#0000000000000001:"a\x00b"`, `twin#0000000000000001:""`}
	if !slices.Equal(got, want) {
		return fmt.Errorf("messages: %q, want %q", got, want)
	}
	return nil
}

// runFakeRegistrations registers host memory together with memory of a device that refuses.
func runFakeRegistrations() error {
	e, err := New(Config{Identity: "fake#00000000000000f2"})
	if err != nil {
		return err
	}
	defer e.Close()
	host := ports.Descriptor{Addr: 4096, Bytes: 4096}
	device := ports.Descriptor{Addr: 4096, Bytes: 4096, Place: ports.Place{Kind: ports.Device, Device: 13}}
	var nixlError *Error
	if _, err := e.Register([]ports.Descriptor{host, device}); !errors.As(err, &nixlError) || nixlError.Code != codeBackend {
		return fmt.Errorf("registering memory of the device that refuses: %v", err)
	}
	if n := len(e.registered.Load().ranges); n != 0 {
		return fmt.Errorf("%d ranges are registered, want none", n)
	}
	r, err := e.Register([]ports.Descriptor{host})
	if err != nil {
		return err
	}
	return e.Deregister(r)
}

// runFakeInfo asks which NIXL the fake looks like.
func runFakeInfo(version string) error {
	lib, err := load()
	if err != nil {
		return err
	}
	if lib.refusesBeforePosting != (version == "1.5") || lib.info.Version != "" || lib.info.Library != os.Getenv(LibraryEnv) {
		return fmt.Errorf("%+v is not %s of %s", lib, os.Getenv(LibraryEnv), version)
	}
	return nil
}
