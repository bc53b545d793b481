package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/kvbounce/kvbounce/wiring/debug"
)

// attach shows what a running agent holds.
func (a *app) attach(ctx context.Context, address string) error {
	if err := debug.CheckAddress(address); err != nil {
		return badUsage("attach", "--attach: %w", err)
	}
	if !strings.HasPrefix(address, "unix:") && !isHostPort(address) {
		return badUsage("attach", "--attach is %q, want a port from 1 to 65535 in HOST:PORT", address)
	}
	s, err := debug.Fetch(ctx, address)
	if err != nil {
		return &fieldError{"attach", fmt.Errorf("--attach %s: %w; is an agent with KVBOUNCE_DEBUG_LISTEN running there?", address, err)}
	}
	if a.json {
		return a.print(s)
	}
	printState(a.out, s)
	return nil
}

// printState is for people. Whoever listens at the address may have made up every word of it.
func printState(out io.Writer, s debug.State) {
	plainf(out, "agent %s", s.Agent)
	if !s.Bounce {
		fmt.Fprint(out, ", bounce is off")
	}
	fmt.Fprintln(out)
	if s.ReactorAnswered {
		plainf(out, "arena: %s free, %s granted to peers, %s staging; %s of these kept in doubt. Flows of peers: %d\n",
			shownSize(s.Arena.Free), shownSize(s.Arena.Granted), shownSize(s.Arena.Staging), shownSize(s.Arena.Retained), s.Flows)
	} else {
		fmt.Fprintln(out, "its reactor did not answer in time: it is stopped, stuck or overloaded. What follows is as of its last turn, and peers and arena are missing")
	}
	if s.BounceRefusal != "" {
		plainf(out, "NO BOUNCE REQUEST IS TAKEN: %s\n", s.BounceRefusal)
	}
	fmt.Fprintln(out)
	if len(s.Unproved) == 0 {
		fmt.Fprint(out, "Nothing is in doubt.\n\n")
	}
	for _, u := range s.Unproved {
		heading := "IN DOUBT"
		if u.Since == nil {
			heading = "WAITED FOR"
		}
		plainf(out, "%s: peer %s, incarnation %s", heading, u.Name, u.Incarnation)
		if u.State != "" {
			plainf(out, " (%s)", u.State)
		}
		plainf(out, "\n  since       %s\n  last heard  %s\n  what        %s\n", whenText(u.Since, s.Now, "its requests drain"), whenText(u.SilentSince, s.Now, "never"), whatText(u))
		for i, line := range wrap(u.Remedy, 96) {
			label := "do"
			if i > 0 {
				label = ""
			}
			plainf(out, "  %-10s  %s\n", label, line)
		}
		fmt.Fprintln(out)
	}
	if len(s.Peers) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "PEER\tINCARNATION\tSTATE\tLAST HEARD\tREQUESTS\tDRAINING\tFLOWS\tHELD")
	for _, p := range s.Peers {
		plainf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", p.Name, p.Incarnation, p.State, agoText(p.SilentSince, s.Now), p.Requests, p.Draining, p.Flows, shownSize(p.HeldBytes))
	}
	_ = w.Flush()
}

// whatText is what is in doubt, by part.
func whatText(u debug.Unproved) string {
	var parts []string
	for _, p := range u.Parts {
		parts = append(parts, fmt.Sprintf("%s: %s (%d, %s)", p.Part, shownSize(p.Bytes), p.Accesses, p.Access))
	}
	if len(u.Parts) == 0 && (u.ArenaBytes > 0 || u.Accesses > 0) {
		parts = append(parts, fmt.Sprintf("%s of the arena; accesses that failed: %d", shownSize(u.ArenaBytes), u.Accesses))
	}
	if u.Draining > 0 {
		parts = append(parts, fmt.Sprintf("failed requests that it has not answered DRAIN for, or that have no evidence yet: %d", u.Draining))
	}
	return strings.Join(parts, "; ")
}

func whenText(t *time.Time, now time.Time, never string) string {
	if t == nil {
		return never
	}
	return t.Format(time.RFC3339) + ", " + agoText(t, now)
}

func agoText(t *time.Time, now time.Time) string {
	if t == nil {
		return "never"
	}
	return max(now.Sub(*t), 0).Round(time.Second).String() + " ago"
}

// plain keeps what another process says from moving the terminal's cursor, turning the writing around or looking like a line of its own.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// plainf is fmt.Fprintf with every string made plain: only the format's own line ends and tabs remain.
func plainf(out io.Writer, format string, args ...any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = plain(text)
		}
	}
	fmt.Fprintf(out, format, args...)
}
