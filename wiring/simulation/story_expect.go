package simulation

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kvbounce/kvbounce/core/transport"
)

// What stories expect.

func (s *story) expect(args []string) error {
	switch {
	case len(args) >= 3 && args[0] == "request":
		number, _ := strconv.Atoi(args[1])
		r := s.w.byNumber[number]
		if r == nil {
			return fmt.Errorf("there is no request %s", args[1])
		}
		for _, word := range args[2:] {
			if err := r.is(word); err != nil {
				return err
			}
		}
		return nil
	case len(args) == 3 && args[0] == "blocks":
		l, err := s.alive(args[1])
		if err != nil {
			return err
		}
		if held := fmt.Sprint(l.agent.Stats().BlocksHeld); held != args[2] {
			return fmt.Errorf("it holds %s", held)
		}
		return nil
	case len(args) >= 3 && args[0] == "window":
		number, _ := strconv.Atoi(args[1])
		x := s.w.windows[number]
		if x == nil {
			return fmt.Errorf("there is no window %s", args[1])
		}
		for _, word := range args[2:] {
			if is := map[bool]string{true: "quiesced", false: "not-quiesced"}[x.h.IsQuiesced()]; is != word {
				return fmt.Errorf("it is %s", is)
			}
		}
		return nil
	case len(args) == 4 && args[0] == "session":
		return s.expectSession(args[1], args[2], args[3])
	case len(args) == 4 && args[0] == "unproved":
		return s.expectUnproved(args[1], args[2], args[3])
	case len(args) == 2 && args[0] == "fail-stops":
		if n := fmt.Sprint(s.w.tally.FailStops); n != args[1] {
			return fmt.Errorf("there were %s", n)
		}
		return nil
	case len(args) == 3 && args[0] == "left":
		return s.expectLeft(args[1], args[2])
	case len(args) == 2 && args[0] == "dead":
		if n := s.w.byName[args[1]]; n == nil || n.now != nil {
			return fmt.Errorf("%s is alive", args[1])
		}
		return nil
	case len(args) == 5 && args[0] == "sent":
		if n := fmt.Sprint(s.sent[strings.Join(args[1:4], " ")]); n != args[4] {
			return fmt.Errorf("it sent %s", n)
		}
		return nil
	}
	return fmt.Errorf("want request N WORD…, window N WORD…, session A N WORD, blocks A N, unproved A PEER BYTES, fail-stops N, dead A, left A POOL, or sent TYPE A B N")
}

// is reports whether a word of expect holds.
func (r *request) is(word string) error {
	status := r.h.Status()
	holds := false
	switch word {
	case "in-progress":
		holds = status == transport.InProgress
	case "succeeded":
		holds = status == transport.Succeeded
	case "failed":
		holds = status == transport.Failed && !isCancelled(r.h.Err())
	case "cancelled":
		holds = status == transport.Failed && isCancelled(r.h.Err())
	case "quiesced":
		holds = r.h.IsQuiesced()
	case "not-quiesced":
		holds = !r.h.IsQuiesced()
	case "released":
		holds = r.h.IsSourceReleased()
	case "not-released":
		holds = !r.h.IsSourceReleased()
	case "bounced":
		holds = r.h.Path() == transport.PathBounce
	case "went-directly":
		holds = r.h.Path() == transport.PathDirect
	default:
		return fmt.Errorf("there is no word %q", word)
	}
	if !holds {
		return fmt.Errorf("it is %s (%v), quiesced %t, released %t", status, r.h.Err(), r.h.IsQuiesced(), r.h.IsSourceReleased())
	}
	return nil
}

// refused holds a submit against the refusal that a story wants.
func (s *story) refused(number int, peer string) error {
	switch {
	case s.w.byNumber[number] != nil:
		return fmt.Errorf("it was taken")
	case s.w.refusal == nil || !strings.Contains(s.w.refusal.Error(), peer+"#"):
		return fmt.Errorf("the error does not name %s: %v", peer, s.w.refusal)
	}
	return nil
}

// alive is the present life of an agent.
func (s *story) alive(agent string) (*life, error) {
	n := s.w.byName[agent]
	if n == nil || n.now == nil {
		return nil, fmt.Errorf("%s is not alive", agent)
	}
	return n.now, nil
}

func (s *story) expectSession(agent, number, word string) error {
	l, err := s.alive(agent)
	if err != nil {
		return err
	}
	k, _ := strconv.Atoi(number)
	for _, e := range l.sessions {
		if e.number == k {
			if is := map[bool]string{true: "released", false: "pending"}[e.over]; is != word {
				return fmt.Errorf("it is %s", is)
			}
			return nil
		}
	}
	return fmt.Errorf("%s has no session %s", agent, number)
}

// expectLeft wants a pool of memory to be deregistered.
func (s *story) expectLeft(agent, pool string) error {
	l, err := s.alive(agent)
	if err != nil {
		return err
	}
	if p := l.poolOf(pool); p == nil || !p.gone {
		return fmt.Errorf("it is not deregistered")
	}
	return nil
}

func (s *story) expectUnproved(agent, peer, bytes string) error {
	l, err := s.alive(agent)
	if err != nil {
		return err
	}
	kept := "0"
	for _, u := range l.agent.Stats().Unproved {
		if u.Peer.Name() == peer {
			kept = fmt.Sprint(u.Bytes)
		}
	}
	if kept != bytes {
		return fmt.Errorf("it keeps %s", kept)
	}
	return nil
}
