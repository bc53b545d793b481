package arrows

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"testing"

	"github.com/stretchr/testify/require"
)

// A package variable of core is an error value or a table: it has an initial value, is nothing of sync, and nobody writes to it.

func TestCoreHasNoGlobalState(t *testing.T) {
	files, fset := repository(t)
	packages := map[string][]*ast.File{}
	for _, f := range files {
		if f.syntax != nil && f.inLayer("core") && !f.isTest() {
			packages[f.dir()] = append(packages[f.dir()], f.syntax)
		}
	}
	require.NotEmpty(t, packages)
	for _, syntax := range packages {
		for _, state := range globalState(fset, syntax) {
			t.Error(state)
		}
	}
}

func TestCoreHasNoGlobalStateCatches(t *testing.T) {
	for source, want := range map[string]string{
		`var n int`:                                                      "n has no initial value",
		`var n, m = 1, 2; func f() { m++ }`:                              "m is written",
		`var n = 1; func f() { n = 2 }`:                                  "n is written",
		`var n = 1; func f() { n += 2 }`:                                 "n is written",
		`var n = 1; func f() *int { return &n }`:                         "n has its address taken",
		`var t = [2]int{}; func f() { t[1] = 2 }`:                        "t is written",
		`var t = []int{1}; func f() []int { return t[:0] }`:              "",
		`var t = [2]int{}; func f() []int { return t[:] }`:               "t has its address taken",
		`var m = map[int]int{}; func f() { (m)[1]++ }`:                   "m is written",
		`var m = map[int]int{}; func f() { delete(m, 1) }`:               "m is written",
		`var m = map[int]int{}; func f() { clear(m) }`:                   "m is written",
		`var t = []int{1}; func f() { copy(t, t) }`:                      "t is written",
		`var p = &struct{ n int }{}; func f() { p.n = 1 }`:               "p is written",
		`var p = new(int); func f() { *p = 1 }`:                          "p is written",
		`var n = 1; func f() { for n = range 3 {} }`:                     "n is written",
		`import "sync"; var p = sync.Pool{}`:                             "p holds sync.Pool",
		`import "sync"; var p = &sync.Pool{}`:                            "p holds sync.Pool",
		`import "sync/atomic"; var n = atomic.Int64{}`:                   "n holds atomic.Int64",
		`import "errors"; var ErrX = errors.New("x")`:                    "",
		`var t = [...]string{"a"}; func f(i int) string { return t[i] }`: "",
		`var _ interface{} = 1`:                                          "",
		`var _ int`:                                                      "",
		`var n = 1; func f() { n := 2; n++; _ = n }`:                     "",
		`type s struct{ n int }; var n = 1; func (s *s) f() { s.n = n }`: "",
		`func f() { var n int; n++; p := &n; _ = p }`:                    "",
	} {
		fset := token.NewFileSet()
		found := globalState(fset, []*ast.File{parse(t, fset, "core/x/x.go", "package x\n"+source).syntax})
		if want == "" {
			require.Empty(t, found, source)
			continue
		}
		require.Len(t, found, 1, source)
		require.Contains(t, found[0], want, source)
	}
}

// A variable declared in one file and written in another is caught.
func TestGlobalStateIsFoundAcrossFiles(t *testing.T) {
	fset := token.NewFileSet()
	found := globalState(fset, []*ast.File{
		parse(t, fset, "core/x/a.go", "package x\nvar n = 1").syntax,
		parse(t, fset, "core/x/b.go", "package x\nfunc f() { n = 2 }").syntax,
	})
	require.Len(t, found, 1)
	require.Contains(t, found[0], "core/x/b.go")
}

// globalState returns a line for each package variable that can change, found in the files of one package.
func globalState(fset *token.FileSet, files []*ast.File) (found []string) {
	report := func(node ast.Node, what string, arguments ...any) {
		found = append(found, fmt.Sprintf("%s: core has global state: %s", fset.Position(node.Pos()), fmt.Sprintf(what, arguments...)))
	}
	// Imports are not loaded, so the check is full of errors about them; names of the package itself are resolved all the same.
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	checker := types.Config{Error: func(error) {}, Importer: noImports{}}
	checked, _ := checker.Check("x", fset, files, info)

	isGlobal := func(e ast.Expr) (name string, ok bool) {
		id := rootOf(e)
		if id == nil {
			return "", false
		}
		v, ok := info.Uses[id].(*types.Var)
		return id.Name, ok && v.Parent() == checked.Scope()
	}
	written := func(node ast.Node, targets ...ast.Expr) {
		for _, target := range targets {
			if name, ok := isGlobal(target); ok {
				report(node, "%s is written", name)
			}
		}
	}
	for _, f := range files {
		for _, declaration := range f.Decls {
			if general, ok := declaration.(*ast.GenDecl); ok && general.Tok == token.VAR {
				for _, spec := range general.Specs {
					declared(spec.(*ast.ValueSpec), report)
				}
			}
		}
		ast.Inspect(f, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.AssignStmt:
				if node.Tok != token.DEFINE {
					written(node, node.Lhs...)
				}
			case *ast.IncDecStmt:
				written(node, node.X)
			case *ast.RangeStmt:
				if node.Tok == token.ASSIGN {
					written(node, node.Key, node.Value)
				}
			case *ast.CallExpr:
				if builtin, ok := node.Fun.(*ast.Ident); ok && len(node.Args) > 0 && allows([]string{"delete", "clear", "copy"}, builtin.Name) {
					written(node, node.Args[0])
				}
			case *ast.UnaryExpr:
				if name, ok := isGlobal(node.X); ok && node.Op == token.AND {
					report(node, "%s has its address taken", name)
				}
			case *ast.SliceExpr:
				if name, ok := isGlobal(node.X); ok && isArray(info.Types[node.X].Type) {
					report(node, "%s has its address taken", name)
				}
			}
			return true
		})
	}
	return found
}

// declared checks the declaration of package variables by itself.
func declared(spec *ast.ValueSpec, report func(ast.Node, string, ...any)) {
	for i, name := range spec.Names {
		if name.Name == "_" {
			continue
		}
		if len(spec.Values) == 0 {
			report(name, "%s has no initial value", name.Name)
			continue
		}
		if held := synchronizer(spec.Values[min(i, len(spec.Values)-1)]); held != "" {
			report(name, "%s holds %s", name.Name, held)
		}
	}
}

// synchronizer names the type of a composite literal of package sync or atomic: such a variable changes through its methods.
func synchronizer(e ast.Expr) string {
	if address, ok := e.(*ast.UnaryExpr); ok {
		e = address.X
	}
	literal, ok := e.(*ast.CompositeLit)
	if !ok {
		return ""
	}
	if of, ok := literal.Type.(*ast.SelectorExpr); ok {
		if pkg, ok := of.X.(*ast.Ident); ok && (pkg.Name == "sync" || pkg.Name == "atomic") {
			return pkg.Name + "." + of.Sel.Name
		}
	}
	return ""
}

// rootOf finds the variable that an expression writes into: x in x.a[i].b, (*x) and the like.
func rootOf(e ast.Expr) *ast.Ident {
	for {
		switch of := e.(type) {
		case *ast.Ident:
			return of
		case *ast.ParenExpr:
			e = of.X
		case *ast.SelectorExpr:
			e = of.X
		case *ast.IndexExpr:
			e = of.X
		case *ast.SliceExpr:
			e = of.X
		case *ast.StarExpr:
			e = of.X
		default:
			return nil
		}
	}
}

func isArray(t types.Type) bool {
	if t == nil {
		return false
	}
	_, ok := t.Underlying().(*types.Array)
	return ok
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not loaded") }
