package arrows

import (
	"fmt"
	"go/scanner"
	"go/token"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	maxFileLines = 600   // a longer file is a sign that two things live in it
	maxCoreLines = 10000 // lines of code in core, without tests, comments and blank lines
)

func TestSizes(t *testing.T) {
	files, _ := repository(t)
	for _, long := range longFiles(files) {
		t.Error(long)
	}
	require.LessOrEqual(t, coreLines(files), maxCoreLines)
}

func TestSizesCatch(t *testing.T) {
	of := func(path string, lines int) file {
		return file{path: path, source: []byte(strings.Repeat("x\n", lines))}
	}
	long := longFiles([]file{of("core/a.go", 600), of("core/b.go", 601), of("adapters/c_test.go", 700), of("scripts/d.sh", 700), of("LICENSE", 700)})
	require.Equal(t, []string{"core/b.go has 601 lines, at most 600", "adapters/c_test.go has 700 lines, at most 600", "scripts/d.sh has 700 lines, at most 600"}, long)
	require.Equal(t, 30, coreLines([]file{of("core/x/a.go", 10), of("core/y/b.go", 20), of("core/x/a_test.go", 5), of("core/x/mutation_on.go", 5), of("core/x/invariants_on.go", 5), of("ports/c.go", 7), of("core/x/testdata/d", 3)}))
	require.Equal(t, 4, codeLines([]byte("// Package p.\npackage p\n\n/* a\nb */\nvar x, y = `1\n2`, /* c */ 3\n\nvar z int // d\n")))
}

// longFiles returns a line for each source file that people wrote and that is too long.
func longFiles(files []file) (long []string) {
	for _, f := range files {
		source := strings.HasSuffix(f.path, ".go") || strings.HasSuffix(f.path, ".sh") || strings.HasSuffix(f.path, ".cu")
		if n := lines(f.source); source && n > maxFileLines && !f.isGenerated() {
			long = append(long, fmt.Sprintf("%s has %d lines, at most %d", f.path, n, maxFileLines))
		}
	}
	return long
}

func coreLines(files []file) (total int) {
	for _, f := range files {
		// What only tests build is test code.
		onlyTests := f.isTest() || strings.HasSuffix(f.path, "/mutation_on.go") || strings.HasSuffix(f.path, "/invariants_on.go")
		if f.inLayer("core") && strings.HasSuffix(f.path, ".go") && !onlyTests {
			total += codeLines(f.source)
		}
	}
	return total
}

// codeLines counts the lines that hold a token.
func codeLines(source []byte) (n int) {
	var s scanner.Scanner
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(source))
	s.Init(file, source, nil, 0)
	last := 0
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return n
		}
		first := file.Line(pos)
		if tok == token.SEMICOLON && text == "\n" {
			continue
		}
		end := first + strings.Count(text, "\n")
		n += end - max(first, last+1) + 1
		last = end
	}
}
