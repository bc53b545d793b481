#!/usr/bin/env bash
# Makes the PTX of the kernels with NVRTC, which needs no GPU and no CUDA install: it comes as a Python wheel, into .deps/nvrtc. The version is the oldest of CUDA 12, since a driver
# loads PTX of its own version and older ones. Each file begins with hashes by which kernels/ptx_test.go knows that source and PTX belong together.
set -euo pipefail
cd "$(dirname "$0")/.."

WHEEL=nvidia-cuda-nvrtc-cu12
VERSION=12.0.140
SHA256=8e94e991d85c422de4da87bdc7472fdc1364367bd4aace7000b559cd33122071
SOURCES=(kernels/gather_scatter.cu adapters/cuda/testdata/reference.cu)

say() { printf 'ptx: %s\n' "$*"; }
die() {
	printf 'ptx: %s\n' "$*" >&2
	exit 1
}

[ "$(uname -m)" = x86_64 ] || die "made on x86_64 only: the wheel has no NVRTC $VERSION for $(uname -m)"
scripts/cuda-wheel.sh "$WHEEL" "$VERSION" "$SHA256" .deps/nvrtc
library=.deps/nvrtc/nvidia/cuda_nvrtc/lib/libnvrtc.so.12

for source in "${SOURCES[@]}"; do
	python3 - "$library" "$source" "${source%.cu}.ptx" "$WHEEL $VERSION" <<'PYTHON'
import ctypes, hashlib, os, sys

library, source, target, compiler = sys.argv[1:]
# NVRTC opens its second library by name.
for name in sorted(os.listdir(os.path.dirname(library))):
    if name.startswith("libnvrtc-builtins"):
        ctypes.CDLL(os.path.join(os.path.dirname(library), name), mode=ctypes.RTLD_GLOBAL)
nvrtc = ctypes.CDLL(library)
text = open(source, "rb").read()
options = [b"--gpu-architecture=compute_80", b"--std=c++17"]

program = ctypes.c_void_p()
def check(code, what):
    if code != 0:
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        sys.exit(f"ptx: {what} failed with code {code}\n{log.value.decode()}")

check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, os.path.basename(source).encode(), 0, None, None), "nvrtcCreateProgram")
check(nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)), f"compiling {source}")
size = ctypes.c_size_t()
check(nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)), "nvrtcGetPTXSize")
ptx = ctypes.create_string_buffer(size.value)
check(nvrtc.nvrtcGetPTX(program, ptx), "nvrtcGetPTX")
body = ptx.value.rstrip(b"\n") + b"\n"
header = (f"// Made from {os.path.basename(source)} by `make ptx`: change that, not this.\n"
          f"// compiler: {compiler}, options: {b' '.join(options).decode()}\n"
          f"// source sha256: {hashlib.sha256(text).hexdigest()}\n"
          f"// ptx sha256: {hashlib.sha256(body).hexdigest()}\n").encode()
with open(target, "wb") as f:
    f.write(header + body)
print(f"ptx: {target}, {len(header + body)} bytes")
PYTHON
done
