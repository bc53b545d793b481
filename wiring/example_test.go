package wiring_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

// start makes an agent; cfg is config.Default(), or what wiring.ReadSettings read.
func start(name string, cfg config.Config) (*wiring.Node, error) {
	cfg.Enable = true // bounce is off by default
	return wiring.New(wiring.Params{Name: name, Config: cfg})
}

// receive makes a pool of equal pages known and opens a window over some of them. The sender needs the description, w.Token() and the pages' addresses.
func receive(decode *wiring.Node, pool ports.Descriptor, page uint32, pages []uint32) (description []byte, w *agent.Window, err error) {
	if _, err := decode.Register([]ports.Descriptor{pool}, agent.BounceOnly); err != nil { // once
		return nil, nil, err
	}
	desc, err := decode.Describe()
	if err != nil {
		return nil, nil, err
	}
	run := ports.Run{Addr: pool.Addr, Stride: int64(page), Piece: page, Pieces: uint32(len(pages)), Table: 0} // from Index[0] on
	w, err = decode.OpenReceive(ports.Runs{Runs: []ports.Run{run}, Index: pages}, nil)
	return desc.Append(nil), w, err
}

// send moves local memory, which need not be registered, into the peer's. The two lists hold the same bytes in the same order and may be cut differently.
func send(ctx context.Context, prefill *wiring.Node, description []byte, token uint64, local, remote []ports.Descriptor) error {
	peer, err := agent.ParseAgentDesc(description)
	if err != nil {
		return err
	}
	if _, err := prefill.AddPeer(peer, false); err != nil { // once
		return err
	}
	h, err := prefill.Submit(agent.Request{Peer: peer.Identity, Local: local, Remote: remote, Token: token})
	if err != nil {
		return err
	}
	return h.Wait(ctx) // nil: every byte is in place
}

// TestReadmeExample runs the README's example over NIXL, and holds the README's text against it.
func TestReadmeExample(t *testing.T) {
	src, dst := newBlock(t, 1<<20), newBlock(t, 1<<20)
	decode, err := start("decode", testConfig())
	require.NoError(t, err)
	defer func() { require.NoError(t, decode.Close()) }()
	prefill, err := start("prefill", testConfig())
	require.NoError(t, err)
	defer func() { require.NoError(t, prefill.Close()) }()
	description, window, err := receive(decode, ports.Descriptor{Addr: dst.base(), Bytes: 1 << 20}, 4096, []uint32{7, 2})
	require.NoError(t, err)

	page := func(b block, n uint64) ports.Descriptor {
		return ports.Descriptor{Addr: b.base() + 4096*n, Bytes: 4096}
	}
	copy(src.bytes[4096:], "KV cache")
	copy(src.bytes[5*4096:], "of layer 5")
	local, remote := []ports.Descriptor{page(src, 1), page(src, 5)}, []ports.Descriptor{page(dst, 7), page(dst, 2)}
	require.NoError(t, send(context.Background(), prefill, description, window.Token(), local, remote))
	require.Equal(t, "KV cache", string(dst.bytes[7*4096:][:8]))
	require.Equal(t, "of layer 5", string(dst.bytes[2*4096:][:10]))
	require.EqualValues(t, 1, prefill.BounceSubmits())
	window.Close()
	require.NoError(t, window.WaitQuiesced(context.Background()))

	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, shown, _ := strings.Cut(string(readme), "\n```go\n")
	shown, _, _ = strings.Cut(shown, "```\n")
	for _, name := range []string{"start", "receive", "send"} {
		_, rest, _ := strings.Cut(string(source), "\nfunc "+name+"(")
		body, _, _ := strings.Cut(rest, "\n}\n")
		require.Less(t, strings.Count(body, "\n"), 20)
		require.Contains(t, shown, "func "+name+"("+body+"\n}\n")
	}
	require.Equal(t, usedPackages(t, shown), importedPackages(t, shown), "the imports that it shows and the packages that it uses")
}

// usedPackages are the names that Go code without its package line qualifies others with and does not declare.
func usedPackages(t *testing.T, code string) map[string]bool {
	used := map[string]bool{}
	file := parse(t, code)
	free := map[*ast.Ident]bool{}
	for _, id := range file.Unresolved {
		free[id] = true
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := s.X.(*ast.Ident); ok && free[id] {
				used[id.Name] = true
			}
		}
		return true
	})
	return used
}

func importedPackages(t *testing.T, code string) map[string]bool {
	imported := map[string]bool{}
	for _, spec := range parse(t, code).Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		imported[path.Base(name)] = true
	}
	return imported
}

func parse(t *testing.T, code string) *ast.File {
	file, err := parser.ParseFile(token.NewFileSet(), "README.md", "package readme\n"+code, 0)
	require.NoError(t, err)
	return file
}
