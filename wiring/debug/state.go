package debug

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
)

// State is what an agent holds, as /debug/kvbounce shows it. Times are RFC 3339, sizes bytes.
type State struct {
	Agent  string    `json:"agent"`
	Now    time.Time `json:"now"`
	Bounce bool      `json:"bounce"` // the bounce path started

	// ReactorAnswered is false when the agent's reactor did not look within its time: then peers, arena and the parts of what is unproved are missing, and the rest is as of its last turn.
	ReactorAnswered bool `json:"reactor_answered"`

	Unproved      []Unproved `json:"unproved"`       // what nothing proves to have ended, peer by peer: whom to fence
	BounceRefusal string     `json:"bounce_refusal"` // why no bounce request is taken now, or ""

	Peers    []Peer            `json:"peers"`
	Flows    int               `json:"flows"` // of all peers, open or closed and waiting
	Arena    Arena             `json:"arena"`
	Counters map[string]uint64 `json:"counters"`
	Routes   map[string]uint64 `json:"routes"`  // requests by why they took their path
	Channel  map[string]uint64 `json:"channel"` // of the control channel, by the names in its package's stats.go; empty where it counts nothing or there is none
}

// Unproved is what is in doubt because of one peer incarnation.
type Unproved struct {
	Peer        string     `json:"peer"`
	Name        string     `json:"name"`
	Incarnation string     `json:"incarnation"` // 16 hexadecimal digits
	State       string     `json:"state"`       // as of a Peer
	Since       *time.Time `json:"since"`       // when the first of it came to be in doubt; null when only answers to DRAIN are missing
	SilentSince *time.Time `json:"silent_since"`
	ArenaBytes  uint64     `json:"arena_bytes"` // retained
	Accesses    int        `json:"accesses"`    // that failed without evidence
	Draining    int        `json:"draining_requests"`
	Parts       []Part     `json:"parts"`
	Remedy      string     `json:"remedy"`
}

// Part is one kind of memory in doubt.
type Part struct {
	Part     string `json:"part"`   // staging, region, source, destination, direct
	Access   string `json:"access"` // what may still touch it
	Accesses int    `json:"accesses"`
	Bytes    uint64 `json:"part_bytes"`
}

// Peer is one peer incarnation.
type Peer struct {
	Peer        string     `json:"peer"`
	Name        string     `json:"name"`
	Incarnation string     `json:"incarnation"`
	State       string     `json:"state"`        // added, known (by its frames alone, or removed), superseded, settling, fenced
	SilentSince *time.Time `json:"silent_since"` // when its last frame came; null: never
	Requests    int        `json:"requests"`     // to it, that are tracked
	Draining    int        `json:"draining_requests"`
	Flows       int        `json:"flows"` // of it
	HeldBytes   uint64     `json:"held_bytes"`
}

// Arena is where the arena's bytes are, in whole granules. Retained bytes are among the granted and the staging.
type Arena struct {
	Free     uint64 `json:"free_bytes"`
	Granted  uint64 `json:"granted_bytes"`
	Staging  uint64 `json:"staging_bytes"`
	Retained uint64 `json:"retained_bytes"`
}

// parts are the accesses, in the order in which they are shown, and their memory in an operator's words.
var parts = [...]struct {
	access drain.Access
	name   string
}{{drain.PeerWrite, "region"}, {drain.Write, "staging"}, {drain.Direct, "direct"}, {drain.Gather, "source"}, {drain.Scatter, "destination"}}

// clockAt makes wall-clock times of instants.
type clockAt struct {
	now     time.Time
	instant ports.Instant
}

// at is nil for the instant 0, which stands for never.
func (c clockAt) at(i ports.Instant) *time.Time {
	if i == 0 {
		return nil
	}
	t := c.now.Add(i.Sub(c.instant)).UTC().Round(time.Microsecond)
	return &t
}

// newState puts together what the agent says. in is nil when the reactor did not answer.
func newState(id ports.Identity, bounce bool, s agent.Stats, in *transport.Inspection, clock clockAt) State {
	state := State{
		Agent: string(id), Now: clock.now.UTC().Round(time.Microsecond), Bounce: bounce, ReactorAnswered: in != nil, BounceRefusal: s.BounceRefusal, Counters: s.Counters, Routes: s.Routes,
		Unproved: []Unproved{}, Peers: []Peer{},
	}
	if in != nil {
		state.Arena = Arena{in.Free, in.Granted, in.Staging, in.Retained}
		open := map[ports.Identity][]transport.Doubt{}
		for _, d := range in.Unproved {
			open[d.Peer] = append(open[d.Peer], d)
		}
		for _, v := range in.Peers {
			state.Peers = append(state.Peers, newPeer(v, clock))
			state.Flows += v.Flows
			if u := unprovedOf(v, open[v.Peer]); u != (transport.Unproved{Peer: v.Peer}) {
				state.Unproved = append(state.Unproved, newUnproved(u, v, open[v.Peer], clock))
			}
		}
	} else { // a moment older, and coarser
		for _, u := range s.Unproved {
			state.Unproved = append(state.Unproved, newUnproved(u, transport.PeerView{}, nil, clock))
		}
	}
	// What is oldest comes first: it is the likeliest to be of a process that is gone.
	slices.SortStableFunc(state.Unproved, func(a, b Unproved) int {
		if a.Since == nil || b.Since == nil {
			return cmp.Compare(b2i(a.Since == nil), b2i(b.Since == nil))
		}
		return a.Since.Compare(*b.Since)
	})
	return state
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// unprovedOf sums up what is in doubt because of a peer. Without a failed access it began with the oldest access that is open.
func unprovedOf(v transport.PeerView, open []transport.Doubt) transport.Unproved {
	u := transport.Unproved{Peer: v.Peer, Bytes: v.Held.DoubtfulBytes, Accesses: v.Held.Doubts, Draining: v.Draining}
	if u.Bytes > 0 || u.Accesses > 0 {
		u.Since = v.Since
		return u
	}
	for i, d := range open {
		if i == 0 || d.Since < u.Since {
			u.Since = d.Since
		}
	}
	return u
}

// peerState is the state in one word.
func peerState(v transport.PeerView) string {
	switch {
	case v.Settling:
		return "settling"
	case v.Fenced:
		return "fenced"
	case v.Superseded:
		return "superseded"
	case v.Added:
		return "added"
	}
	return "known"
}

func newPeer(v transport.PeerView, clock clockAt) Peer {
	return Peer{
		Peer: string(v.Peer), Name: v.Peer.Name(), Incarnation: incarnation(v.Peer), State: peerState(v), SilentSince: clock.at(v.Heard),
		Requests: v.Requests, Draining: v.Draining, Flows: v.Flows, HeldBytes: v.Held.Bytes,
	}
}

func incarnation(id ports.Identity) string { return fmt.Sprintf("%016x", id.Incarnation()) }

// newUnproved shows what is in doubt because of a peer. v is empty when the reactor did not answer.
func newUnproved(doubt transport.Unproved, v transport.PeerView, open []transport.Doubt, clock clockAt) Unproved {
	u := Unproved{
		Peer: string(doubt.Peer), Name: doubt.Peer.Name(), Incarnation: incarnation(doubt.Peer), Since: clock.at(doubt.Since), SilentSince: clock.at(v.Heard),
		ArenaBytes: doubt.Bytes, Accesses: doubt.Accesses, Draining: doubt.Draining, Parts: []Part{},
	}
	if v.Peer != "" {
		u.State = peerState(v)
	}
	for _, p := range parts {
		part := Part{Part: p.name, Access: p.access.String()}
		for _, d := range open {
			if d.Part == part.Access {
				part.Accesses++
				part.Bytes += d.Bytes
			}
		}
		if part.Accesses > 0 {
			u.Parts = append(u.Parts, part)
		}
	}
	u.Remedy = remedy(u)
	return u
}

// remedy is what an operator can do about it.
func remedy(u Unproved) string {
	copies := len(u.Parts) > 0
	for _, p := range u.Parts {
		copies = copies && (p.Part == "source" || p.Part == "destination")
	}
	switch {
	case u.State == "settling":
		return "nothing: the peer is fenced, and the settle delay runs"
	case copies:
		return "a copy of this process has not ended: end this process if it does not"
	case u.State == "fenced":
		return "nothing: the peer is fenced, and a copy of this process has not ended"
	case len(u.Parts) == 0 && u.ArenaBytes == 0 && u.Accesses == 0:
		return "wait while the peer lives: it has not answered DRAIN; fence it once its process is known to be dead"
	}
	return fmt.Sprintf("fence this peer once its process is known to be dead: FencePeer(%q, 0x%s)", u.Name, u.Incarnation)
}
