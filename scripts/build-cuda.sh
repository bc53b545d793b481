#!/usr/bin/env bash
# Builds bin/kvbounce-cuda, the command for GPU memory, and vets all that is built with the tag cuda. Needs neither a GPU nor a CUDA install; running it needs NVIDIA's driver.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cuda-env.sh

packages=(./adapters/cuda/... ./wiring/ ./wiring/doctor/ ./cmd/kvbounce/)
go vet -tags cuda "${packages[@]}"
go tool staticcheck -tags cuda "${packages[@]}"
go build -tags cuda -trimpath -buildvcs=true -o bin/kvbounce-cuda ./cmd/kvbounce
printf 'build: bin/kvbounce-cuda\n'
