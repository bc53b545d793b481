package simulation

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/kvbounce/kvbounce/adapters/sim"
)

//go:embed scenarios/*.txt
var scenarioFiles embed.FS

// Scenario is a kind of run: ranges from which a seed draws. Times are nanoseconds.
type Scenario struct {
	Name string

	senders, receivers, both span // agents by what they do; both: send and receive
	hostile                  span // peers that speak frames by hand
	requests                 span
	during                   span // the time in which requests are submitted
	pages                    span // of a request
	bigPages                 span
	big                      span // percent of requests that have bigPages
	direct, read, auto       span // percent of requests
	overlap                  span // percent of requests that name a destination page twice, and must fail
	cancel, ready, notify    span // percent of requests
	crashes, closes          span // agents that die, and that close down
	restart                  span // percent of those that come back
	fences                   span // percent of the others that fence one that ended
	settle                   span // the settle delay
	windows                  span // receive windows
	windowPages              span
	windowRequests           span // of each window
	windowOpen               span // how long one stays open; 0: for ever
	stray                    span // percent of those requests that must be refused: no token, or of another window, or of a closed one
	retire                   span // the retirement deadline, after which agents fail-stop; 0: there is none
	sessions                 span // engine requests that send and receive, and are retired
	abort                    span // percent of them that are aborted
	deregisters              span // pools that are deregistered
	removals, pauses         span
	jumps, cuts              span
	pageBytes                span // a power of two
	granule, arena, chunk    span // powers of two; the arena in granules, the chunk limit in granules
	window, copies           span
	eager                    span // percent of agents
	timeout                  span
	lease                    span // in hundredths of the timeout
	lateFrame, lateWrite     span
	lateCopy                 span
	mustSucceed              span // 1: a request that nobody cancelled succeeds, since all that goes wrong can be repaired
	fair                     span // grants to others, per active flow, that a flow may wait for; 0: not checked
	faults                   []faultSpan
}

// faultSpan is a fault with ranges.
type faultSpan struct {
	kind   sim.PointKind
	option int
	ppm    span
	budget span
}

// fields are the keys of a scenario file.
func (s *Scenario) fields() map[string]*span {
	return map[string]*span{
		"senders": &s.senders, "receivers": &s.receivers, "both": &s.both, "hostile": &s.hostile, "requests": &s.requests, "during": &s.during, "pages": &s.pages,
		"big_pages": &s.bigPages, "big": &s.big, "direct": &s.direct, "read": &s.read, "auto": &s.auto, "overlap": &s.overlap, "cancel": &s.cancel, "ready": &s.ready, "notify": &s.notify,
		"crashes": &s.crashes, "closes": &s.closes, "restart": &s.restart, "fences": &s.fences, "retire": &s.retire, "sessions": &s.sessions, "abort": &s.abort, "deregisters": &s.deregisters, "windows": &s.windows, "window_pages": &s.windowPages, "window_requests": &s.windowRequests, "window_open": &s.windowOpen, "stray": &s.stray, "settle": &s.settle, "removals": &s.removals, "pauses": &s.pauses, "jumps": &s.jumps, "cuts": &s.cuts,
		"page_bytes": &s.pageBytes, "granule": &s.granule, "arena": &s.arena, "chunk": &s.chunk, "window": &s.window, "copies": &s.copies, "eager": &s.eager,
		"timeout": &s.timeout, "lease": &s.lease, "late_frame": &s.lateFrame, "late_write": &s.lateWrite, "late_copy": &s.lateCopy, "fair": &s.fair, "must_succeed": &s.mustSucceed,
	}
}

// defaults are the lines that every scenario begins with.
const defaults = `
senders 1..3
receivers 1..2
requests 8..24
during 20ms..200ms
pages 1..24
big_pages 40..80
page_bytes 32..128
granule 128..512
arena 8..32
chunk 1..4
window 1..8
copies 1..6
eager 75
timeout 100ms..1s
lease 200..300
settle 1s..2s
window_pages 4..32
window_requests 2..8
window_open 1ms..50ms
late_frame 1ms..20ms
late_write 1ms..20ms
late_copy 1ms..20ms
`

// faultNames are the faults as files name them.
var faultNames = map[string]struct {
	kind   sim.PointKind
	option int
}{
	"frame late":                  {sim.SendFrame, int(sim.FrameLate)},
	"frame lost":                  {sim.SendFrame, int(sim.FrameLost)},
	"frame twice":                 {sim.SendFrame, int(sim.FrameTwice)},
	"frame refused":               {sim.SendFrame, int(sim.FrameRefused)},
	"notify late":                 {sim.SendNotify, int(sim.FrameLate)},
	"notify lost":                 {sim.SendNotify, int(sim.FrameLost)},
	"notify refused":              {sim.SendNotify, int(sim.FrameRefused)},
	"write late":                  {sim.PostOne, int(sim.TransferSucceedsLate)},
	"write nothing-posted":        {sim.PostOne, int(sim.TransferNothingPosted)},
	"write ends-partly":           {sim.PostOne, int(sim.TransferEndsPartly)},
	"write fails":                 {sim.PostOne, int(sim.TransferFails)},
	"write fails-moves-late":      {sim.PostOne, int(sim.TransferFailsMovesLate)},
	"write fails-moves-part":      {sim.PostOne, int(sim.TransferFailsMovesPart)},
	"write fails-succeeds":        {sim.PostOne, int(sim.TransferFailsSucceeds)},
	"write hangs":                 {sim.PostOne, int(sim.TransferHangs)},
	"write hangs-moves-late":      {sim.PostOne, int(sim.TransferHangsMovesLate)},
	"write post-fails-moves-late": {sim.PostOne, int(sim.TransferPostFailsMovesLate)},
	"copy late":                   {sim.LaunchOne, int(sim.CopySucceedsLate)},
	"copy refused":                {sim.LaunchOne, int(sim.CopyRefused)},
	"copy not-launched":           {sim.LaunchOne, int(sim.CopyNotLaunched)},
	"copy fails":                  {sim.LaunchOne, int(sim.CopyFails)},
	"copy fails-runs-late":        {sim.LaunchOne, int(sim.CopyFailsRunsLate)},
	"copy hangs":                  {sim.LaunchOne, int(sim.CopyHangs)},
	"orphan moves-on":             {sim.OrphanMoves, int(sim.OrphanMovesOn)},
}

// ParseScenario reads a scenario file: lines of a key and a range, "fault KIND WHAT PPM BUDGET", and comments after '#'.
func ParseScenario(name, text string) (*Scenario, error) {
	s := &Scenario{Name: name}
	fields := s.fields()
	for n, line := range strings.Split(defaults+text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if err := s.parseLine(fields, words); err != nil {
			return nil, fmt.Errorf("scenario %s, line %d: %w", name, n-strings.Count(defaults, "\n")+1, err)
		}
	}
	return s, s.check()
}

func (s *Scenario) parseLine(fields map[string]*span, words []string) error {
	if words[0] == "fault" {
		if len(words) != 5 {
			return fmt.Errorf("%q: want fault KIND WHAT PARTS-PER-MILLION BUDGET", strings.Join(words, " "))
		}
		name := words[1] + " " + words[2]
		known, ok := faultNames[name]
		if !ok {
			return fmt.Errorf("there is no fault %q", name)
		}
		f := faultSpan{kind: known.kind, option: known.option}
		var err error
		if f.ppm, err = parseSpan(words[3]); err != nil {
			return err
		}
		f.budget, err = parseSpan(words[4])
		s.faults = append(s.faults, f)
		return err
	}
	field, ok := fields[words[0]]
	if !ok || len(words) != 2 {
		return fmt.Errorf("%q: want a known key and a range", strings.Join(words, " "))
	}
	v, err := parseSpan(words[1])
	*field = v
	return err
}

func (s *Scenario) check() error {
	for key, field := range map[string]*span{"page_bytes": &s.pageBytes, "granule": &s.granule, "arena": &s.arena, "chunk": &s.chunk, "window": &s.window, "copies": &s.copies,
		"pages": &s.pages, "timeout": &s.timeout, "lease": &s.lease} {
		if field.low < 1 {
			return fmt.Errorf("scenario %s: %s must be at least 1", s.Name, key)
		}
	}
	switch {
	case s.lease.low <= 100:
		return fmt.Errorf("scenario %s: lease is in percent of the timeout and must be above 100", s.Name)
	case s.both.high == 0 && s.receivers.low == 0, s.both.high == 0 && s.senders.low == 0, s.both.high == 1:
		return fmt.Errorf("scenario %s: it needs a sender and a receiver", s.Name)
	}
	return nil
}

// Load finds a scenario by its name.
func Load(name string) (*Scenario, error) {
	text, err := scenarioFiles.ReadFile("scenarios/" + name + ".txt")
	if err != nil {
		return nil, fmt.Errorf("there is no scenario %q; there are %s", name, strings.Join(Names(), ", "))
	}
	return ParseScenario(name, string(text))
}

// Names are the scenarios that Load knows.
func Names() []string {
	files, _ := fs.ReadDir(scenarioFiles, "scenarios") // embedded: it can't fail
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".txt"))
	}
	slices.Sort(names)
	return names
}
