#!/usr/bin/env bash
# Stops processes in the middle of transfers for up to 70 s, with the default timeouts: it costs requests, never bytes.
set -euo pipefail
cd "$(dirname "$0")/.."

go vet -tags pause ./cmd/kvbounce
go test -tags pause -count=1 -parallel 4 -v -run '^TestPausedForLong$' ./cmd/kvbounce | sed '/^=== RUN/d'
