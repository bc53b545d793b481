#!/usr/bin/env bash
# Builds bin/kvbounce. Version and commit come from the build information that Go stamps from git.
set -euo pipefail
cd "$(dirname "$0")/.."

go build -trimpath -buildvcs=true -o bin/kvbounce ./cmd/kvbounce
printf 'build: bin/kvbounce\n'
