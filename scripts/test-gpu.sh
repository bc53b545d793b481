#!/usr/bin/env bash
# What a machine with a GPU runs: the tests of adapters/cuda, wiring and cmd/kvbounce that need GPU memory, and the measurements of docs/gpu.md with "test-gpu.sh measure". It uses what
# scripts/gpu-bundle.sh made.
set -euo pipefail
cd "$(dirname "$0")/.."

[ -d out/gpu ] || tar -xzf out/gpu.tar.gz -C out
bundle=$PWD/out/gpu
# The driver's libraries are often in a folder that the loader does not know; UCX's modules need them and libcudart (docs/gpu.md).
export LD_LIBRARY_PATH=$bundle/lib:/usr/local/nvidia/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export KVBOUNCE_NIXL_LIB=$bundle/nixl

in_package() { # PACKAGE PROGRAM ARGUMENTS...: as go test does
	printf '\n== %s: %s\n' "$1" "${*:3}"
	(cd "$1" && "$bundle/$2" "${@:3}")
}

if [ "${1:-}" = measure ]; then
	in_package adapters/cuda cuda.test -test.run='^$' -test.bench=. -test.benchtime=1x
	in_package wiring wiring.test -test.run='^$' -test.bench=VRAM -test.benchtime=1x
	for flags in "" --one-process "--one-process --prepared"; do
		# shellcheck disable=SC2086 # several flags in one
		"$bundle/kvbounce" bench --memory vram $flags
	done
	exit
fi
in_package adapters/cuda cuda.test -test.timeout=5m -test.v
in_package wiring wiring.test -test.timeout=5m -test.run=VRAM -test.v
in_package cmd/kvbounce kvbounce.test -test.timeout=5m -test.run=VRAM -test.v
printf '\ngpu: all passed\n'
