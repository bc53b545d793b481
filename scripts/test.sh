#!/usr/bin/env bash
# Everything that CI runs, cheapest first. Expects make setup to have run.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p out

# Two processes over the real engine: a test run in which this one did not run proves little, so it is run by name.
real_test=TestTwoProcessesNIXL

say() { printf '\n== %s\n' "$*"; }
die() {
	printf 'test: %s\n' "$*" >&2
	exit 1
}

say "lint"
scripts/lint.sh

say "build without cgo: core, ports, simulator"
CGO_ENABLED=0 go build ./core/... ./ports/... ./adapters/sim/...

say "build for GPU memory: no GPU, no CUDA install"
scripts/build-cuda.sh

say "tests, race detector on"
go test -race -skip "^$real_test\$" ./...

say "tests that recount everything after every turn"
go test -tags invariants ./core/transport ./wiring/simulation

say "two processes, real NIXL"
mapfile -t directories < <(grep -rl --include='*_test.go' "^func $real_test(" cmd wiring | xargs -r dirname | sort -u)
[ ${#directories[@]} -gt 0 ] || die "no $real_test in cmd/ or wiring/"
go test -race -v -count=1 -run "^$real_test\$" "${directories[@]/#/./}" 2>&1 | tee out/nixl-test.log
grep -q "^--- PASS: $real_test " out/nixl-test.log || die "$real_test did not run to its end: see out/nixl-test.log"
! grep -q -- '--- SKIP: ' out/nixl-test.log || die "a part of $real_test was skipped: see out/nixl-test.log"

say "fuzz smoke"
scripts/fuzz.sh

say "all passed"
