package arrows

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/kvbounce/kvbounce"

// root is the repository, seen from this package.
const root = "../.."

// file is one file of the repository; syntax is set for Go files alone.
type file struct {
	path   string // slash-separated, from the repository's root
	source []byte
	syntax *ast.File
}

func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }
func (f file) dir() string  { return path.Dir(f.path) }

// inLayer reports whether the file lies in the folder or below it.
func (f file) inLayer(folder string) bool { return strings.HasPrefix(f.path, folder+"/") }

// isGenerated as defined by "go help generate".
func (f file) isGenerated() bool { return f.syntax != nil && ast.IsGenerated(f.syntax) }

// repository reads every file that is not git's, fetched or built. Go files are read whatever their build tags.
func repository(t *testing.T) (files []file, fset *token.FileSet) {
	t.Helper()
	fset = token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		slashed := filepath.ToSlash(relative)
		if entry.IsDir() {
			switch slashed {
			case ".git", ".deps", "bin", "out":
				return filepath.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f := file{path: slashed, source: source}
		if strings.HasSuffix(slashed, ".go") && !strings.Contains("/"+slashed, "/testdata/") {
			f = parse(t, fset, slashed, string(source))
		}
		files = append(files, f)
		return nil
	})
	require.NoError(t, err)
	return files, fset
}

func parse(t *testing.T, fset *token.FileSet, path, source string) file {
	t.Helper()
	syntax, err := parser.ParseFile(fset, path, source, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	return file{path: path, source: []byte(source), syntax: syntax}
}

// lines is the number of lines of a text, the last one with or without its end.
func lines(source []byte) int {
	n := bytes.Count(source, []byte("\n"))
	if len(source) > 0 && source[len(source)-1] != '\n' {
		n++
	}
	return n
}

func TestTheRepositoryIsSeen(t *testing.T) {
	files, _ := repository(t)
	seen := map[string]bool{}
	for _, f := range files {
		seen[f.path] = true
	}
	for _, known := range []string{"go.mod", "ports/engine.go", "core/config/settings.go", "internal/arrows/repo_test.go", "scripts/test.sh", ".ci/run"} {
		require.True(t, seen[known], known)
	}
}

func TestLines(t *testing.T) {
	for source, want := range map[string]int{"": 0, "a": 1, "a\n": 1, "a\nb": 2, "\n\n": 2} {
		require.Equal(t, want, lines([]byte(source)), "%q", source)
	}
}
