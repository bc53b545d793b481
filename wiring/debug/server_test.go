package debug

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/drain"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is an agent whose reactor answers when the test says so.
type source struct {
	stats agent.Stats
	in    transport.Inspection

	mu     sync.Mutex
	stuck  bool
	asked  []func(transport.Inspection)
	closed bool
}

func (*source) Identity() ports.Identity { return "decode#0000000000000001" }
func (*source) BounceEnabled() bool      { return true }
func (s *source) Stats() agent.Stats     { return s.stats }

func (s *source) ChannelCounters() map[string]uint64 { return map[string]uint64{"full": 5} }

func (s *source) Inspect(done func(transport.Inspection)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return transport.ErrClosing
	}
	s.asked = append(s.asked, done)
	if !s.stuck {
		go s.answer()
	}
	return nil
}

// answer is the reactor's turn.
func (s *source) answer() {
	s.mu.Lock()
	asked := s.asked
	s.asked = nil
	s.mu.Unlock()
	for _, done := range asked {
		done(s.in)
	}
}

func (s *source) questions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

type clock ports.Instant

func (c clock) Now() ports.Instant { return ports.Instant(c) }

const now = clock(1000 * time.Second)

// holding is a source with one dead peer and one that lives.
func holding() *source {
	dead, living := ports.Identity("pre\"fill#00000000000000aa"), ports.Identity("other#00000000000000bb")
	return &source{
		stats: agent.Stats{
			Counters: map[string]uint64{"frames_sent": 7}, Routes: map[string]uint64{"bounce": 3}, BounceRefusal: "too much",
			Unproved: []transport.Unproved{{Peer: dead, Bytes: 4096, Accesses: 1, Since: ports.Instant(now) - ports.Instant(time.Minute), Draining: 9}, {Peer: living, Draining: 2}},
		},
		in: transport.Inspection{
			Free: 1, Granted: 2, Staging: 3, Retained: 4,
			Peers: []transport.PeerView{
				{Peer: living, Added: true, Heard: ports.Instant(now), Requests: 2, Draining: 2, Flows: 1},
				{
					Peer: dead, Heard: ports.Instant(now) - ports.Instant(2*time.Minute), Flows: 3, Since: ports.Instant(now) - ports.Instant(time.Minute), Held: drain.Totals{Blocks: 2, Bytes: 8192, DoubtfulBytes: 4096, Doubts: 1},
				},
			},
			Unproved: []transport.Doubt{
				{Peer: dead, Request: 3, Part: "peer write", Bytes: 4096, Since: 7}, {Peer: dead, Part: "direct transfer", Bytes: 60, Since: 8}, {Peer: dead, Part: "direct transfer", Bytes: 40, Since: 6},
			},
		},
	}
}

func serveIn(t *testing.T, s *source, within time.Duration) *httptest.Server {
	server := httptest.NewServer(handler(&inspector{source: s, clock: now, within: within}))
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return server
}

func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	r, err := http.Get(url)
	require.NoError(t, err)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(b)
}

func TestState(t *testing.T) {
	server := serveIn(t, holding(), time.Minute)
	before := time.Now().Round(time.Microsecond)
	code, body := get(t, server.URL+StatePath)
	after := time.Now().Round(time.Microsecond)
	require.Equal(t, http.StatusOK, code)
	var s State
	d := json.NewDecoder(strings.NewReader(body))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&s), body)
	ago := func(d time.Duration) *time.Time { at := s.Now.Add(-d); return &at }
	require.WithinRange(t, s.Now, before, after)
	require.Equal(t, State{
		Agent: "decode#0000000000000001", Now: s.Now, Bounce: true, ReactorAnswered: true, BounceRefusal: "too much",
		Flows: 4, Arena: Arena{1, 2, 3, 4}, Counters: map[string]uint64{"frames_sent": 7}, Routes: map[string]uint64{"bounce": 3}, Channel: map[string]uint64{"full": 5},
		Unproved: []Unproved{
			{
				Peer: "pre\"fill#00000000000000aa", Name: "pre\"fill", Incarnation: "00000000000000aa", State: "known", Since: ago(time.Minute), SilentSince: ago(2 * time.Minute), ArenaBytes: 4096, Accesses: 1,
				Parts:  []Part{{"region", "peer write", 1, 4096}, {"direct", "direct transfer", 2, 100}},
				Remedy: `fence this peer once its process is known to be dead: FencePeer("pre\"fill", 0x00000000000000aa)`,
			},
			{
				Peer: "other#00000000000000bb", Name: "other", Incarnation: "00000000000000bb", State: "added", SilentSince: ago(0), Draining: 2, Parts: []Part{},
				Remedy: "wait while the peer lives: it has not answered DRAIN; fence it once its process is known to be dead",
			},
		},
		Peers: []Peer{
			{Peer: "other#00000000000000bb", Name: "other", Incarnation: "00000000000000bb", State: "added", SilentSince: ago(0), Requests: 2, Draining: 2, Flows: 1},
			{Peer: "pre\"fill#00000000000000aa", Name: "pre\"fill", Incarnation: "00000000000000aa", State: "known", SilentSince: ago(2 * time.Minute), Flows: 3, HeldBytes: 8192},
		},
	}, s)
	require.Contains(t, body, `"silent_since": "`+s.Peers[1].SilentSince.Format(time.RFC3339Nano)+`"`)
	require.NotContains(t, body, "null,\n      \"arena_bytes\"", "only what never was is null")
}

func TestRemedies(t *testing.T) {
	for want, u := range map[string]Unproved{
		"nothing: the peer is fenced, and the settle delay runs":        {State: "settling", Parts: []Part{{Part: "region"}}},
		"nothing: the peer is fenced, and a copy":                       {State: "fenced", Parts: []Part{{Part: "region"}, {Part: "destination"}}},
		"a copy of this process has not ended: end this process":        {State: "added", Parts: []Part{{Part: "destination"}}},
		"fence this peer once its process is known to be dead: FencePe": {State: "added", Parts: []Part{{Part: "destination"}, {Part: "region"}}},
		"wait while the peer lives":                                     {State: "added", Draining: 1},
	} {
		require.Contains(t, remedy(u), want)
	}
}

func TestMetrics(t *testing.T) {
	server := serveIn(t, holding(), time.Minute)
	code, body := get(t, server.URL+MetricsPath)
	require.Equal(t, http.StatusOK, code, body)
	for _, line := range []string{
		`kvbounce_events_total{event="frames_sent"} 7`, `kvbounce_requests_total{route="bounce"} 3`, `kvbounce_channel_events_total{event="full"} 5`, `kvbounce_arena_bytes{use="retained"} 4`, `kvbounce_flows 4`, `kvbounce_bounce_refused 1`,
		`kvbounce_peers{state="known"} 1`, `kvbounce_peers{state="fenced"} 0`, `kvbounce_reactor_answered 1`, `kvbounce_draining_requests{peer="other#00000000000000bb"} 2`,
		`kvbounce_unproved_bytes{part="region",peer="pre\"fill#00000000000000aa"} 4096`, `kvbounce_unproved_since_timestamp_seconds{peer="pre\"fill#00000000000000aa"} `,
	} {
		require.Contains(t, body, "\n"+line)
	}
}

// A reactor that does not answer keeps nobody waiting for long, collects no questions, and is asked again when it lives.
func TestStuckReactor(t *testing.T) {
	s := holding()
	s.stuck = true
	server := serveIn(t, s, 20*time.Millisecond)
	for range 5 {
		_, body := get(t, server.URL+StatePath)
		var got State
		require.NoError(t, json.Unmarshal([]byte(body), &got))
		require.False(t, got.ReactorAnswered)
		require.Empty(t, got.Peers)
		require.Equal(t, "pre\"fill#00000000000000aa", got.Unproved[0].Peer)
		require.EqualValues(t, 4096, got.Unproved[0].ArenaBytes)
		require.Equal(t, 1, s.questions())
	}
	code, body := get(t, server.URL+MetricsPath)
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "kvbounce_reactor_answered 0")
	require.Contains(t, body, "kvbounce_events_total")
	require.NotContains(t, body, "kvbounce_arena_bytes{")
	s.mu.Lock()
	s.stuck = false
	s.mu.Unlock()
	s.answer()
	living := serveIn(t, s, time.Minute)
	_, body = get(t, living.URL+StatePath)
	require.Contains(t, body, `"reactor_answered": true`)

	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_, body = get(t, living.URL+StatePath)
	require.Contains(t, body, `"reactor_answered": false`, "at once: the agent has ended")
}

func TestRequestsThatAreRefused(t *testing.T) {
	server := serveIn(t, holding(), time.Minute)
	do := func(method, path, host string) int {
		r, err := http.NewRequest(method, server.URL+path, nil)
		require.NoError(t, err)
		r.Host = host
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		response.Body.Close()
		return response.StatusCode
	}
	for _, host := range []string{"localhost", "localhost:9000", "127.0.0.1:80", "[::1]:80", "::1"} {
		require.Equal(t, http.StatusOK, do(http.MethodGet, StatePath, host), host)
	}
	for _, host := range []string{"evil.example", "evil.example:80", "10.0.0.1", "localhost.evil.example"} {
		require.Equal(t, http.StatusForbidden, do(http.MethodGet, StatePath, host), host)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		require.Equal(t, http.StatusMethodNotAllowed, do(method, StatePath, "localhost"), method)
	}
	require.Equal(t, http.StatusForbidden, do(http.MethodGet, "/", "evil.example"))
	require.Equal(t, http.StatusNotFound, do(http.MethodGet, "/debug/", "localhost"))
	require.Equal(t, http.StatusNotFound, do(http.MethodGet, "/debug/pprof/", "localhost"))
}

// Whoever only has the address is told what there is.
func TestRootListsThePaths(t *testing.T) {
	response, err := http.Get(serveIn(t, holding(), time.Minute).URL + "/")
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, "text/plain; charset=utf-8", response.Header.Get("Content-Type"))
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	for _, path := range []string{StatePath, MetricsPath} {
		require.Contains(t, string(text), "\n"+path+"  ")
	}
}

// A client that holds connections open takes no more than the bound, and keeps Close waiting for nothing.
func TestConnectionsAreBounded(t *testing.T) {
	server, err := Serve("127.0.0.1:0", holding(), now, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	var idle []net.Conn
	for range maxConnections {
		conn, err := net.Dial("tcp", server.Address())
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "GET "+StatePath+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
		require.NoError(t, err)
		_, err = io.ReadAtLeast(conn, make([]byte, 12), 12) // it has its slot, and keeps it
		require.NoError(t, err)
		idle = append(idle, conn)
	}
	fetched := make(chan error, 1)
	go func() {
		_, err := Fetch(t.Context(), server.Address())
		fetched <- err
	}()
	select {
	case err := <-fetched:
		require.Fail(t, "one more was let in", err)
	case <-time.After(50 * time.Millisecond):
	}
	idle[3].Close()
	require.NoError(t, <-fetched)
	require.NoError(t, server.Close())
	require.NoError(t, server.Close())
	_, err = Fetch(t.Context(), server.Address())
	require.ErrorContains(t, err, "refused")
	require.NoError(t, (*Server)(nil).Close())
}

// What clients began and never end, closing does not wait for, nor calls an error: a connection without a word, half a request, an answer that nobody reads.
func TestCloseAmongTheSlow(t *testing.T) {
	big := holding()
	for i := range 40_000 {
		big.in.Peers = append(big.in.Peers, transport.PeerView{Peer: ports.Identity(fmt.Sprintf("%s#%016x", strings.Repeat("x", 100), i))})
	}
	server, err := Serve("127.0.0.1:0", big, now, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	for _, begun := range []string{"", "GET " + StatePath + " HTTP/1.1\r\nHost: local", "GET " + StatePath + " HTTP/1.1\r\nHost: localhost\r\n\r\n"} {
		conn, err := net.Dial("tcp", server.Address())
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, begun)
		require.NoError(t, err)
	}
	_, err = Fetch(t.Context(), server.Address())
	require.NoError(t, err, "it came after the others, so that they were let in")
	require.NoError(t, server.Close())
}
