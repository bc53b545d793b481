package nixl

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvbounce/kvbounce/ports"
)

// Requests that nothing ended are a warning at the close, but not those to a peer that was given up, as a fenced one is.
func TestCloseTellsWhosePeersAreGone(t *testing.T) {
	for _, gone := range []bool{false, true} {
		a, b, _ := stuck(t, ports.Host)
		var log bytes.Buffer
		require.NoError(t, a.call(func() error { a.driver.logger = slog.New(slog.NewTextHandler(&log, nil)); return nil }))
		want := `level=WARN msg="closing with transfers that may still run" requests=1`
		if gone {
			a.Disconnect(b.identity)
			want = `level=INFO msg="closing with transfers that nothing ended; their peers are gone" requests=1`
		}
		require.NoError(t, a.Close())
		require.Contains(t, log.String(), want)
		require.Equal(t, gone, !bytes.Contains(log.Bytes(), []byte("WARN")))
	}
}
