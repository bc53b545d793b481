package kernels

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What `make ptx` writes at the start of a PTX file, and what NVRTC of CUDA 12.0 writes after it.
var header = regexp.MustCompile(`\A// Made from (\S+) by .make ptx.: change that, not this\.
// compiler: nvidia-cuda-nvrtc-cu12 (12\.0\.\d+), options: --gpu-architecture=compute_80 --std=c\+\+17
// source sha256: ([0-9a-f]{64})
// ptx sha256: ([0-9a-f]{64})
`)

// TestPTXBelongsToItsSource needs neither a GPU nor a compiler: whoever changes a kernel and forgets `make ptx`, or changes the PTX, fails it.
func TestPTXBelongsToItsSource(t *testing.T) {
	for _, source := range []string{"gather_scatter.cu", "../adapters/cuda/testdata/reference.cu"} {
		t.Run(filepath.Base(source), func(t *testing.T) {
			text, err := os.ReadFile(source)
			require.NoError(t, err)
			ptx, err := os.ReadFile(strings.TrimSuffix(source, ".cu") + ".ptx")
			require.NoError(t, err)
			require.NoError(t, belong(filepath.Base(source), text, string(ptx)))

			// The check itself sees each of the ways in which they can differ.
			require.ErrorContains(t, belong(filepath.Base(source), append(text, ' '), string(ptx)), "source")
			require.ErrorContains(t, belong(filepath.Base(source), text, string(ptx)+"\n"), "PTX")
			require.ErrorContains(t, belong("other.cu", text, string(ptx)), "other.cu")
			require.ErrorContains(t, belong(filepath.Base(source), text, "//"+string(ptx)), "header")
		})
	}
}

type mismatch string

func (m mismatch) Error() string { return string(m) + ": run make ptx" }

func belong(name string, source []byte, ptx string) error {
	found := header.FindStringSubmatch(ptx)
	switch {
	case found == nil:
		return mismatch("the PTX has no such header")
	case found[1] != name:
		return mismatch("the PTX is not made from " + name)
	case found[3] != sum(source):
		return mismatch("the source is not the one that the PTX was made from")
	case found[4] != sum([]byte(ptx[len(found[0]):])):
		return mismatch("the PTX was changed")
	case !strings.Contains(ptx, "\n// Cuda compilation tools, release 12.0, V"+found[2]+"\n"):
		return mismatch("the PTX is not of the compiler that its header names")
	}
	return nil
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// PTX 8.0 is what the drivers of CUDA 12.0 load; a kernel that got local memory would be slow.
func TestPTXIsForEveryDriverOfCUDA12(t *testing.T) {
	require.Contains(t, PTX, "\n.version 8.0\n.target sm_80\n.address_size 64\n")
	for _, name := range []string{Gather, Scatter} {
		require.Contains(t, PTX, "\n.visible .entry "+name+"(")
	}
	require.NotContains(t, PTX, ".local")
}
