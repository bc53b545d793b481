package simulation

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kvbounce/kvbounce/adapters/sim"
	"github.com/kvbounce/kvbounce/ports"
)

// place is where faults happen: a kind of point, from one agent towards another. What happens at one place does not change the numbers of others.
type place struct {
	kind        sim.PointKind
	agent, peer string // as World.label writes them
}

// Choice is one fault: what was chosen at the n-th point of a place.
type Choice struct {
	place
	N      int // from 1
	Option int
}

// String is the choice as replay files hold it: "fault KIND WHAT agent=A peer=B n=N".
func (c Choice) String() string {
	if c.kind == sim.NextEvent {
		return fmt.Sprintf("order n=%d option=%d", c.N, c.Option)
	}
	name := ""
	for known, f := range faultNames {
		if f.kind == c.kind && f.option == c.Option {
			name = known
		}
	}
	line := fmt.Sprintf("fault %s agent=%s", name, c.agent)
	if c.peer != "" {
		line += " peer=" + c.peer
	}
	return line + fmt.Sprintf(" n=%d", c.N)
}

// chooser decides what goes wrong in a run: at random while faults last, or as a record says. It keeps what it chose.
type chooser struct {
	label  func(ports.Identity) string
	random *sim.Faults // nil: as the script says
	script map[Choice]int
	pick   func(p sim.Point, options int) int // an exploration's; in place of all else
	orders map[int]int                        // by number of the point, from 1: which of several events of one instant happens first; 0 where there is none
	ties   int                                // such points so far
	cut    map[[2]string]bool                 // frames are lost from the first to the second, by name
	rule   func(p sim.Point) int              // a story's own faults; 0: none
	over   bool                               // nothing goes wrong any more

	points map[pointKey]int
	made   []Choice
	lost   int // frames lost by cuts
	counts [5][16]int
}

// pointKey is a place before it is labelled.
type pointKey struct {
	kind        sim.PointKind
	agent, peer ports.Identity
}

func newChooser(label func(ports.Identity) string) *chooser {
	return &chooser{label: label, cut: map[[2]string]bool{}, points: map[pointKey]int{}}
}

// Choose implements sim.Chooser.
func (c *chooser) Choose(p sim.Point, options int) int {
	if p.Kind == sim.NextEvent {
		c.ties++
		option := min(c.orders[c.ties], options-1)
		if c.pick != nil {
			option = c.pick(p, options)
		}
		if option != 0 {
			c.made = append(c.made, Choice{place: place{kind: sim.NextEvent}, N: c.ties, Option: option})
		}
		return option
	}
	key := pointKey{p.Kind, p.Agent, p.Peer}
	c.points[key]++
	if p.Kind == sim.SendFrame && len(c.cut) > 0 && c.cut[[2]string{p.Agent.Name(), p.Peer.Name()}] {
		c.lost++
		return int(sim.FrameLost)
	}
	if c.over {
		return 0
	}
	if c.rule != nil {
		if option := c.rule(p); option != 0 {
			return option
		}
	}
	option := 0
	switch {
	case c.pick != nil:
		option = c.pick(p, options)
	case c.script != nil:
		option = c.script[Choice{place: c.place(key), N: c.points[key]}]
	case c.random != nil:
		option = c.random.Choose(p, options)
	}
	if option < 0 || option >= options {
		option = 0
	}
	if option != 0 {
		c.made = append(c.made, Choice{place: c.place(key), N: c.points[key], Option: option})
		c.counts[p.Kind][option]++
	}
	return option
}

func (c *chooser) place(k pointKey) place {
	p := place{kind: k.kind, agent: c.label(k.agent)}
	if k.peer != "" {
		p.peer = c.label(k.peer)
	}
	return p
}

// count is how often a fault was chosen.
func (c *chooser) count(kind sim.PointKind, options ...int) int {
	n := 0
	for _, o := range options {
		n += c.counts[kind][o]
	}
	return n
}

// replayed makes the chooser repeat choices.
func (c *chooser) replayed(choices []Choice) {
	c.script = map[Choice]int{}
	c.orders = map[int]int{}
	for _, x := range choices {
		if x.kind == sim.NextEvent {
			c.orders[x.N] = x.Option
			continue
		}
		c.script[Choice{place: x.place, N: x.N}] = x.Option
	}
}

// parseOrder reads the words after "order".
func parseOrder(words []string) (Choice, error) {
	c := Choice{place: place{kind: sim.NextEvent}}
	line := strings.Join(words, " ")
	if _, err := fmt.Sscanf(line, "n=%d option=%d", &c.N, &c.Option); err != nil || c.N < 1 || c.Option < 1 || c.String() != "order "+line {
		return Choice{}, fmt.Errorf("want order n=N option=M, both at least 1")
	}
	return c, nil
}

// parseChoice reads the words after "fault".
func parseChoice(words []string) (Choice, error) {
	if len(words) < 2 {
		return Choice{}, fmt.Errorf("want fault KIND WHAT agent=A peer=B n=N")
	}
	known, ok := faultNames[words[0]+" "+words[1]]
	if !ok {
		return Choice{}, fmt.Errorf("there is no fault %q", words[0]+" "+words[1])
	}
	c := Choice{place: place{kind: known.kind}, Option: known.option}
	for _, word := range words[2:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "agent":
			c.agent = value
		case "peer":
			c.peer = value
		case "n":
			var err error
			if c.N, err = strconv.Atoi(value); err != nil || c.N < 1 {
				return Choice{}, fmt.Errorf("%q: want a number from 1", word)
			}
		default:
			return Choice{}, fmt.Errorf("%q: there is no such key", word)
		}
	}
	return c, nil
}
