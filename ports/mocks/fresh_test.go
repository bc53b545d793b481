package mocks_test

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const portsDir = ".."

// generation is one mockgen line of ports/generate.go.
type generation struct {
	source, destination string // relative to ports
	args                []string
}

// TestMocksAreFresh runs the lines of ports/generate.go into another directory: a changed port without `go generate ./ports` fails here.
func TestMocksAreFresh(t *testing.T) {
	for _, g := range generations(t) {
		t.Run(g.source, func(t *testing.T) {
			fresh := filepath.Join(t.TempDir(), "mock.go")
			cmd := exec.Command("go", append([]string{"tool", "mockgen", "-destination=" + fresh}, g.args...)...)
			cmd.Dir = portsDir
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			want, err := os.ReadFile(fresh)
			require.NoError(t, err)
			got, err := os.ReadFile(filepath.Join(portsDir, g.destination))
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got), "ports/%s does not match ports/%s: run go generate ./ports", g.destination, g.source)
		})
	}
}

// TestEveryInterfaceHasAMock compares the files that declare an interface, and the mocks that exist, with the lines of ports/generate.go.
func TestEveryInterfaceHasAMock(t *testing.T) {
	var sources, destinations []string
	for _, g := range generations(t) {
		sources = append(sources, g.source)
		destinations = append(destinations, filepath.Base(g.destination))
	}
	require.ElementsMatch(t, filesWithInterfaces(t), sources, "the sources in ports/generate.go")
	require.ElementsMatch(t, goFiles(t, "."), destinations, "the files in ports/mocks")
}

func generations(t *testing.T) []generation {
	t.Helper()
	file, err := os.Open(filepath.Join(portsDir, "generate.go"))
	require.NoError(t, err)
	defer file.Close()
	var all []generation
	for lines := bufio.NewScanner(file); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), "//go:generate go tool mockgen ")
		if !ok {
			continue
		}
		var g generation
		for _, arg := range strings.Fields(rest) {
			if to, ok := strings.CutPrefix(arg, "-destination="); ok {
				g.destination = to
				continue
			}
			if from, ok := strings.CutPrefix(arg, "-source="); ok {
				g.source = from
			}
			g.args = append(g.args, arg)
		}
		all = append(all, g)
	}
	require.NotEmpty(t, all)
	return all
}

// goFiles are the names of a directory's Go files, without tests.
func goFiles(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
			names = append(names, e.Name())
		}
	}
	return names
}

func filesWithInterfaces(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, name := range goFiles(t, portsDir) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(portsDir, name), nil, 0)
		require.NoError(t, err)
		found := false
		ast.Inspect(file, func(n ast.Node) bool {
			_, isInterface := n.(*ast.InterfaceType)
			found = found || isInterface
			return !found
		})
		if found {
			names = append(names, name)
		}
	}
	return names
}
