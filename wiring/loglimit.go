package wiring

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// limitedTexts bounds how many texts are told apart. Those beyond it share one count.
const limitedTexts = 256

// limitLog bounds how many records of one text pass in a second (the setting LOG_RATE), so that a peer that does one wrong thing without end can't fill the log. The first
// record of a text that passes again carries, as "suppressed", how many did not. A rate of 0 is no limit.
func limitLog(log *slog.Logger, rate int) *slog.Logger {
	if rate == 0 {
		return log
	}
	return slog.New(&limitedHandler{Handler: log.Handler(), limits: &logLimits{rate: rate, texts: map[string]*textLimit{}}})
}

// logLimits are shared by all loggers that were made from one.
type logLimits struct {
	rate int

	mu    sync.Mutex
	texts map[string]*textLimit
}

// textLimit counts records of one text.
type textLimit struct {
	second     time.Time // begin of the present one
	passed     int       // in it
	suppressed int       // since the last that passed
}

// pass reports whether a record may pass, and how many before it did not.
func (l *logLimits) pass(text string, now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := l.texts[text]
	if limit == nil {
		if len(l.texts) >= limitedTexts {
			text = ""
		}
		if limit = l.texts[text]; limit == nil {
			limit = &textLimit{second: now}
			l.texts[text] = limit
		}
	}
	if since := now.Sub(limit.second); since >= time.Second || since < 0 {
		limit.second, limit.passed = now, 0
	}
	if limit.passed >= l.rate {
		limit.suppressed++
		return 0, false
	}
	limit.passed++
	suppressed, limit.suppressed = limit.suppressed, 0
	return suppressed, true
}

type limitedHandler struct {
	slog.Handler
	limits *logLimits
}

// Handle implements slog.Handler.
func (h *limitedHandler) Handle(ctx context.Context, r slog.Record) error {
	suppressed, ok := h.limits.pass(r.Message, r.Time)
	if !ok {
		return nil
	}
	if suppressed > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("suppressed", suppressed))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *limitedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limitedHandler{h.Handler.WithAttrs(attrs), h.limits}
}

// WithGroup implements slog.Handler.
func (h *limitedHandler) WithGroup(name string) slog.Handler {
	return &limitedHandler{h.Handler.WithGroup(name), h.limits}
}
