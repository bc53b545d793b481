package wiring

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/transport"
)

// Two decode ranks abort the same request of one prefill process. Each is acknowledged by itself: one whose copy still runs keeps neither the other nor the sender's source waiting, and is
// not released before its copy ended.
func TestTwoRanksAbortTheSameRequest(t *testing.T) {
	t.Parallel()
	c := partyConfig()
	wide := c
	wide.ArenaSize = 4 * partyBytes // the sender stages for both at once
	prefill := startParty(t, "prefill", wide, false)
	ranks := []*process{startParty(t, "decode-0", c, false), startParty(t, "decode-1", c, false)}
	sends := []string{"to 0", "to 1"}
	begin := func(seed byte) {
		for i, rank := range ranks {
			token := rank.do(partyCall{Op: "window", Name: "w"}).Token
			rank.do(partyCall{Op: "session", Name: "r", Windows: []string{"w"}})
			prefill.do(partyCall{Op: "send", Name: sends[i], Peer: rank.identity, Token: token, Seed: seed})
		}
		prefill.do(partyCall{Op: "session", Name: "r", Sends: sends})
	}
	verdict := func(p *process) string { return p.do(partyCall{Op: "verdict", Name: "r"}).Verdict }
	released := func(p *process) { p.until("release", func() bool { return verdict(p) == "released" }) }
	for _, rank := range ranks {
		prefill.meets(rank)
		prefill.delivers(rank, 0)
	}

	// In the middle of both: rank 0's copy has ended or not begun, rank 1's runs.
	ranks[1].gate("scatter", true)
	before := ranks[1].counter("scatters_run")
	begin(1)
	ranks[1].until("a copy", func() bool { return ranks[1].counter("scatters_run") > before })
	for _, p := range append(ranks, prefill) {
		p.do(partyCall{Op: "abort", Name: "r"})
		p.do(partyCall{Op: "abort", Name: "r"}) // again changes nothing
	}
	released(ranks[0])
	released(prefill)
	prefill.until("rank 0's answer", func() bool { return prefill.request(sends[0]).Quiesced })
	require.Equal(t, "pending", verdict(ranks[1]), "its copy runs")
	require.False(t, prefill.request(sends[1]).Quiesced)
	prefill.until("the abort", func() bool { return prefill.request(sends[1]).Status == transport.Failed })
	ranks[1].gate("scatter", false)
	released(ranks[1])
	prefill.until("rank 1's answer", func() bool { return prefill.request(sends[1]).Quiesced })

	// Before anything was gathered.
	prefill.gate("gather", true)
	begin(2)
	for _, p := range append(ranks, prefill) {
		p.do(partyCall{Op: "abort", Name: "r"})
	}
	released(ranks[0])
	released(ranks[1])
	require.Equal(t, "pending", verdict(prefill), "its gathers run")
	prefill.gate("gather", false)
	released(prefill)
	for _, name := range sends {
		prefill.until("the answers", func() bool { return prefill.request(name).Quiesced })
		require.Contains(t, prefill.request(name).Failure, "cancelled")
	}

	// The same pages serve the next request, of which nobody aborts.
	begin(3)
	for i, rank := range ranks {
		prefill.until("the end", func() bool { return prefill.request(sends[i]).Quiesced })
		require.Empty(t, prefill.request(sends[i]).Failure)
		rank.do(partyCall{Op: "check", Seed: 3})
		released(rank)
	}
	released(prefill)
	for _, p := range append(ranks, prefill) {
		p.quiet()
	}
	prefill.ends()
	ranks[0].ends()
	ranks[1].ends()
}

// An agent closes with everything in flight: requests both ways, a direct write, a window with a writer, copies that have not ended. Its peer lives and answers, so that closing proves everything.
func TestShutdownWithEverythingInFlight(t *testing.T) {
	t.Parallel()
	c := partyConfig()
	c.ArenaSize = 8 * partyBytes
	closing, peer := startParty(t, "closing", c, true), startParty(t, "peer", c, false)
	closing.meets(peer)
	closing.delivers(peer, 0)
	peer.delivers(closing, 1)

	token := peer.do(partyCall{Op: "window", Name: "w"}).Token
	peer.do(partyCall{Op: "session", Name: "r", Windows: []string{"w"}})
	for _, p := range []*process{closing, peer} {
		p.gate("gather", true)
		p.gate("scatter", true)
	}
	closing.do(partyCall{Op: "send", Name: "in the window", Peer: peer.identity, Token: token, Seed: 2})
	mine, others := []string{"in the window", "a", "b"}, []string{"c", "d"}
	for _, name := range mine[1:] {
		closing.sends(peer, name, 2)
	}
	for _, name := range others {
		peer.sends(closing, name, 3)
	}
	peer.gate("gather", false)
	closing.until("copies", func() bool { return closing.op("stats").Stats.BlocksHeld >= 4 })
	closed := make(chan error, 1)
	go func() {
		_, err := closing.try(partyCall{Op: "close-gated"})
		closed <- err
	}()
	for _, name := range others {
		peer.until("the end of what it sent", func() bool { r := peer.request(name); return r.Status != transport.InProgress && r.Quiesced })
	}
	peer.gate("scatter", false)
	require.NoError(t, <-closed)
	for _, name := range mine {
		r := closing.request(name)
		require.NotEqual(t, transport.InProgress, r.Status, name)
		require.True(t, r.Quiesced, name)
	}
	peer.until("release", func() bool { return peer.do(partyCall{Op: "verdict", Name: "r"}).Verdict == "released" })
	peer.quiet()
	require.NoError(t, closing.wait())
	require.NotContains(t, closing.stderr.String(), "fail-stop")
	peer.ends()
}
