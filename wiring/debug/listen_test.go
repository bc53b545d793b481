package debug

import (
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestAddressesThatAreRefused(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", "10.1.2.3:80", "[::]:0", "[fd00::1]:80", ":80", "localhost:80", "127.0.0.1", "127..1:80", "", "tcp://127.0.0.1:80", "[::1%lo]:x"} {
		_, err := listen(address)
		require.ErrorContains(t, err, "neither unix:PATH nor ADDRESS:PORT with a loopback address", address)
	}
	for _, address := range []string{"unix:", "unix:@kvbounce", "unix:/nonexistent/x.sock", "127.0.0.1:99999"} {
		_, err := listen(address)
		require.Error(t, err, address)
	}
}

// fetched asks a server of the address.
func fetched(t *testing.T, address string) {
	t.Helper()
	s, err := Fetch(t.Context(), address)
	require.NoError(t, err)
	require.Equal(t, "decode#0000000000000001", s.Agent)
}

func serve(address string) (*Server, error) {
	return Serve(address, holding(), now, slog.New(slog.DiscardHandler))
}

func TestEveryKindOfAddress(t *testing.T) {
	folder := t.TempDir()
	for address, want := range map[string]string{
		"127.0.0.1:0": `^127\.0\.0\.1:\d+$`,
		"[::1]:0":     `^\[::1\]:\d+$`,
		"unix:" + filepath.Join(folder, "a.sock"):     "^unix:" + filepath.Join(folder, "a.sock") + "$",
		"unix:" + filepath.Join(folder, "{pid}.sock"): "^unix:" + filepath.Join(folder, fmt.Sprint(os.Getpid())+".sock") + "$",
	} {
		s, err := serve(address)
		require.NoError(t, err, address)
		require.Regexp(t, want, s.Address())
		fetched(t, s.Address())
		require.NoError(t, s.Close())
	}
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, entries, "the socket files were removed")
}

func TestSocketFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	address := "unix:" + path
	first, err := serve(address)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), "for this user alone")

	_, err = serve(address)
	require.ErrorContains(t, err, "belongs to a living process")
	fetched(t, address)
	require.NoError(t, first.Close())
	require.NoFileExists(t, path)

	// What a process that was killed leaves.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	require.FileExists(t, path)
	second, err := serve(address)
	require.NoError(t, err)
	fetched(t, address)
	require.NoError(t, second.Close())

	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	_, err = serve(address)
	require.ErrorContains(t, err, "is no socket")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "mine", string(content))
}

// Of many that find a dead process's socket at once, one gets the path and keeps it.
func TestStaleSocketIsTakenOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	var mu sync.Mutex
	var won []*Server
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if s, err := serve("unix:" + path); err == nil {
				mu.Lock()
				defer mu.Unlock()
				won = append(won, s)
			}
		})
	}
	wg.Wait()
	require.Len(t, won, 1)
	fetched(t, "unix:"+path)
	require.NoError(t, won[0].Close())
}

// Everyone who can read a folder can lock it: that keeps nobody's endpoint from starting there. A socket that is there stays, as if it were a living process's.
func TestLockedFolder(t *testing.T) {
	folder := t.TempDir()
	stranger, err := os.Open(folder)
	require.NoError(t, err)
	defer stranger.Close()
	require.NoError(t, unix.Flock(int(stranger.Fd()), unix.LOCK_EX))
	path := filepath.Join(folder, "x.sock")
	s, err := serve("unix:" + path)
	require.NoError(t, err)
	fetched(t, "unix:"+path)
	_, err = serve("unix:" + path)
	require.ErrorContains(t, err, "address already in use")
	require.ErrorContains(t, err, "lock "+folder)
	fetched(t, "unix:"+path)
	require.NoError(t, s.Close())
}

// The socket file is private from the moment that it is there: no chmod makes it so.
func TestSocketIsBornPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	defer unix.Umask(unix.Umask(0))
	l, err := listenPrivate(path)
	require.NoError(t, err)
	defer l.Close()
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(socketMode), info.Mode().Perm())
}

func TestFetchRefuses(t *testing.T) {
	for _, address := range []string{"", "unix:", "/run/x.sock", "127.0.0.1", ":80", "host:"} {
		require.Error(t, CheckAddress(address), address)
	}
	for _, address := range []string{"unix:/run/x.sock", "127.0.0.1:80", "[::1]:80", "host:80"} {
		require.NoError(t, CheckAddress(address), address)
	}
	for want, h := range map[string]http.HandlerFunc{
		"status 404: it is":   http.NotFound,
		"is no agent's state": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"it names no agent":   func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") },
		"status 403: it is":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"allowed are 32 MiB": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"agent":"x","unproved":[{}`+strings.Repeat(",{}", maxState/3)+"]}")
		},
	} {
		server := httptest.NewServer(h)
		_, err := Fetch(t.Context(), server.Listener.Addr().String())
		server.Close()
		require.ErrorContains(t, err, want)
	}
	_, err := Fetch(t.Context(), "unix:/nonexistent.sock")
	require.ErrorContains(t, err, "no such file")
}
