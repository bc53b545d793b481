package debug

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	fetchWithin = 10 * time.Second
	// maxState is above what an agent says whose MAX_PEERS strangers have the longest names, of characters that JSON writes in six bytes each, and hold a region each. Decoded, an answer takes up to a hundred times its
	// length if someone means it to.
	maxState = 32 << 20
)

// CheckAddress reports whether address has the form of unix:PATH or HOST:PORT. HOST may be another machine's only where something forwards the port.
func CheckAddress(address string) error {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok && path != "" {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" || strings.HasPrefix(address, unixPrefix) {
		return fmt.Errorf("%q is neither unix:PATH nor HOST:PORT", address)
	}
	return nil
}

// Fetch asks the endpoint at address, as CheckAddress wants it, for its state.
func Fetch(ctx context.Context, address string) (s State, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchWithin)
	defer cancel()
	// Whatever the address, the endpoint wants to be asked as localhost.
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+StatePath, nil)
	if err != nil {
		return s, err
	}
	network := "tcp"
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		network, address = "unix", path
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		var wrapped *net.OpError
		if errors.As(err, &wrapped) {
			err = wrapped
		}
		return s, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		// The status's words are whatever the server likes.
		return s, fmt.Errorf("it answered with status %d: it is no agent's debug endpoint", response.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxState+1))
	if err != nil {
		return s, fmt.Errorf("reading its answer: %w", err)
	}
	if len(text) > maxState {
		return s, fmt.Errorf("its answer is too long: allowed are %d MiB", maxState>>20)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("it answered what is no agent's state: %w", err)
	}
	if s.Agent == "" {
		return s, errors.New("it answered what is no agent's state: it names no agent")
	}
	return s, nil
}
