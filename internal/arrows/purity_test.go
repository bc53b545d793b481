package arrows

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// impurePackages may not be imported by core, nor any package below them but log/slog (a logger that is handed in is no state of core's):
// they reach the machine, or give answers that no seed repeats.
var impurePackages = []string{
	"C", "crypto/rand", "internal", "io/ioutil", "log", "math/rand", "net", "os", "path/filepath", "plugin", "runtime", "syscall", "testing", "unsafe",
}

// impureNames are what otherwise pure packages have that reads the clock, starts goroutines and timers, or reaches a global logger.
var impureNames = map[string][]string{
	"time":    {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Timer", "Ticker", "Local", "LoadLocation"},
	"context": {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause", "AfterFunc"},
	"log/slog": {"Default", "SetDefault", "SetLogLoggerLevel", "Debug", "DebugContext", "Info", "InfoContext", "Warn", "WarnContext",
		"Error", "ErrorContext", "Log", "LogAttrs", "With"},
}

func TestCoreIsPure(t *testing.T) {
	files, fset := repository(t)
	checked := 0
	for _, f := range files {
		if !f.inLayer("core") || f.isTest() || strings.Contains(f.path, "/testdata/") {
			continue
		}
		checked++
		for _, impurity := range impurities(fset, f) {
			t.Error(impurity)
		}
	}
	require.Positive(t, checked)
}

func TestCoreIsPureCatches(t *testing.T) {
	for source, want := range map[string]string{
		`import "C"`:                        "imports C",
		`import "unsafe"`:                   "imports unsafe",
		`import "os"`:                       "imports os",
		`import "os/signal"`:                "imports os/signal",
		`import "net/netip"`:                "imports net/netip",
		`import "math/rand"`:                "imports math/rand",
		`import "math/rand/v2"`:             "imports math/rand/v2",
		`import "crypto/rand"`:              "imports crypto/rand",
		`import . "time"`:                   "dot import",
		`import "time"; var x = time.Now()`: "time.Now",
		`import clock "time"; func f() { clock.Sleep(1) }`:                          "time.Sleep",
		`import "time"; func f() { g := time.After; _ = g }`:                        "time.After",
		`import "time"; type s struct { t *time.Timer }`:                            "time.Timer",
		`import "context"; func f(c context.Context) { context.WithTimeout(c, 1) }`: "context.WithTimeout",
		`import "log"`: "imports log",
		`import "log/slog"; func f() { slog.Info("x") }`:            "log/slog.Info",
		`func f() { go f() }`:                                       "go statement",
		`import "sync"; func f() { var g sync.WaitGroup; g.Go(f) }`: "starts a goroutine",
		"//go:linkname now runtime.now\nfunc now() int64":           "linkname",
	} {
		fset := token.NewFileSet()
		found := impurities(fset, parse(t, fset, "core/x/x.go", "package x\n"+source))
		require.Len(t, found, 1, source)
		require.Contains(t, found[0], want, source)
	}
	found := impurities(token.NewFileSet(), file{path: "core/x/copy_amd64.s"})
	require.Len(t, found, 1)
	require.Contains(t, found[0], "not Go")
}

func TestCoreIsPureAllows(t *testing.T) {
	for _, source := range []string{
		`import "time"; func f(now time.Time, d time.Duration) time.Time { return now.Add(d * time.Second) }`,
		`import "context"; func f(c context.Context) error { return c.Err() }`,
		`import "log/slog"; func f(log *slog.Logger) { log.Info("x", slog.Int("n", 1)) }`,
		`type clock struct{}; func (clock) Now() int64 { return 0 }; func f(time clock) { time.Now() }`,
		`import "fmt"; import "math/bits"; import "sync/atomic"; var _ = fmt.Sprint(bits.Len(1), atomic.Int64{})`,
	} {
		fset := token.NewFileSet()
		require.Empty(t, impurities(fset, parse(t, fset, "core/x/x.go", "package x\n"+source)), source)
	}
}

// impurities returns a line for each thing in a file of core that core may not hold.
func impurities(fset *token.FileSet, f file) (found []string) {
	if f.syntax == nil {
		return []string{f.path + ": core is pure Go, and this is not Go"}
	}
	report := func(node ast.Node, what string) {
		found = append(found, fmt.Sprintf("%s: core %s", fset.Position(node.Pos()), what))
	}
	watched := map[string]string{} // local name of an import -> its path, for those in impureNames
	for _, spec := range f.syntax.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value) // the parser accepted it
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == "." {
			report(spec, "has a dot import of "+imported+", which hides what it uses")
		}
		if imported != "log/slog" && allows(impurePackages, imported) {
			report(spec, "imports "+imported)
		}
		if impureNames[imported] != nil {
			watched[name] = imported
		}
	}
	for _, group := range f.syntax.Comments {
		for _, comment := range group.List {
			if strings.HasPrefix(comment.Text, "//go:linkname") {
				report(comment, "has a go:linkname")
			}
		}
	}
	ast.Inspect(f.syntax, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.GoStmt:
			report(node, "has a go statement")
		case *ast.CallExpr:
			if method, ok := node.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == "Go" {
				report(node, "calls a method Go, which starts a goroutine")
			}
		case *ast.SelectorExpr:
			if of, ok := node.X.(*ast.Ident); ok && allows(impureNames[watched[of.Name]], node.Sel.Name) {
				report(node, "uses "+watched[of.Name]+"."+node.Sel.Name)
			}
		}
		return true
	})
	return found
}
