#!/usr/bin/env bash
# Kills processes in the middle of transfers and fences them with the default settle delay of 180 s: what the tests do with 1 s. SETTLE_DELAY is another.
set -euo pipefail
cd "$(dirname "$0")/.."

KVBOUNCE_TEST_SETTLE_DELAY=${SETTLE_DELAY:-180s} go test -count=1 -timeout 30m -parallel 3 -v -run '^TestFenceOfAKilledProcess$' ./wiring | sed '/^=== /d'
