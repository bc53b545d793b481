package nixl

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kvbounce/kvbounce/ports"
)

// Some tests need a process of their own: this test program again, with a role instead of tests.
const roleEnv = "KVBOUNCE_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleEnv)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(role); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func play(role string) error {
	if version, ok := strings.CutPrefix(role, "fake-"); ok {
		return runFake(version)
	}
	switch role {
	case "load":
		_, err := New(Config{Identity: "loader#0000000000000001"})
		return err
	case "writer":
		return runWriter(os.Stdin, os.Stdout)
	}
	return fmt.Errorf("no role %q", role)
}

// roleCommand is this test program in a role.
func roleCommand(t *testing.T, role string, env ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(append(os.Environ(), roleEnv+"="+role), env...)
	return cmd
}

const writerBytes = 1 << 20

// runWriter is a peer: it says its metadata and the address of its memory, reads the other's, writes to it and notifies it as often as it is told to, and ends when its input does.
func runWriter(in io.Reader, out io.Writer) error {
	id, err := ports.NewIdentity("writer", uint64(os.Getpid()))
	if err != nil {
		return err
	}
	e, err := New(Config{Identity: id})
	if err != nil {
		return err
	}
	view, err := unix.Mmap(-1, 0, writerBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	for i := range view {
		view[i] = byte(i * 7)
	}
	own := ports.Descriptor{Addr: uint64(uintptr(unsafe.Pointer(&view[0]))), Bytes: writerBytes}
	if _, err := e.Register([]ports.Descriptor{own}); err != nil {
		return err
	}
	metadata, err := e.Metadata()
	if err != nil {
		return err
	}
	if err := writeBlobs(out, []byte(id), metadata, binary.LittleEndian.AppendUint64(nil, own.Addr)); err != nil {
		return err
	}
	blobs, err := readBlobs(in, 3)
	if err != nil {
		return err
	}
	peer := ports.Identity(blobs[0])
	if err := e.Connect(peer, blobs[1]); err != nil {
		return err
	}
	target := ports.Descriptor{Addr: binary.LittleEndian.Uint64(blobs[2]), Bytes: writerBytes}
	for {
		if _, err := readBlobs(in, 1); err != nil {
			return nil // the test is done with us
		}
		if err := e.Notify(peer, []byte("written soon")); err != nil {
			return err
		}
		transfer := e.PostWrite(peer, []ports.Descriptor{own}, []ports.Descriptor{target})
		for range 200 { // time to get it under way, whether or not the peer takes part
			e.Progress()
			time.Sleep(100 * time.Microsecond)
		}
		if err := writeBlobs(out, []byte(transfer.Status().String())); err != nil {
			return err
		}
	}
}

func writeBlobs(w io.Writer, blobs ...[]byte) error {
	for _, b := range blobs {
		if _, err := w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...)); err != nil {
			return err
		}
	}
	return nil
}

func readBlobs(r io.Reader, n int) ([][]byte, error) {
	blobs := make([][]byte, n)
	for i := range blobs {
		var length [4]byte
		if _, err := io.ReadFull(r, length[:]); err != nil {
			return nil, err
		}
		blobs[i] = make([]byte, binary.LittleEndian.Uint32(length[:]))
		if _, err := io.ReadFull(r, blobs[i]); err != nil {
			return nil, err
		}
	}
	return blobs, nil
}
