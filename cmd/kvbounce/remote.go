package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

// recv and send do what demo does between two terminals or hosts. The sender is the master: over one TCP connection it exchanges the agents'
// descriptions and tells the receiver when to poison and check its memory. The bytes themselves go through the engine.

// remoteOps is what a sender may ask of a receiver.
var remoteOps = map[string]bool{"open": true, "add": true, "poison": true, "check": true, "stats": true}

// dialLimit bounds the wait for a receiver to answer.
const dialLimit = 10 * time.Second

// nearConfig are the settings with bounce on. Where they do not say where the control channel listens, it is the address that the two sides meet at.
func nearConfig(environ []string, meet string, log *slog.Logger) (config.Config, error) {
	settings, err := wiring.ReadSettings(environ)
	cfg := settings.Config
	if err != nil {
		return cfg, err
	}
	for _, w := range settings.Warnings {
		log.Warn(w)
	}
	cfg.Enable = true
	host, _, err := net.SplitHostPort(meet)
	if err != nil {
		return cfg, err
	}
	if ip, err := netip.ParseAddr(host); err == nil && !ip.IsUnspecified() && cfg.ControlBind == config.Default().ControlBind {
		cfg.ControlBind = "tcp://" + net.JoinHostPort(ip.Unmap().String(), "0")
	}
	return cfg, nil
}

func (a *app) recv() *cobra.Command {
	var listen, name string
	var memory memoryFlag
	var once bool
	cmd := &cobra.Command{
		Use:   "recv",
		Short: "Receive transfers from `kvbounce send` on another terminal or host, and check their bytes",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !isHostPort(listen) {
				return badUsage("listen", "--listen is %q, want ADDRESS:PORT, port 0 for any free one", listen)
			}
			if err := checkName(name); err != nil {
				return err
			}
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return &fieldError{"listen", fmt.Errorf("--listen %s: %w; choose another address or port", listen, err)}
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return a.receive(ctx, l, name, memory.place, once)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:7701", "where senders connect")
	cmd.Flags().StringVar(&name, "name", "recv", "the agent's name")
	cmd.Flags().Var(&memory, "memory", memoryHelp)
	cmd.Flags().BoolVar(&once, "once", false, "end after the first sender")
	return cmd
}

// isHostPort reports whether text has the form of HOST:PORT, the port a number or a service's name.
func isHostPort(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	return err == nil
}

// checkName says what is wrong with an agent's name in --name.
func checkName(name string) error {
	if err := ports.ValidateName(name); err != nil {
		return badUsage("name", "--name: %v", err)
	}
	return nil
}

// received is recv's JSON, once it ends.
type received struct {
	Senders int    `json:"senders"`
	Checked uint64 `json:"bytes_checked"`
	Failed  int    `json:"failed_checks"`
}

// receive serves senders, each with an agent of its own, until the context ends.
func (a *app) receive(ctx context.Context, l net.Listener, name string, place ports.Place, once bool) error {
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	cfg, err := nearConfig(os.Environ(), l.Addr().String(), a.log)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.err, "recv: listening on %s; start: kvbounce send --peer %s\n", l.Addr(), l.Addr())
	var total received
	var mu sync.Mutex
	var wg sync.WaitGroup
	for {
		conn, err := l.Accept()
		if err != nil {
			break // the listener was closed
		}
		total.Senders++
		wg.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			r := &receiver{worker: *a.newWorker(cfg, nil), name: name, place: place}
			if err := r.serve(conn); err != nil {
				a.log.Warn("a sender's session ended with an error", "sender", conn.RemoteAddr(), "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			total.Checked += r.checked
			total.Failed += r.failed
			fmt.Fprintf(a.err, "recv: %s done: %d bytes checked, %d checks failed\n", conn.RemoteAddr(), r.checked, r.failed)
		})
		if once {
			break
		}
	}
	wg.Wait()
	if a.json {
		if err := a.print(total); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(a.out, "senders: %d, bytes checked: %d, checks failed: %d\n", total.Senders, total.Checked, total.Failed)
	}
	if total.Failed > 0 {
		return errors.New("received bytes were wrong")
	}
	return nil
}

// receiver is a worker whose master is a sender elsewhere.
type receiver struct {
	worker
	name    string
	place   ports.Place
	checked uint64
	failed  int
	warned  bool
}

func (r *receiver) serve(conn io.ReadWriter) error {
	return serve(r, conn, conn, maxLine)
}

func (r *receiver) do(c call) (reply, error) {
	if !remoteOps[c.Op] {
		return reply{}, fmt.Errorf("%q is not for a sender to ask", c.Op)
	}
	c.Name, c.Lists = r.name, nil // a preset's memory has its size; a stranger's lists could ask for any
	if c.Op == "open" {
		c.Place = r.place
	}
	out, err := r.worker.do(c)
	if err != nil && !r.warned {
		r.warned = true // once a session: a stranger could ask for ever
		r.log.Warn("what a sender asked for failed", "operation", c.Op, "err", err)
	}
	if c.Op == "check" {
		r.checked += out.Checked
		if err != nil {
			r.failed++
		}
	}
	return out, err
}

func (a *app) send() *cobra.Command {
	f := demoFlags{engine: engineNIXL}
	var peer string
	cmd := &cobra.Command{
		Use:   "send",
		Short: "Send a layout to `kvbounce recv` on another terminal or host, over both paths, and have every byte checked there",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if !isHostPort(peer) {
				return badUsage("peer", "--peer is %q, want the ADDRESS:PORT that kvbounce recv printed", peer)
			}
			if err := cmp.Or(checkName(f.name), f.check(), f.checkPreset()); err != nil {
				return err
			}
			return a.sendTo(peer, f)
		},
	}
	cmd.Flags().StringVar(&peer, "peer", "127.0.0.1:7701", "where kvbounce recv listens")
	cmd.Flags().StringVar(&f.name, "name", "send", "the agent's name")
	cmd.Flags().StringVar(&f.layout, "layout", "paged-4k", "a preset: "+strings.Join(layout.Names(), ", "))
	cmd.Flags().Var(&f.memory, "memory", memoryHelp)
	cmd.Flags().IntVar(&f.rounds, "rounds", 8, "transfers on each path")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "of the layout and of the bytes")
	return cmd
}

func (a *app) sendTo(peer string, f demoFlags) error {
	conn, err := net.DialTimeout("tcp", peer, dialLimit)
	if err != nil {
		return &fieldError{"peer", fmt.Errorf("--peer %s: %w; start kvbounce recv there first", peer, err)}
	}
	cfg, err := nearConfig(os.Environ(), conn.LocalAddr().String(), a.log)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	return a.compare(f, []party{a.newWorker(cfg, nil), newRemote(conn)}, 0)
}

// remote is a receiver elsewhere, as a sender sees it.
type remote struct {
	conn  net.Conn
	lines *bufio.Scanner
}

func newRemote(conn net.Conn) *remote {
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, maxLine)
	return &remote{conn, lines}
}

func (r *remote) do(c call) (reply, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return reply{}, err
	}
	if _, err := r.conn.Write(append(b, '\n')); err != nil {
		return reply{}, fmt.Errorf("the receiver is gone: %w", err)
	}
	answer, err := readReply(r.lines, "receiver")
	if answer.Error != "" {
		// Its error is about its side: its settings, its memory, its checks.
		return answer, &fieldError{answer.Field, fmt.Errorf("the receiver at %s says: %s", r.conn.RemoteAddr(), answer.Error)}
	}
	return answer, err
}

func (r *remote) end() error { return r.conn.Close() }
