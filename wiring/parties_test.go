package wiring

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/ports"
)

// process is a party as its test sees it.
type process struct {
	t        *testing.T
	cmd      *exec.Cmd
	in       io.WriteCloser
	out      *bufio.Scanner
	stderr   bytes.Buffer // read only after the end
	ended    bool
	err      error // of the end
	identity ports.Identity
	desc     []byte
	base     uint64
}

// Deadlines are generous: nothing here asserts how long something takes.
const patience = 30 * time.Second

// partyConfig has room for one chunk's region and one chunk's staging, so that a region that comes free is the next one's.
func partyConfig() config.Config {
	c := config.Default()
	c.Enable = true
	c.ArenaSize, c.MaxChunkSize = 2*partyBytes, partyBytes
	c.ControlBind = "tcp://127.0.0.1:0"
	c.RequestTimeout, c.ReceiverLease = 20*time.Second, 30*time.Second
	c.SettleDelay, c.RetirementDeadline, c.CloseDeadline = time.Second, 20*time.Second, 20*time.Second
	return c
}

// tcpOnly makes UCX emulate one-sided writes: they land when their target drives its engine.
const tcpOnly = "UCX_TLS=tcp"

// startPair starts two processes that know each other and have moved something.
func startPair(t *testing.T, c config.Config, env ...string) (sender, receiver *process) {
	sender, receiver = startParty(t, "sender", c, false, env...), startParty(t, "receiver", c, false, env...)
	sender.meets(receiver)
	sender.delivers(receiver, 0)
	receiver.quiet()
	return sender, receiver
}

// startParty starts a process. direct registers its memory for direct use.
func startParty(t *testing.T, name string, c config.Config, direct bool, env ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(append(os.Environ(), partyEnv+"=1"), env...)
	p.cmd.Stderr = &p.stderr
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewScanner(out)
	p.out.Buffer(nil, 1<<20)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s wrote:\n%s", name, p.stderr.String())
		}
	})
	r := p.do(partyCall{Op: "open", Name: name, Config: c, Direct: direct})
	p.identity, p.desc, p.base = r.Identity, r.Desc, r.Base
	return p
}

// description is what peers are told of the party.
func (p *process) description() agent.AgentDesc {
	d, err := agent.ParseAgentDesc(p.desc)
	require.NoError(p.t, err)
	return d
}

// wait reaps the process.
func (p *process) wait() error {
	if !p.ended {
		_ = p.in.Close()
		p.ended, p.err = true, p.cmd.Wait()
	}
	return p.err
}

// kill ends the process as kill -9 does, and reaps it: from then on it can no longer run.
func (p *process) kill() {
	if !p.ended {
		_ = p.cmd.Process.Kill()
		_ = p.wait()
	}
}

// stop stops the process, all its threads, and returns when the kernel says so.
func (p *process) stop() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	p.until("a stopped process", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		return err == nil && bytes.Contains(stat, []byte(") T "))
	})
}

func (p *process) proceed() { require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGCONT)) }

func (p *process) try(c partyCall) (r partyReply, err error) {
	line, err := json.Marshal(c)
	require.NoError(p.t, err)
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return r, err
	}
	if !p.out.Scan() {
		return r, fmt.Errorf("the process ended: %w", errors.Join(p.out.Err(), io.ErrUnexpectedEOF))
	}
	require.NoError(p.t, json.Unmarshal(p.out.Bytes(), &r))
	if r.Error != "" {
		err = errors.New(r.Error)
	}
	return r, err
}

func (p *process) do(c partyCall) partyReply {
	p.t.Helper()
	r, err := p.try(c)
	require.NoError(p.t, err, c.Op)
	return r
}

func (p *process) op(op string) partyReply {
	p.t.Helper()
	return p.do(partyCall{Op: op})
}

// meets adds the other to both.
func (p *process) meets(other *process) {
	p.t.Helper()
	p.do(partyCall{Op: "add", Desc: other.desc, Base: other.base})
	other.do(partyCall{Op: "add", Desc: p.desc, Base: p.base})
}

func (p *process) gate(kind string, closed bool) { p.do(partyCall{Op: kind, Closed: closed}) }

// sends starts a request to the other.
func (p *process) sends(to *process, name string, seed byte) {
	p.t.Helper()
	p.do(partyCall{Op: "send", Name: name, Peer: to.identity, Seed: seed})
}

func (p *process) request(name string) partyReply {
	p.t.Helper()
	return p.do(partyCall{Op: "request", Name: name})
}

// until waits for something.
func (p *process) until(what string, done func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		require.True(p.t, time.Now().Before(deadline), "it did not come so far: %s", what)
	}
}

// delivers moves a whole source to the other, which looks at every byte. It also lets both engines connect to each other.
func (p *process) delivers(to *process, seed byte) {
	p.t.Helper()
	p.sends(to, "whole", seed)
	p.until("the end of a whole transfer", func() bool { return p.request("whole").Quiesced })
	require.Empty(p.t, p.request("whole").Failure)
	to.do(partyCall{Op: "check", Seed: seed})
}

func (p *process) counter(name string) uint64 {
	p.t.Helper()
	return p.op("stats").Stats.Counters[name]
}

// fences fences the other's incarnation and waits until it is settled.
func (p *process) fences(other *process) partyReply {
	p.t.Helper()
	p.do(partyCall{Op: "fence", Peer: other.identity})
	return p.settled()
}

func (p *process) settled() (r partyReply) {
	p.t.Helper()
	p.until("a fence", func() bool { r = p.op("fenced"); return r.Fence != nil })
	require.True(p.t, r.Fence.Settled)
	return r
}

// quiet waits until no block of the arena is held and nothing is in doubt.
func (p *process) quiet() {
	p.t.Helper()
	p.until("an empty arena", func() bool {
		s := p.op("stats").Stats
		return s.BlocksHeld == 0 && s.BytesRetained == 0 && len(s.Unproved) == 0 && s.BounceRefusal == ""
	})
}

// ends closes the agent and the process.
func (p *process) ends() {
	p.t.Helper()
	p.op("close")
	require.NoError(p.t, p.wait())
}
