#!/usr/bin/env bash
# Puts into .deps/cuda what building with the tag cuda needs where no CUDA is installed: NVIDIA's headers, and a stub of the driver's library to link against. A program so built runs where
# there is a driver. CUDA 13's headers do not do: gorgonia.org/cu calls cuCtxCreate as it was until 12.
set -euo pipefail
cd "$(dirname "$0")/.."
WHEEL=nvidia-cuda-runtime-cu12
VERSION=12.0.146
SHA256=18c038592af387684812fa712642aa9a26c12da80acb488b6709f7cced147f71
CUDA=.deps/cuda

scripts/cuda-wheel.sh "$WHEEL" "$VERSION" "$SHA256" "$CUDA"
stub=$CUDA/stub/libcuda.so
header=$CUDA/nvidia/cuda_runtime/include/cuda.h
if [ ! -e "$stub" ]; then
	mkdir -p "$CUDA/stub"
	# Every function that the header declares or renames (cuMemAlloc is cuMemAlloc_v2 to the linker). 34 is CUDA_ERROR_STUB_LIBRARY.
	grep -oE '\bcu[A-Z][A-Za-z0-9]*(_v[0-9]+|_ptsz|_ptds)*\b' "$header" | sort -u | sed 's/.*/int &(void) { return 34; }/' >"$CUDA/stub/stub.c"
	read -ra cc <<<"$(go env CC)"
	"${cc[@]}" -shared -fPIC -w -Wl,-soname,libcuda.so.1 -o "$stub.new" "$CUDA/stub/stub.c"
	mv "$stub.new" "$stub"
fi
