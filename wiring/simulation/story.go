package simulation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvbounce/kvbounce/adapters/sim"
	"github.com/kvbounce/kvbounce/core/wire"
	"github.com/kvbounce/kvbounce/ports"
)

// A story is a run told by hand, line by line, for a test. Time stands still except in tick and settle.
//
//	set KEY VALUE                       a scenario's key, before the first other verb
//	submit N FROM TO PATH PAGES         PATH is bounce, direct, read or auto, window/W with the token of window W, or stray/W into pages of other windows with it
//	refuse N FROM TO PATH PAGES PEER    the same, which must be refused with an error that names PEER
//	open A W PAGES | shut A W           the receive window W; set windows and window_pages before
//	session N                           what is submitted or opened from now on is in its agent's session N; 0: in none
//	leave A POOL                        A deregisters its memory: src, dst or windows
//	abort A N | retire A N              A cancels all of its session N; A asks from now on whether its memory may be reused
//	cancel N | add A B | remove A B | fence A B | crash A | close A | start A | pause A TIME | jump A TIME | cut A B | heal A B
//	drop TYPE A B                       the next frame of this type from A to B is lost; "any" is every type
//	twice TYPE A B                      it arrives twice
//	hold TYPE A B                       it is kept until deliver
//	deliver TYPE A B                    the frame that was held longest arrives
//	transfer A FATE | copy A FATE       the next write or read, gather or scatter of A
//	orphan A FATE                       what the next transfer of A does that has bytes to move after A died
//	tick TIME                           virtual time passes
//	settle                              faults stop, and all must end that can
//	expect request N WORD...            in-progress, succeeded, failed, cancelled, quiesced, not-quiesced, released, not-released, bounced, went-directly
//	expect window W WORD...             quiesced, not-quiesced
//	expect session A N WORD             released, pending
//	expect unproved A PEER BYTES        of A's arena that are kept because of PEER, 0 if it is not among those that are shown
//	expect fail-stops N                 processes that ended themselves so far
//	expect dead A | expect left A POOL
//	expect blocks A N                   arena blocks that A holds
//	expect sent TYPE A B N              frames of this type that A sent to B so far
//
// The oracle watches all the time.
type story struct {
	text    []string // lines of the scenario
	w       *World
	faults  []*storyFault
	held    []heldFrame
	sent    map[string]int
	courier *sim.Control
	session int // of what is submitted or opened
}

// storyFault is a fault that waits for its frame, transfer or copy.
type storyFault struct {
	kind     sim.PointKind
	frame    string // WANT, … or any
	from, to string
	option   int
	hold     bool
}

type heldFrame struct {
	frame     string
	from, to  string
	addressee ports.Identity
	bytes     []byte
}

// PlayStory plays a story. The error names the line.
func PlayStory(text string, o Options) (err error) {
	s := &story{sent: map[string]int{}}
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if err := s.do(words, o); err != nil {
			return fmt.Errorf("line %d: %s: %w", n+1, strings.Join(words, " "), err)
		}
		if s.w != nil && s.w.oracle.broken() {
			v := s.w.oracle.violation
			return fmt.Errorf("line %d: %s: broke %s: %s", n+1, strings.Join(words, " "), v.Rule, v.Text)
		}
	}
	return nil
}

// storyDefaults make a story's world a simple one: a message, a write and a copy take 10 us each, and turns come at once.
const storyDefaults = `
senders 1
receivers 1
requests 0
granule 128
arena 32
chunk 2
page_bytes 64
window 8
copies 4
eager 100
timeout 1s
lease 200
`

// open makes the world at the first verb that needs one.
func (s *story) open(o Options) error {
	if s.w != nil {
		return nil
	}
	scenario, err := ParseScenario("story", storyDefaults+strings.Join(s.text, "\n"))
	if err != nil {
		return err
	}
	u := newSetup(scenario, 1, Override{})
	u.ops = nil
	late := u.timing
	u.timing = sim.Timing{Frame: sim.Cost{Base: step, Late: late.Frame.Late}, Transfer: sim.Cost{Base: step, Late: late.Transfer.Late}, Copy: sim.Cost{Base: step, Late: late.Copy.Late}}
	u.moveBytes = 1 << 20
	for i := range u.agents {
		u.pages[u.agents[i].name] = 1000
		u.agents[i].latency = 0
	}
	c := newChooser(nil)
	c.rule = s.rule
	s.w = newWorld(u, c)
	s.w.mutate, s.w.log = o.Mutate, o.Log
	s.w.startAll()
	s.courier, err = sim.NewControl(s.w.sim, sim.ControlConfig{Identity: "courier"})
	must(err)
	return nil
}

// step is how long everything takes in a story.
const step = 10 * time.Microsecond

func (s *story) do(words []string, o Options) error {
	if words[0] == "set" {
		if s.w != nil {
			return fmt.Errorf("set comes before all else")
		}
		s.text = append(s.text, strings.Join(words[1:], " "))
		return nil
	}
	if err := s.open(o); err != nil {
		return err
	}
	args := words[1:]
	need := map[string]int{"submit": 5, "cancel": 1, "add": 2, "remove": 2, "fence": 2, "revoke": 2, "open": 3, "shut": 2, "refuse": 6, "leave": 2, "session": 1, "abort": 2, "retire": 2, "crash": 1, "close": 1, "start": 1, "pause": 2, "jump": 2, "cut": 2, "heal": 2, "drop": 3, "twice": 3, "hold": 3,
		"deliver": 3, "transfer": 2, "copy": 2, "orphan": 2, "tick": 1, "settle": 0}
	if n, known := need[words[0]]; known && n != len(args) {
		return fmt.Errorf("%s takes %d words", words[0], n)
	}
	switch words[0] {
	case "submit", "refuse":
		number, err := strconv.Atoi(args[0])
		pages, err2 := strconv.Atoi(args[4])
		if err != nil || err2 != nil {
			return fmt.Errorf("want numbers for the request and its pages")
		}
		path, window, _ := strings.Cut(args[3], "/")
		w, _ := strconv.Atoi(window)
		s.w.perform(Op{Verb: OpSubmit, Request: number, Agent: args[1], Peer: args[2], Path: path, Window: w, Pages: pages, Layout: uint64(number), Session: s.session})
		if words[0] == "refuse" {
			return s.refused(number, args[5])
		}
		if s.w.byNumber[number] == nil {
			return fmt.Errorf("the submit was refused: %v", s.w.refusal)
		}
	case "open", "shut":
		o := Op{Verb: words[0], Agent: args[0], Layout: 1, Session: s.session}
		o.Window, _ = strconv.Atoi(args[1])
		if words[0] == "open" {
			o.Pages, _ = strconv.Atoi(args[2])
		}
		s.w.perform(o)
		if s.w.windows[o.Window] == nil {
			return fmt.Errorf("there is no such window")
		}
	case "session":
		s.session, _ = strconv.Atoi(args[0])
	case "abort", "retire":
		number, _ := strconv.Atoi(args[1])
		s.w.perform(Op{Verb: words[0], Agent: args[0], Session: number})
	case "cancel":
		number, _ := strconv.Atoi(args[0])
		s.w.perform(Op{Verb: OpCancel, Request: number})
	case "add", "remove", "fence", "revoke", "cut", "heal":
		s.w.perform(Op{Verb: words[0], Agent: args[0], Peer: args[1]})
	case "leave":
		s.w.perform(Op{Verb: OpLeave, Agent: args[0], Path: args[1]})
	case "crash", "close", "start":
		s.w.perform(Op{Verb: words[0], Agent: args[0]})
	case "pause", "jump":
		d, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		s.w.perform(Op{Verb: words[0], Agent: args[0], Delay: d})
	case "drop":
		s.faults = append(s.faults, &storyFault{kind: sim.SendFrame, frame: args[0], from: args[1], to: args[2], option: int(sim.FrameLost)})
	case "twice":
		s.faults = append(s.faults, &storyFault{kind: sim.SendFrame, frame: args[0], from: args[1], to: args[2], option: int(sim.FrameTwice)})
	case "hold":
		s.faults = append(s.faults, &storyFault{kind: sim.SendFrame, frame: args[0], from: args[1], to: args[2], option: int(sim.FrameLost), hold: true})
	case "deliver":
		return s.deliver(args[0], args[1], args[2])
	case "transfer", "copy", "orphan":
		return s.fate(words[0], args[0], args[1])
	case "tick":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			return err
		}
		s.w.advance(s.w.sim.Now().Add(d))
	case "settle":
		s.settle()
	case "expect":
		return s.expect(args)
	default:
		return fmt.Errorf("there is no verb %q", words[0])
	}
	return nil
}

// advance makes everything happen up to t and sets the clock to it.
func (w *World) advance(t ports.Instant) {
	w.runUntil(t)
	if !w.oracle.broken() {
		w.sim.AdvanceTo(t)
	}
}

func (s *story) settle() {
	s.w.setup.faultsEnd = s.w.sim.Now()
	s.w.run()
	s.w.chooser.over = false
}

// rule is the chooser's: the first fault that fits happens, once.
func (s *story) rule(p sim.Point) int {
	frame := ""
	if p.Kind == sim.SendFrame {
		frame = typeOf(p.Frame)
		s.sent[frame+" "+p.Agent.Name()+" "+p.Peer.Name()]++
	}
	for i, f := range s.faults {
		if f.kind != p.Kind || f.from != p.Agent.Name() || (p.Kind == sim.SendFrame && (f.to != p.Peer.Name() || f.frame != frame && f.frame != "any")) {
			continue
		}
		s.faults = slices.Delete(s.faults, i, i+1)
		if f.hold {
			s.held = append(s.held, heldFrame{frame: frame, from: f.from, to: f.to, addressee: p.Peer, bytes: slices.Clone(p.Frame)})
		}
		return f.option
	}
	return 0
}

func typeOf(frame []byte) string {
	env, err := wire.DecodeEnvelope(frame)
	if err != nil {
		return "bad"
	}
	h, err := wire.DecodeHeader(env.Message)
	if err != nil {
		return "bad"
	}
	return h.Type.String()
}

func (s *story) deliver(frame, from, to string) error {
	for i, h := range s.held {
		if h.from != from || h.to != to || h.frame != frame && frame != "any" {
			continue
		}
		s.held = slices.Delete(s.held, i, i+1)
		if err := s.courier.Connect(h.addressee, []byte("memory:"+to)); err != nil {
			return err
		}
		s.courier.Send(h.addressee, h.bytes)
		return nil
	}
	return fmt.Errorf("no such frame is held")
}

func (s *story) fate(verb, agent, fate string) error {
	word := map[string]string{"transfer": "write", "copy": "copy", "orphan": "orphan"}[verb]
	known, ok := faultNames[word+" "+fate]
	if !ok {
		return fmt.Errorf("there is no fate %q", fate)
	}
	s.faults = append(s.faults, &storyFault{kind: known.kind, from: agent, option: known.option})
	return nil
}
