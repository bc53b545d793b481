package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring/layout"
)

// recv and send do what demo does between two terminals or hosts. The sender is the master: over one TCP connection it exchanges the agents'
// descriptions and tells the receiver when to poison and check its memory. The bytes themselves go through the engine.

// remoteOps is what a sender may ask of a receiver.
var remoteOps = map[string]bool{"open": true, "add": true, "poison": true, "check": true, "stats": true, "done": true}

// dialLimit bounds the wait for a receiver to answer.
const dialLimit = 10 * time.Second

// acceptAgain is how long recv waits after a connection that it could not take.
const acceptAgain = 100 * time.Millisecond

// near are settings whose control channel listens at the address that the two sides meet at, where they do not say another.
func near(cfg config.Config, meet net.Addr) config.Config {
	if at, err := netip.ParseAddrPort(meet.String()); err == nil && !at.Addr().IsUnspecified() && cfg.ControlBind == config.Default().ControlBind {
		cfg.ControlBind = "tcp://" + netip.AddrPortFrom(at.Addr().Unmap(), 0).String()
	}
	return cfg
}

// peerOf is what a sender's --peer may be for a receiver that listens on an address. Where that is every address, it is the one of the default route, which source looks up.
func peerOf(listens net.Addr, source func(network, to string) (net.IP, error)) string {
	at, err := netip.ParseAddrPort(listens.String())
	if err != nil || !at.Addr().IsUnspecified() {
		return listens.String()
	}
	host := "127.0.0.1" // without a route this host alone is sure to get there
	// Addresses that no machine has (documentation, RFC 5737 and RFC 3849), so that only a default route leads there.
	for _, far := range [][2]string{{"udp4", "203.0.113.1:9"}, {"udp6", "[2001:db8::1]:9"}} {
		if ip, err := source(far[0], far[1]); err == nil {
			host = ip.String()
			break
		}
	}
	return fmt.Sprintf("%s (or another address of this host)", net.JoinHostPort(host, strconv.Itoa(int(at.Port()))))
}

// routeSource is the address of this host that packets to another would carry. It connects a UDP socket, which looks the route up and sends nothing.
func routeSource(network, to string) (net.IP, error) {
	conn, err := net.Dial(network, to)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).IP, nil
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
			cfg, err := bounceConfig(os.Environ(), a.log)
			if err != nil {
				return err
			}
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return &fieldError{"listen", fmt.Errorf("--listen %s: %w; choose another address or port", listen, err)}
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return a.receive(ctx, l, near(cfg, l.Addr()), name, memory.place, once)
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
	Broken  int    `json:"failed_sessions"`
}

// receive serves senders, each with an agent of its own, until the context ends.
func (a *app) receive(ctx context.Context, l net.Listener, cfg config.Config, name string, place ports.Place, once bool) error {
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	fmt.Fprintf(a.err, "recv: listening on %s; start: kvbounce send --peer %s\n", l.Addr(), peerOf(l.Addr(), routeSource))
	var total received
	var mu sync.Mutex
	var wg sync.WaitGroup
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			break
		}
		if err != nil { // as when there are no more descriptors: senders that end give theirs back
			a.log.Warn("recv: a connection can't be taken; it goes on", "err", err)
			time.Sleep(acceptAgain)
			continue
		}
		total.Senders++
		wg.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			r := &receiver{worker: *a.newWorker(cfg, nil), name: name, place: place}
			ended := "done"
			err := r.serve(conn)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				total.Broken++
				ended = "failed, " + plain(joinLines.Replace(err.Error()))
			}
			total.Checked += r.checked
			total.Failed += r.failed
			fmt.Fprintf(a.err, "recv: %s %s: %d bytes checked, %d checks failed\n", conn.RemoteAddr(), ended, r.checked, r.failed)
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
		fmt.Fprintf(a.out, "senders: %d, bytes checked: %d, checks failed: %d, sessions failed: %d\n", total.Senders, total.Checked, total.Failed, total.Broken)
	}
	switch {
	case total.Failed == 0 && (!once || total.Broken == 0):
		return nil
	case a.json:
		return errReported
	case total.Failed > 0:
		return errors.New("received bytes were wrong")
	}
	return errors.New("the sender's session failed")
}

// receiver is a worker whose master is a sender elsewhere.
type receiver struct {
	worker
	name    string
	place   ports.Place
	checked uint64
	failed  int
	warned  bool
	done    bool // the sender says that all went well
}

func (r *receiver) serve(conn io.ReadWriter) error {
	err := serve(r, conn, conn, maxLine)
	if !r.done {
		err = errors.Join(errors.New("the sender broke off"), err)
	}
	return err
}

func (r *receiver) do(c call) (reply, error) {
	if !remoteOps[c.Op] {
		return reply{}, fmt.Errorf("%q is not for a sender to ask", c.Op)
	}
	if c.Op == "done" {
		r.done = true
		return reply{}, nil
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
	defer a.interruptible()()
	cfg, err := bounceConfig(os.Environ(), a.log)
	if err != nil {
		return err
	}
	conn, err := net.DialTimeout("tcp", peer, dialLimit)
	if err != nil {
		return &fieldError{"peer", fmt.Errorf("--peer %s: %w; start kvbounce recv there first", peer, err)}
	}
	return a.compare(f, []party{a.newWorker(near(cfg, conn.LocalAddr()), nil), newRemote(conn)}, 0)
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

// end says that all went well, whatever the receiver says to that, and leaves.
func (r *remote) end() error {
	_, _ = r.do(call{Op: "done"})
	return r.conn.Close()
}

// giveUp leaves without a word, which tells the receiver that something went wrong.
func (r *remote) giveUp() { _ = r.conn.Close() }
