package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/wiring/debug"
)

// A sending process is killed while it holds a grant of a receiving one: doctor --attach says whom to fence.
func TestDoctorAttach(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("KVBOUNCE_REQUEST_TIMEOUT", "3s")
	t.Setenv("KVBOUNCE_RECEIVER_LEASE", "3500ms")
	t.Setenv("KVBOUNCE_CLOSE_DEADLINE", "1s")
	t.Setenv("KVBOUNCE_DEBUG_LISTEN", "unix:"+folder+"/{pid}.sock")
	q := &pausedPair{t: t, sender: open(t, "sender"), receiver: open(t, "receiver")}
	t.Cleanup(func() { _ = q.sender.kill(); _ = q.receiver.kill() })
	q.sender.meet(t, q.receiver)
	q.sender.transfer(t, q.receiver, "bounce", 1)
	address := fmt.Sprintf("unix:%s/%d.sock", folder, q.receiver.cmd.Process.Pid)
	attach := func() (human string, s debug.State) {
		code, out, errs := feed("", "doctor", "--attach", address)
		require.Equal(t, exitOK, code, errs)
		require.Empty(t, errs)
		code, object, errs := feed("", "doctor", "--json", "--attach", address)
		require.Equal(t, exitOK, code, errs)
		d := json.NewDecoder(strings.NewReader(object))
		d.DisallowUnknownFields()
		require.NoError(t, d.Decode(&s))
		require.Equal(t, 1, strings.Count(object, "\n"))
		return out, s
	}
	human, s := attach()
	require.Contains(t, human, "agent receiver#")
	require.Contains(t, human, "Nothing is in doubt.")
	require.Contains(t, human, "sender ")
	require.Empty(t, s.Unproved)

	// The receiver grants what the sender asked for before it was stopped; the sender never goes on.
	q.receiver.pause(t)
	sent := q.sender.stats(t).Counters["frames_sent"]
	q.start("bounce", 2)
	require.Eventually(t, func() bool { return q.sender.stats(t).Counters["frames_sent"] > sent }, 20*time.Second, time.Millisecond)
	q.sender.pause(t)
	q.receiver.resume(t)
	require.Eventually(t, func() bool { return q.receiver.stats(t).BytesHeld > 0 }, 20*time.Second, time.Millisecond)
	require.NoError(t, q.sender.kill())
	require.Eventually(t, func() bool {
		human, s = attach()
		return len(s.Unproved) == 1 && strings.Contains(human, "IN DOUBT") // they were asked for one after the other
	}, 20*time.Second, 10*time.Millisecond)
	require.Contains(t, human, "IN DOUBT: peer sender, incarnation "+s.Unproved[0].Incarnation)
	require.Contains(t, human, "region: ")
	require.Contains(t, human, "do          fence this peer once its process is known to be dead:")
	require.Contains(t, human, `FencePeer("sender", 0x`+s.Unproved[0].Incarnation+")")
	require.Equal(t, q.sender.Identity, s.Unproved[0].Peer)
	require.Positive(t, s.Arena.Retained)

	// A process that is gone, whose socket file is still there.
	require.NoError(t, q.receiver.kill())
	require.FileExists(t, strings.TrimPrefix(address, "unix:"))
	code, out, errs := feed("", "doctor", "--attach", address)
	require.Equal(t, exitFailed, code)
	require.Empty(t, out)
	require.Regexp(t, `^kvbounce: --attach unix:\S+: .*connection refused; is an agent with KVBOUNCE_DEBUG_LISTEN running there\?\n$`, errs)
}

func TestDoctorAttachRefuses(t *testing.T) {
	for _, address := range []string{"", "unix:", "/run/x.sock", "127.0.0.1", "127.0.0.1:"} {
		code, out, errs := feed("", "doctor", "--attach", address)
		require.Equal(t, exitUsage, code, address)
		require.Empty(t, out)
		require.Equal(t, fmt.Sprintf("kvbounce: --attach: %q is neither unix:PATH nor HOST:PORT\n", address), errs)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := l.Addr().String()
	require.NoError(t, l.Close())
	for _, address := range []string{nobody, "unix:" + filepath.Join(t.TempDir(), "nothing.sock")} {
		code, out, _ := feed("", "doctor", "--json", "--attach", address)
		require.Equal(t, exitFailed, code)
		require.Equal(t, 1, strings.Count(out, "\n"))
		require.Contains(t, out, `{"error":{"field":"attach","message":"--attach `+address+`: `)
	}
	// Something else that listens there.
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	code, _, errs := feed("", "doctor", "--attach", "unix:"+path)
	require.Equal(t, exitFailed, code)
	require.Equal(t, 1, strings.Count(errs, "\n"))
}

func TestPrintState(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ago time.Duration) *time.Time { t := now.Add(-ago); return &t }
	state := debug.State{
		Agent: "decode#0000000000000001", Now: now, Bounce: true, ReactorAnswered: true, Flows: 2, BounceRefusal: "1 byte of \x1b[2Jevil",
		Arena: debug.Arena{Free: 100 << 20, Granted: 8 << 20, Staging: 512 << 10, Retained: 8 << 20},
		Unproved: []debug.Unproved{
			{
				Name: "prefill", Incarnation: "00000000000000aa", State: "known", Since: at(90 * time.Second), SilentSince: at(2 * time.Minute), ArenaBytes: 8 << 20,
				Parts: []debug.Part{{Part: "region", Access: "peer write", Accesses: 2, Bytes: 8 << 20}}, Remedy: "fence it",
			},
			{Name: "late", Incarnation: "00000000000000bb", Draining: 3, Remedy: "wait"},
		},
		Peers: []debug.Peer{{Name: "prefill", Incarnation: "00000000000000aa", State: "known", SilentSince: at(2 * time.Minute), Flows: 2, HeldBytes: 8 << 20}},
	}
	var out strings.Builder
	printState(&out, state)
	require.Equal(t, `agent decode#0000000000000001
arena: 100 MiB free, 8 MiB granted to peers, 512 KiB staging; 8 MiB of these kept in doubt. Flows of peers: 2
NO BOUNCE REQUEST IS TAKEN: 1 byte of ?[2Jevil

IN DOUBT: peer prefill, incarnation 00000000000000aa (known)
  since       2026-01-02T03:02:35Z, 1m30s ago
  last heard  2026-01-02T03:02:05Z, 2m0s ago
  what        region: 8 MiB (2, peer write)
  do          fence it

WAITED FOR: peer late, incarnation 00000000000000bb
  since       its requests drain
  last heard  never
  what        failed requests that it has not answered DRAIN for, or that have no evidence yet: 3
  do          wait

PEER      INCARNATION        STATE   LAST HEARD   REQUESTS   DRAINING   FLOWS   HELD
prefill   00000000000000aa   known   2m0s ago     0          0          2       8 MiB
`, out.String())

	out.Reset()
	printState(&out, debug.State{Agent: "x#0000000000000001", Now: now, Unproved: []debug.Unproved{{Name: "y", Incarnation: "00000000000000cc", Since: at(time.Second), ArenaBytes: 100, Accesses: 1, Remedy: "fence it"}}})
	require.Contains(t, out.String(), "its reactor did not answer in time")
	require.Contains(t, out.String(), "bounce is off")
	require.Contains(t, out.String(), "what        100 B of the arena; accesses that failed: 1")
}

// Whoever listens at the address makes up every word: none of them moves the cursor, turns the text around or makes a line of its own.
func TestPrintStateOfALiar(t *testing.T) {
	const evil = "\x1b]0;x\a\x1b[2J\u202e\u2028\u009b\t\x7f\nIN DOUBT: nobody"
	honest, lying := debug.State{}, debug.State{}
	for text, s := range map[string]*debug.State{"word": &honest, evil: &lying} {
		*s = debug.State{
			Agent: text, ReactorAnswered: true, BounceRefusal: text,
			Unproved: []debug.Unproved{{Name: text, Incarnation: text, State: text, Remedy: text, Parts: []debug.Part{{Part: text, Access: text}}}},
			Peers:    []debug.Peer{{Name: text, Incarnation: text, State: text}},
		}
	}
	var want, got strings.Builder
	printState(&want, honest)
	printState(&got, lying)
	require.Equal(t, strings.Count(want.String(), "\n"), strings.Count(got.String(), "\n"))
	for _, r := range got.String() {
		require.True(t, r == '\n' || unicode.IsPrint(r), "%q in %s", r, got.String())
	}
}

// A failure's words may be another machine's too; in JSON they are escaped and stay what they are.
func TestErrorsArePlain(t *testing.T) {
	const evil = "\x1b[2J\u202e\nkvbounce: all is well"
	for _, asJSON := range []bool{false, true} {
		var out, errs strings.Builder
		newApp(streams{out: &out, err: &errs}).fail(&fieldError{"peer", errors.New(evil)}, asJSON)
		if asJSON {
			_, message := failure(t, out.String())
			require.Equal(t, strings.ReplaceAll(evil, "\n", "; "), message)
		} else {
			require.Equal(t, "kvbounce: ?[2J?; kvbounce: all is well\n", errs.String())
		}
	}
}
