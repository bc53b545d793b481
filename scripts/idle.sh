#!/usr/bin/env bash
# Prints what an idle agent takes of a core, over 10 s, with each control channel, with and without memory registered for direct use.
set -euo pipefail
cd "$(dirname "$0")/.."

go vet -tags idle ./wiring
go test -tags idle -count=1 -v -run '^TestIdleCPU$' ./wiring | sed '/^=== RUN/d'
