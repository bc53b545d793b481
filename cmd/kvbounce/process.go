package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// process is a worker in a process of its own.
type process struct {
	cmd   *exec.Cmd
	calls io.WriteCloser
	lines *bufio.Scanner
}

// lockedWriter lets several processes and this one share a stream.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// spawn starts this program again as a worker. Its log goes to stderr.
func spawn(stderr io.Writer, verbose bool) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"worker"}
	if verbose {
		args = append(args, "--verbose")
	}
	p := &process{cmd: exec.Command(self, args...)}
	p.cmd.Stderr = stderr
	if p.calls, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.lines = bufio.NewScanner(out)
	p.lines.Buffer(nil, maxOwnLine)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	return p, nil
}

func (p *process) do(c call) (reply, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return reply{}, err
	}
	if _, err := p.calls.Write(append(b, '\n')); err != nil {
		return reply{}, fmt.Errorf("the worker is gone: %w", err)
	}
	return readReply(p.lines, "worker")
}

// readReply reads one answer.
func readReply(lines *bufio.Scanner, who string) (reply, error) {
	if !lines.Scan() {
		return reply{}, fmt.Errorf("the %s ended before it answered: %w", who, cmp.Or(lines.Err(), io.ErrUnexpectedEOF))
	}
	var r reply
	if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
		return reply{}, fmt.Errorf("the %s's answer: %w", who, err)
	}
	if r.Error != "" {
		return r, &fieldError{r.Field, errors.New(r.Error)}
	}
	return r, nil
}

// end lets the worker close and waits for it.
func (p *process) end() error {
	_, err := p.do(call{Op: "close"})
	return errors.Join(err, p.calls.Close(), p.cmd.Wait())
}

// giveUp ends the worker at once: with a peer that is gone it would take its close deadline to close. How it ends does not matter any more.
func (p *process) giveUp() { _ = p.kill() }

// kill ends the worker as a crash would, and reaps it.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	_ = p.calls.Close()
	_ = p.cmd.Wait() // always an error: killed
	return err
}
