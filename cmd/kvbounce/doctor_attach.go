package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kvbounce/kvbounce/wiring/debug"
)

// attach shows what a running agent holds.
func (a *app) attach(ctx context.Context, address string) error {
	if err := debug.CheckAddress(address); err != nil {
		return badUsage("attach", "--attach: %w", err)
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

func printState(out io.Writer, s debug.State) {
	fmt.Fprintf(out, "agent %s", plain(s.Agent))
	if !s.Bounce {
		fmt.Fprint(out, ", bounce is off")
	}
	fmt.Fprintln(out)
	if s.ReactorAnswered {
		fmt.Fprintf(out, "arena: %s free, %s granted to peers, %s staging; %s of these kept in doubt. %d flows of peers\n",
			bytesText(s.Arena.Free), bytesText(s.Arena.Granted), bytesText(s.Arena.Staging), bytesText(s.Arena.Retained), s.Flows)
	} else {
		fmt.Fprintln(out, "its reactor did not answer in time: it is stopped, stuck or overloaded. What follows is as of its last turn, and peers and arena are missing")
	}
	if s.BounceRefusal != "" {
		fmt.Fprintf(out, "NO BOUNCE REQUEST IS TAKEN: %s\n", plain(s.BounceRefusal))
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
		fmt.Fprintf(out, "%s: peer %s, incarnation %s", heading, plain(u.Name), u.Incarnation)
		if u.State != "" {
			fmt.Fprintf(out, " (%s)", u.State)
		}
		fmt.Fprintf(out, "\n  since       %s\n  last heard  %s\n  what        %s\n", whenText(u.Since, s.Now, "its requests drain"), whenText(u.SilentSince, s.Now, "never"), whatText(u))
		fmt.Fprintf(out, "  do          %s\n\n", strings.Join(wrap(plain(u.Remedy), 96), "\n              "))
	}
	if len(s.Peers) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "PEER\tINCARNATION\tSTATE\tLAST HEARD\tREQUESTS\tDRAINING\tFLOWS\tHELD")
	for _, p := range s.Peers {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", plain(p.Name), p.Incarnation, p.State, agoText(p.SilentSince, s.Now), p.Requests, p.Draining, p.Flows, bytesText(p.HeldBytes))
	}
	_ = w.Flush()
}

// whatText is what is in doubt, by part.
func whatText(u debug.Unproved) string {
	var parts []string
	for _, p := range u.Parts {
		parts = append(parts, fmt.Sprintf("%s: %s (%d, %s)", p.Part, bytesText(p.Bytes), p.Accesses, p.Access))
	}
	if len(u.Parts) == 0 && (u.ArenaBytes > 0 || u.Accesses > 0) {
		parts = append(parts, fmt.Sprintf("%s of the arena; accesses that failed: %d", bytesText(u.ArenaBytes), u.Accesses))
	}
	if u.Draining > 0 {
		parts = append(parts, fmt.Sprintf("%d failed requests that it has not answered DRAIN for, or that have no evidence yet", u.Draining))
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

// bytesText is a size in the largest unit that shows it well.
func bytesText(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// plain keeps what a peer named itself from moving the terminal's cursor.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, text)
}
