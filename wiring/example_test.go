package wiring_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

// send is half of the README's example: it moves memory of this process, cut as local says, into the peer's, cut as remote says.
func send(ctx context.Context, cfg config.Config, description []byte, local, remote []ports.Descriptor) error {
	cfg.Enable = true
	node, err := wiring.New(wiring.Params{Name: "prefill", Config: cfg})
	if err != nil {
		return err
	}
	defer node.Close()
	peer, err := agent.ParseAgentDesc(description)
	if err != nil {
		return err
	}
	if _, err := node.AddPeer(peer, false); err != nil {
		return err
	}
	h, err := node.Submit(agent.Request{Peer: peer.Identity, Local: local, Remote: remote})
	if err != nil {
		return err
	}
	return h.Wait(ctx) // nil: every byte is in place. WaitSourceReleased tells earlier when the source may be reused
}

// receive is the other half: it makes memory known that peers may write by bounce, and describes the agent for them.
func receive(cfg config.Config, memory []ports.Descriptor) (node *wiring.Node, description []byte, err error) {
	cfg.Enable = true
	if node, err = wiring.New(wiring.Params{Name: "decode", Config: cfg}); err != nil {
		return nil, nil, err
	}
	if _, err = node.Register(memory, agent.BounceOnly); err != nil {
		return nil, nil, err
	}
	desc, err := node.Describe()
	return node, desc.Append(nil), err
}

// TestReadmeExample runs the README's example over NIXL, and holds the README's text against it.
func TestReadmeExample(t *testing.T) {
	cfg := testConfig()
	cfg.MinDescriptorCount = 2
	src, dst := newBlock(t, 1<<20), newBlock(t, 1<<20)
	receiver, description, err := receive(cfg, []ports.Descriptor{{Addr: dst.base(), Bytes: 1 << 20}})
	require.NoError(t, err)
	defer func() { require.NoError(t, receiver.Close()) }()

	page := func(b block, n uint64) ports.Descriptor {
		return ports.Descriptor{Addr: b.base() + 4096*n, Bytes: 4096}
	}
	copy(src.bytes[4096:], "KV cache")
	copy(src.bytes[5*4096:], "of layer 5")
	require.NoError(t, send(context.Background(), cfg, description, []ports.Descriptor{page(src, 1), page(src, 5)}, []ports.Descriptor{page(dst, 7), page(dst, 2)}))
	require.Equal(t, "KV cache", string(dst.bytes[7*4096:][:8]))
	require.Equal(t, "of layer 5", string(dst.bytes[2*4096:][:10]))

	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	require.NotRegexp(t, "@[A-Z]+@", string(readme), "a placeholder")
	for _, name := range []string{"send", "receive"} {
		_, rest, _ := strings.Cut(string(source), "\nfunc "+name+"(")
		body, _, _ := strings.Cut(rest, "\n}\n")
		require.Less(t, strings.Count(body, "\n"), 20)
		require.Contains(t, string(readme), "func "+name+"("+body+"\n}\n")
	}
}
