package simulation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvbounce/kvbounce/ports"
)

// The verbs of operations.
const (
	OpSubmit  = "submit"  // Request from Agent to Peer
	OpCancel  = "cancel"  // Request
	OpAdd     = "add"     // Agent is told of the present life of Peer
	OpRemove  = "remove"  // Agent removes the Peer that it knows
	OpOpen    = "open"    // Agent opens the receive Window over Pages
	OpShut    = "shut"    // Agent closes it
	OpAbort   = "abort"   // Agent cancels all that its Session started, and closes its windows
	OpRetire  = "retire"  // Agent asks from now on whether the memory of its Session may be reused
	OpLeave   = "leave"   // Agent deregisters its memory Path: src, dst or windows
	OpFence   = "fence"   // Agent fences all lives of Peer that ended
	OpRevoke  = "revoke"  // Agent has its engine end the access of the present life of Peer
	OpCrash   = "crash"   // Agent's process ends at once
	OpClose   = "close"   // Agent closes as its application would
	OpStart   = "start"   // Agent's next life begins, unless it lives
	OpPause   = "pause"   // Agent's reactor does not turn for Delay
	OpJump    = "jump"    // Agent's clock jumps forward by Delay
	OpCut     = "cut"     // frames from Agent to Peer are lost
	OpHeal    = "heal"    // until now
	OpHostile = "hostile" // Agent, a hostile peer, does something that Layout is the seed of
)

var verbs = []string{OpSubmit, OpCancel, OpAdd, OpRemove, OpOpen, OpShut, OpAbort, OpRetire, OpLeave, OpFence, OpRevoke, OpCrash, OpClose, OpStart, OpPause, OpJump, OpCut, OpHeal, OpHostile}

// Op is something that is done at a moment of a run. Fields that the verb does not name are zero.
type Op struct {
	At      ports.Instant
	Verb    string
	Agent   string
	Peer    string
	Request int           // its number in the run, from 1
	Path    string        // of a submit: bounce, direct, read, auto; overlap: bounce, and one destination page twice; window: into Window; stray: into pages of other windows, with the token of Window (0: none)
	Pages   int           // of a submit or open
	Layout  uint64        // seed of where a submit's pages lie, or of what a hostile peer does
	Delay   time.Duration // of a submit or open: until its ready event fires; 0: none
	Window  int           // its number in the run, from 1
	Session int           // of the agent, that a request or window belongs to, from 1; 0: none
	Notify  bool          // a submit's request has a notification
}

// String is the operation as replay files hold it: "op AT VERB key=value…".
func (o Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "op %s %s", time.Duration(o.At), o.Verb)
	put := func(key string, value any, present bool) {
		if present {
			fmt.Fprintf(&b, " %s=%v", key, value)
		}
	}
	put("request", o.Request, o.Request != 0)
	put("agent", o.Agent, o.Agent != "")
	put("peer", o.Peer, o.Peer != "")
	put("path", o.Path, o.Path != "")
	put("pages", o.Pages, o.Pages != 0)
	put("layout", o.Layout, o.Layout != 0)
	put("delay", o.Delay, o.Delay != 0)
	put("window", o.Window, o.Window != 0)
	put("session", o.Session, o.Session != 0)
	put("notify", "yes", o.Notify)
	return b.String()
}

// parseOp reads the words after "op".
func parseOp(words []string) (Op, error) {
	if len(words) < 2 {
		return Op{}, fmt.Errorf("want op AT VERB key=value…")
	}
	at, err := time.ParseDuration(words[0])
	if err != nil || at < 0 {
		return Op{}, fmt.Errorf("%q: want a time from the start, as 1.5ms", words[0])
	}
	o := Op{At: ports.Instant(at), Verb: words[1]}
	if !slices.Contains(verbs, o.Verb) {
		return Op{}, fmt.Errorf("there is no verb %q; there are %s", o.Verb, strings.Join(verbs, ", "))
	}
	for _, word := range words[2:] {
		key, value, _ := strings.Cut(word, "=")
		var err error
		switch key {
		case "request":
			o.Request, err = strconv.Atoi(value)
		case "agent":
			o.Agent = value
		case "peer":
			o.Peer = value
		case "path":
			if o.Path = value; !slices.Contains([]string{"bounce", "direct", "read", "auto", "overlap", "window", "stray", "src", "dst", "windows"}, value) {
				err = fmt.Errorf("want bounce, direct, read, auto, overlap, window or stray; or src, dst or windows")
			}
		case "pages":
			if o.Pages, err = strconv.Atoi(value); err == nil && (o.Pages < 1 || o.Pages > 4096) {
				err = fmt.Errorf("want 1 to 4096")
			}
		case "layout":
			o.Layout, err = strconv.ParseUint(value, 10, 64)
		case "delay":
			o.Delay, err = time.ParseDuration(value)
		case "window":
			o.Window, err = strconv.Atoi(value)
		case "session":
			o.Session, err = strconv.Atoi(value)
		case "notify":
			o.Notify = value == "yes"
		default:
			err = fmt.Errorf("there is no such key")
		}
		if err != nil {
			return Op{}, fmt.Errorf("%q: %w", word, err)
		}
	}
	return o, nil
}
