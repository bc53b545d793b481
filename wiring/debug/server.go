package debug

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/kvbounce/kvbounce/ports"
)

// Where the object and the metrics are.
const (
	StatePath   = "/debug/kvbounce"
	MetricsPath = "/metrics"
)

// What one server bears.
const (
	maxConnections = 16
	maxHeaderBytes = 8 << 10
	readWithin     = 5 * time.Second
	writeWithin    = 10 * time.Second
	idleFor        = 30 * time.Second
	closeWithin    = 1500 * time.Millisecond // above answerWithin: a request under way gets its answer
)

// Server is a debug endpoint that runs.
type Server struct {
	http    *http.Server
	address string
	served  chan struct{}
}

// Serve opens the endpoint at unix:PATH or a loopback ADDRESS:PORT. clock is the agent's.
func Serve(address string, source Source, clock ports.Clock, log *slog.Logger) (*Server, error) {
	l, err := listen(address)
	if err != nil {
		return nil, fmt.Errorf("debug endpoint: %w", err)
	}
	s := &Server{address: addressOf(l.Addr()), served: make(chan struct{})}
	s.http = &http.Server{
		Handler: handler(&inspector{source: source, clock: clock, within: answerWithin}), MaxHeaderBytes: maxHeaderBytes, ReadTimeout: readWithin, WriteTimeout: writeWithin, IdleTimeout: idleFor,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(s.served)
		if err := s.http.Serve(bound(l, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
			log.Warn("the debug endpoint ended", "address", s.address, "err", err)
		}
	}()
	log.Info("debug endpoint", "address", s.address)
	return s, nil
}

func handler(i *inspector) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+StatePath, func(w http.ResponseWriter, r *http.Request) { writeState(w, i.state(r.Context())) })
	mux.Handle("GET "+MetricsPath, metrics(i))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "an agent of kvbounce\n%s  what it holds, as JSON\n%s  counters and gauges for Prometheus\n", StatePath, MetricsPath)
	})
	return local(mux)
}

// Address is where it listens, as doctor --attach takes it.
func (s *Server) Address() string { return s.address }

// Close ends the endpoint, and waits for requests under way, which are short, but not for what a client has only begun to say or does not read: that ends unanswered, and is no error. It removes the socket file. It may be called again, and of nil does nothing.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	<-s.served
	return err
}

func addressOf(a net.Addr) string {
	if a.Network() == "unix" {
		return unixPrefix + a.String()
	}
	return a.String()
}

// local refuses what a web page elsewhere could make a browser on this machine ask for: a name in Host that happens to lead here.
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocal(r.Host) {
			http.Error(w, "the Host header must be localhost or a loopback address", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func writeState(w http.ResponseWriter, s State) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(s) // the client went away
}
