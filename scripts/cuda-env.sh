# shellcheck shell=bash
# Sourced by what compiles with the tag cuda, in the repository: sets up .deps/cuda and tells cgo of it. A CUDA 12 install that CGO_CFLAGS and CGO_LDFLAGS already name comes first.
scripts/cuda-setup.sh
export CGO_CFLAGS="${CGO_CFLAGS:--O2 -g} -I$PWD/.deps/cuda/nvidia/cuda_runtime/include"
export CGO_LDFLAGS="${CGO_LDFLAGS:-} -L$PWD/.deps/cuda/stub"
