package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

// ProbeResult is what a probe found.
type ProbeResult struct {
	Failed string  `json:"failed"` // the step that failed; "" when none did
	Error  string  `json:"error"`
	OpenUS float64 `json:"open_us"` // the first agent's start, NIXL's loading included
}

// Steps of a probe.
const (
	stepOpen     = "start an agent"
	stepTransfer = "move bytes between two agents"
)

// Probe starts two agents over NIXL in this process and moves some pages of host memory between them, over both paths. It is for a child process: where NIXL
// or UCX don't suit the machine they may hang, or end the process.
func Probe(log *slog.Logger) ProbeResult {
	began := time.Now()
	a, err := openProbe("doctor-a", log)
	if err != nil {
		return ProbeResult{Failed: stepOpen, Error: err.Error()}
	}
	r := ProbeResult{OpenUS: float64(time.Since(began).Nanoseconds()) / 1000}
	b, err := openProbe("doctor-b", log)
	if err != nil {
		return ProbeResult{Failed: stepOpen, Error: errors.Join(err, a.Close()).Error()}
	}
	err = movePages(a, b)
	if err = errors.Join(err, a.Close(), b.Close()); err != nil {
		r.Failed, r.Error = stepTransfer, err.Error()
	}
	return r
}

func openProbe(name string, log *slog.Logger) (*wiring.Node, error) {
	cfg := config.Default()
	cfg.Enable = true
	cfg.ControlBind = "tcp://127.0.0.1:0"
	cfg.ArenaSize, cfg.MaxChunkSize = 4<<20, 1<<20
	cfg.RequestTimeout, cfg.CloseDeadline = 5*time.Second, 2*time.Second
	return wiring.New(wiring.Params{Name: name, Config: cfg, BounceRequired: true, Log: log})
}

// Pages of the probe's transfer.
const (
	probePages = 64
	pageBytes  = 4096
)

// movePages writes pages from a to b in another order, over each path, and looks at each.
func movePages(a, b *wiring.Node) error {
	src, err := wiring.AllocateHost(probePages * pageBytes)
	if err != nil {
		return err
	}
	dst, err := wiring.AllocateHost(probePages * pageBytes)
	if err != nil {
		return err
	}
	// Neither is unmapped: this process ends soon, and a write that failed may land until then.
	if _, err := a.Register([]ports.Descriptor{src.Descriptor()}, agent.Direct); err != nil {
		return err
	}
	if _, err := b.Register([]ports.Descriptor{dst.Descriptor()}, agent.Direct); err != nil {
		return err
	}
	d, err := b.Describe()
	if err != nil {
		return err
	}
	if _, err := a.AddPeer(d, false); err != nil {
		return err
	}
	order := rand.Perm(probePages)
	request := agent.Request{Peer: b.Identity()}
	for i, page := range order {
		request.Local = append(request.Local, ports.Descriptor{Addr: src.Descriptor().Addr + uint64(i*pageBytes), Bytes: pageBytes})
		request.Remote = append(request.Remote, ports.Descriptor{Addr: dst.Descriptor().Addr + uint64(page*pageBytes), Bytes: pageBytes})
	}
	for round, route := range []agent.Route{agent.ForceBounce, agent.ForceDirect} {
		for i := range src.Bytes() {
			src.Bytes()[i] = byte(i/pageBytes + i + round + 1)
		}
		request.Route = route
		if err := transfer(a, request); err != nil {
			return err
		}
		for i, page := range order {
			if !bytes.Equal(src.Bytes()[i*pageBytes:][:pageBytes], dst.Bytes()[page*pageBytes:][:pageBytes]) {
				return fmt.Errorf("page %d arrived with other bytes", i)
			}
		}
	}
	return nil
}

func transfer(a *wiring.Node, r agent.Request) error {
	h, err := a.Submit(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	return h.Wait(ctx)
}

// probeLimit bounds the child process.
const probeLimit = 20 * time.Second

// checkEngine runs a probe in a child process, which has at most limit.
func checkEngine(ctx context.Context, o Options, limit time.Duration) Check {
	c := Check{Name: "engine", Required: true}
	r, log, err := runProbe(ctx, o.Probe, limit)
	switch {
	case err != nil:
		c.Detail = "the process that tried NIXL " + err.Error()
	case r.Failed != "":
		c.Detail = fmt.Sprintf("could not %s: %s", r.Failed, r.Error)
	default:
		c.OK, c.Found = true, "works"
		c.Detail = fmt.Sprintf("two agents moved pages over both paths, each byte checked; NIXL and the first agent took %.0f ms to start", r.OpenUS/1000)
		return c
	}
	c.Remedy = "check that a network interface is up, that the home folder is readable and that NIXL is whole (install it again)"
	if set := tuning(o.Environ); len(set) > 0 {
		c.Remedy = "try without " + strings.Join(set, ", ") + " in the environment; " + c.Remedy
	}
	if log != "" {
		c.Detail += "; its log ends: " + log
	}
	return c
}

// tuning are the variables that NIXL and UCX read.
func tuning(environ []string) (set []string) {
	for _, variable := range environ {
		if strings.HasPrefix(variable, "UCX_") || strings.HasPrefix(variable, "NIXL_") {
			set = append(set, variable)
		}
	}
	slices.Sort(set)
	return set
}

// runProbe starts the child and reads its result. log is the end of what it wrote on standard error.
func runProbe(ctx context.Context, command []string, limit time.Duration) (r ProbeResult, log string, err error) {
	if len(command) == 0 {
		return r, "", errors.New("was not named")
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	child := exec.CommandContext(ctx, command[0], command[1:]...)
	child.WaitDelay = time.Second // for children of its own that hold its pipes
	out, errs := tail{most: 64 << 10}, tail{most: 400}
	child.Stdout, child.Stderr = &out, &errs
	err = child.Run()
	log = errs.text()
	switch {
	case ctx.Err() != nil:
		return r, log, fmt.Errorf("was ended since it took too long (at most %v)", limit)
	case err != nil:
		return r, log, fmt.Errorf("ended badly (%w)", err)
	}
	if err := json.Unmarshal(out.kept, &r); err != nil {
		return r, log, fmt.Errorf("answered what can't be read (%w)", err)
	}
	return r, log, nil
}

// tail keeps the end of what is written.
type tail struct {
	most int
	kept []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.most; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

// text is one line of valid UTF-8.
func (t *tail) text() string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(t.kept), "")), " ")
}
