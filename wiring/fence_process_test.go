package wiring_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

const (
	fencePages, fencePage = 4096, 4096
	fenceRole             = "KVBOUNCE_TEST_FENCE_ROLE"
	fenceSettleEnv        = "KVBOUNCE_TEST_SETTLE_DELAY"
)

// fenceSettle is the settle delay of tests that fence: short, or what `make settle` asks for.
func fenceSettle() time.Duration {
	if d, err := time.ParseDuration(os.Getenv(fenceSettleEnv)); err == nil {
		return d
	}
	return time.Second
}

func fenceParams(name string) wiring.Params {
	c := testConfig()
	c.SettleDelay, c.CloseDeadline = fenceSettle(), 5*time.Second
	c.RetirementDeadline = c.SettleDelay + 10*time.Second
	c.RequestTimeout = 2 * time.Second
	return wiring.Params{Name: name, Config: c, BounceRequired: true}
}

// fenceNode is one side: an agent, and memory that the other may write.
func fenceNode(t *testing.T, name string) (*wiring.Node, block) {
	n, err := wiring.New(fenceParams(name))
	require.NoError(t, err)
	b := newBlock(t, fencePages*fencePage)
	_, err = n.Register([]ports.Descriptor{{Addr: b.base(), Bytes: fencePages * fencePage}}, agent.Direct)
	require.NoError(t, err)
	return n, b
}

// introduce says in one line how to reach a side.
func introduce(t *testing.T, n *wiring.Node, b block, to io.Writer) {
	d, err := n.Describe()
	require.NoError(t, err)
	_, err = fmt.Fprintf(to, "%x %d\n", d.Append(nil), b.base())
	require.NoError(t, err)
}

// meet reads such a line and adds the peer.
func meet(t *testing.T, n *wiring.Node, from *bufio.Reader) (id ports.Identity, base uint64) {
	var text string
	_, err := fmt.Fscanf(from, "%s %d\n", &text, &base)
	require.NoError(t, err)
	b, err := hex.DecodeString(text)
	require.NoError(t, err)
	d, err := agent.ParseAgentDesc(b)
	require.NoError(t, err)
	report, err := n.AddPeer(d, false)
	require.NoError(t, err)
	require.True(t, report.Bounce, report.Reason)
	return d.Identity, base
}

// flood submits requests to the peer until one can't be.
func flood(n *wiring.Node, b block, to ports.Identity, base uint64, route agent.Route) (handles []*agent.Handle) {
	for range 64 {
		h, err := n.Submit(agent.Request{
			Peer: to, Local: b.pages(fencePages, fencePage, 1), Remote: pagesAt(base), Route: route,
		})
		if err != nil {
			return handles
		}
		handles = append(handles, h)
	}
	return handles
}

// pagesAt are the pages of the other process's memory.
func pagesAt(base uint64) []ports.Descriptor {
	out := make([]ports.Descriptor, fencePages)
	for i := range out {
		out[i] = ports.Descriptor{Addr: base + uint64(i*fencePage), Bytes: fencePage}
	}
	return out
}

// TestFenceOfAKilledProcess kills a peer's process while transfers with it are under way, in each direction and over each path, and fences it: all that it held comes back, and what was sent to it is quiesced.
func TestFenceOfAKilledProcess(t *testing.T) {
	if role := os.Getenv(fenceRole); role != "" {
		n, b := fenceNode(t, "doomed")
		introduce(t, n, b, os.Stdout)
		id, base := meet(t, n, bufio.NewReader(os.Stdin))
		for role == "sender" {
			for _, h := range flood(n, b, id, base, agent.ForceBounce) {
				_ = h.Wait(context.Background())
			}
		}
		select {}
	}
	for role, route := range map[string]agent.Route{"sender": agent.ForceBounce, "receiver": agent.ForceBounce, "direct receiver": agent.ForceDirect} {
		t.Run(role, func(t *testing.T) {
			t.Parallel() // they mostly wait
			n, b := fenceNode(t, "living")
			c := exec.Command(os.Args[0], "-test.run=^TestFenceOfAKilledProcess$")
			c.Env = append(os.Environ(), fenceRole+"="+role)
			c.Stderr = os.Stderr
			in, err := c.StdinPipe()
			require.NoError(t, err)
			out, err := c.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, c.Start())
			t.Cleanup(func() { _ = c.Process.Kill() })
			id, base := meet(t, n, bufio.NewReader(out))
			introduce(t, n, b, in)
			var handles []*agent.Handle
			if role == "sender" {
				require.Eventually(t, func() bool { return n.Stats().BytesHeld > 0 }, 20*time.Second, time.Millisecond)
			} else {
				handles = flood(n, b, id, base, route)
				require.NotEmpty(t, handles)
			}
			time.Sleep(20 * time.Millisecond)
			require.NoError(t, c.Process.Kill())
			_ = c.Wait() // reaped: it can no longer run
			// Twice the delay: turns that come late on a busy machine do not count for it.
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second+2*fenceSettle())
			defer cancel()
			report, err := n.FencePeer(ctx, id.Name(), id.Incarnation())
			require.NoError(t, err)
			t.Logf("%+v", report)
			for _, h := range handles {
				require.NoError(t, h.WaitQuiesced(ctx))
				require.NotEqual(t, transport.InProgress, h.Status())
			}
			require.Eventually(t, func() bool {
				s := n.Stats()
				return s.BytesHeld == 0 && s.BytesRetained == 0 && len(s.Unproved) == 0 && s.BounceRefusal == ""
			}, 20*time.Second, time.Millisecond)
			require.NoError(t, n.Close())
		})
	}
}
