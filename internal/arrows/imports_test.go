package arrows

import (
	"fmt"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// arrow says what the packages of one layer may import. A layer is a folder and all below it; the longest that matches counts.
type arrow struct {
	layer string
	// may lists layers; itself is the importing adapter's own folder.
	may []string
	// mayInTests is allowed to the layer's tests in addition.
	mayInTests []string
	// thirdParty lists modules of others. "*" allows all. Tests may import all.
	thirdParty []string
}

const itself = "itself"

var arrows = []arrow{
	{layer: "cmd", may: []string{"cmd", "wiring", "core", "ports"}, thirdParty: []string{"*"}},
	{layer: "wiring", may: []string{"wiring", "core", "ports", "adapters"}, mayInTests: []string{"ports/porttest", "ports/mocks"}, thirdParty: []string{"*"}},
	{layer: "adapters", may: []string{itself, "ports", "kernels"}, mayInTests: []string{"ports/porttest", "ports/mocks"}, thirdParty: []string{"*"}},
	{layer: "core", may: []string{"core", "ports"}, mayInTests: []string{"ports/mocks"}},
	{layer: "ports", may: []string{"ports"}},
	{layer: "ports/porttest", may: []string{"ports", "ports/porttest"}, thirdParty: []string{"github.com/stretchr/testify", "pgregory.net/rapid", "go.uber.org/goleak", "golang.org/x/sys/unix"}},
	{layer: "ports/mocks", may: []string{"ports"}, thirdParty: []string{"github.com/golang/mock"}},
	{layer: "kernels"},
	{layer: "internal/arrows"},
	{layer: ".", may: []string{"wiring", "core", "ports"}}, // the examples at the root
}

func TestImportArrows(t *testing.T) {
	files, fset := repository(t)
	for _, f := range files {
		if f.syntax != nil {
			for _, broken := range brokenArrows(fset, f) {
				t.Error(broken)
			}
		}
	}
}

func TestImportArrowsCatch(t *testing.T) {
	for _, tc := range []struct{ path, imports, want string }{
		{"cmd/kvbounce/main.go", module + "/adapters/zmq", "cmd may not import adapters"},
		{"cmd/kvbounce/main_test.go", module + "/adapters/zmq", "cmd may not import adapters"},
		{"wiring/host.go", module + "/cmd/kvbounce", "wiring may not import cmd"},
		{"wiring/host.go", module + "/ports/mocks", "wiring may not import ports/mocks"},
		{"adapters/zmq/channel.go", module + "/core/wire", "adapters may not import core"},
		{"adapters/zmq/channel_test.go", module + "/core/wire", "adapters may not import core"},
		{"adapters/zmq/channel.go", module + "/adapters/nixl", "adapters may not import adapters"},
		{"adapters/zmq/channel.go", module + "/adapters/zmq2", "adapters may not import adapters"},
		{"adapters/zmq/channel.go", module + "/wiring", "adapters may not import wiring"},
		{"adapters/zmq/channel.go", module + "/ports/porttest", "adapters may not import ports/porttest"},
		{"core/wire/frame.go", module + "/adapters/sim", "core may not import adapters"},
		{"core/wire/frame_test.go", module + "/adapters/sim", "core may not import adapters"},
		{"core/wire/frame.go", module + "/ports/mocks", "core may not import ports/mocks"},
		{"core/wire/frame.go", "github.com/stretchr/testify/require", "core may not import github.com/stretchr/testify/require"},
		{"core/wire/frame.go", module + "x/ports", "core may not import " + module + "x/ports"},
		{"ports/engine.go", module + "/core/wire", "ports may not import core"},
		{"ports/engine.go", "github.com/golang/mock/gomock", "ports may not import github.com/golang/mock/gomock"},
		{"ports/porttest/engine.go", module + "/adapters/host", "ports/porttest may not import adapters"},
		{"ports/porttest/engine.go", "github.com/pebbe/zmq4", "ports/porttest may not import github.com/pebbe/zmq4"},
		{"example_test.go", module + "/adapters/zmq", ". may not import adapters"},
		{"pkg/util/util.go", "fmt", "pkg/util is in no layer"},
		{"wiring/host.go", module + "/pkg/util", "wiring may not import pkg/util, which is in no layer"},
	} {
		fset := token.NewFileSet()
		broken := brokenArrows(fset, parse(t, fset, tc.path, "package x\nimport _ \""+tc.imports+"\""))
		require.Len(t, broken, 1, "%+v", tc)
		require.Contains(t, broken[0], tc.want)
	}
}

func TestImportArrowsAllow(t *testing.T) {
	for path, imports := range map[string]string{
		"cmd/kvbounce/main.go":             module + "/wiring",
		"cmd/kvbounce/demo.go":             module + "/core/agent",
		"wiring/host.go":                   module + "/adapters/host",
		"wiring/simulation/world.go":       module + "/adapters/sim",
		"adapters/zmq/channel.go":          module + "/ports",
		"adapters/zmq/socket.go":           "github.com/pebbe/zmq4",
		"adapters/zmq/curve/keys.go":       module + "/adapters/zmq/internal/keys",
		"adapters/zmq/channel_test.go":     module + "/ports/porttest",
		"adapters/cuda/launch.go":          module + "/kernels",
		"core/agent/agent.go":              module + "/core/transport",
		"core/agent/agent_test.go":         "github.com/stretchr/testify/require",
		"core/transport/transport_test.go": module + "/ports/mocks",
		"ports/mocks/engine.go":            "github.com/golang/mock/gomock",
		"example_test.go":                  module + "/wiring",
	} {
		fset := token.NewFileSet()
		require.Empty(t, brokenArrows(fset, parse(t, fset, path, "package x\nimport _ \""+imports+"\"")), path)
	}
}

// brokenArrows returns a line for each import of the file that no arrow allows.
func brokenArrows(fset *token.FileSet, f file) (broken []string) {
	from, ok := arrowOf(f.dir())
	if !ok {
		return []string{f.path + ": " + f.dir() + " is in no layer: give it one in the table of arrows"}
	}
	for _, spec := range f.syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			broken = append(broken, f.path+": "+err.Error())
			continue
		}
		if reason := from.forbids(f, imported); reason != "" {
			broken = append(broken, fmt.Sprintf("%s: %s", fset.Position(spec.Pos()), reason))
		}
	}
	return broken
}

// forbids returns why the file may not import the path, or nothing.
func (a arrow) forbids(f file, imported string) string {
	folder, own := strings.CutPrefix(imported, module+"/")
	if imported == module {
		folder, own = ".", true
	}
	if !own {
		if f.isTest() || isStandard(imported) || allows(a.thirdParty, imported) {
			return ""
		}
		return fmt.Sprintf("%s may not import %s", a.layer, imported)
	}
	to, ok := arrowOf(folder)
	if !ok {
		return fmt.Sprintf("%s may not import %s, which is in no layer", a.layer, folder)
	}
	for _, layer := range a.may {
		if layer == to.layer || layer == itself && sameAdapter(f.dir(), folder) {
			return ""
		}
	}
	if f.isTest() && allows(a.mayInTests, to.layer) {
		return ""
	}
	return fmt.Sprintf("%s may not import %s", a.layer, to.layer)
}

// arrowOf finds the arrow of the innermost layer that holds the folder. Only the root itself lies in the layer ".".
func arrowOf(folder string) (found arrow, ok bool) {
	for _, a := range arrows {
		inside := folder == a.layer || a.layer != "." && strings.HasPrefix(folder, a.layer+"/")
		if inside && len(a.layer) > len(found.layer) {
			found, ok = a, true
		}
	}
	return found, ok
}

// sameAdapter reports whether both folders belong to one adapter: adapters/NAME and all below it.
func sameAdapter(a, b string) bool {
	return adapterName(a) != "" && adapterName(a) == adapterName(b)
}

func adapterName(folder string) string {
	rest, ok := strings.CutPrefix(folder, "adapters/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// isStandard: the first element of every other module's path has a dot. "C" counts as standard here; core's own rules forbid it there.
func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

func allows(list []string, name string) bool {
	for _, entry := range list {
		if entry == "*" || entry == name || strings.HasPrefix(name, entry+"/") {
			return true
		}
	}
	return false
}
