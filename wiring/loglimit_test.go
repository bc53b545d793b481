package wiring

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// limited is a logger with a limit, what it wrote, and a way to log at a given second.
func limited(rate int) (log *slog.Logger, out *bytes.Buffer, at func(log *slog.Logger, second float64, text string)) {
	out = &bytes.Buffer{}
	log = limitLog(slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})), rate)
	at = func(log *slog.Logger, second float64, text string) {
		when := time.Unix(1000, 0).Add(time.Duration(second * float64(time.Second)))
		_ = log.Handler().Handle(context.Background(), slog.NewRecord(when, slog.LevelWarn, text, 0))
	}
	return log, out, at
}

func TestLogRate(t *testing.T) {
	log, out, at := limited(3)
	for i := range 100 {
		at(log, float64(i)/1000, "flood")
	}
	at(log, 0.5, "other")
	at(log.With("agent", "a").WithGroup("g"), 0.6, "flood")
	at(log, 1.0, "flood")
	at(log, 1.1, "flood")
	require.Equal(t, strings.Join([]string{
		"level=WARN msg=flood", "level=WARN msg=flood", "level=WARN msg=flood", "level=WARN msg=other",
		"level=WARN msg=flood suppressed=98", "level=WARN msg=flood", "",
	}, "\n"), out.String())

	// A clock that was set back does not silence a text for long.
	at(log, -50, "flood")
	require.Equal(t, 6, strings.Count(out.String(), "msg=flood"))
}

func TestLogRateZeroIsNoLimit(t *testing.T) {
	log, out, at := limited(0)
	for range 1000 {
		at(log, 0, "x")
	}
	require.Equal(t, 1000, strings.Count(out.String(), "\n"))
}

// Texts without end, which no part of kvbounce makes, take no memory without end and don't pass without end.
func TestLogRateBoundsTexts(t *testing.T) {
	log, out, at := limited(1)
	for i := range 10_000 {
		at(log, 0, fmt.Sprint("text ", i))
	}
	require.Equal(t, limitedTexts+1, strings.Count(out.String(), "\n"))
	require.Len(t, log.Handler().(*limitedHandler).limits.texts, limitedTexts+1)
}
