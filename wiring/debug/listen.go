package debug

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unixPrefix begins an address that is a Unix socket's.
const unixPrefix = "unix:"

// listen opens unix:PATH or a loopback ADDRESS:PORT.
func listen(address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		return listenUnix(strings.ReplaceAll(path, "{pid}", strconv.Itoa(os.Getpid())))
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() {
		return nil, fmt.Errorf("%q is neither unix:PATH nor ADDRESS:PORT with a loopback address: what it shows is for this machine alone", address)
	}
	return net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
}

// listenUnix opens a socket that only this user can connect to. A socket file that a dead process left is replaced, a living one's and any other file never. Closing removes the file.
func listenUnix(path string) (net.Listener, error) {
	if strings.HasPrefix(path, "@") {
		return nil, fmt.Errorf("%s%s is an abstract socket, which every user of this machine can connect to: want a file's path", unixPrefix, path)
	}
	// Two processes that start at once must not both find the same dead socket, and the second remove the first's new one.
	// Everyone who can read the folder can hold its lock: without it a socket is opened all the same, but none removed.
	unlock, unlocked := lockFolder(filepath.Dir(path))
	if unlocked == nil {
		defer unlock()
	}
	l, err := listenPrivate(path)
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && unlocked != nil:
		return nil, fmt.Errorf("%w, and if a dead process left it there, it can't be replaced: %w", err, unlocked)
	case errors.Is(err, syscall.EADDRINUSE):
		if err = removeStale(path); err == nil {
			l, err = listenPrivate(path)
		}
	}
	if err != nil {
		return nil, err
	}
	// A umask takes rights from its owner too, and a kernel that is not Linux may ignore what listenPrivate does.
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

const socketMode = 0o600

// listenPrivate opens a socket whose file has at no moment more rights than socketMode: bind gives the file the mode of the socket itself, less the umask,
// on Linux (POSIX says nothing of it). The umask, the other way, is the whole process's, and a chmod after bind comes too late.
func listenPrivate(path string) (net.Listener, error) {
	private := net.ListenConfig{Control: func(_, _ string, socket syscall.RawConn) error {
		var err error
		return errors.Join(socket.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), socketMode) }), err)
	}}
	return private.Listen(context.Background(), "unix", path)
}

// lockFolder waits a moment for a lock on a folder, which needs no file in it. Those who start at once hold it for much less.
func lockFolder(path string) (unlock func(), err error) {
	folder, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	for range 40 {
		if err = unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return func() { folder.Close() }, nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	folder.Close()
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// removeStale removes the socket file of a process that is gone.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there and is no socket", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return fmt.Errorf("%s belongs to a living process", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s may belong to a living process: %w", path, err)
	}
	return os.Remove(path)
}

// bounded lets at most so many connections in at once; the others wait in the kernel's queue.
type bounded struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
}

func bound(l net.Listener, connections int) *bounded {
	return &bounded{Listener: l, slots: make(chan struct{}, connections), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.slots <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	conn, err := b.Listener.Accept()
	if err != nil {
		<-b.slots
		return nil, err
	}
	return &boundedConn{Conn: conn, leave: func() { <-b.slots }}, nil
}

// Close implements net.Listener.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

type boundedConn struct {
	net.Conn
	once  sync.Once
	leave func()
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.once.Do(c.leave)
	return c.Conn.Close()
}
