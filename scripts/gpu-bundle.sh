#!/usr/bin/env bash
# Puts into out/gpu, and packs into out/gpu.tar.gz, what a machine with a GPU needs to run the command and the tests of GPU memory: with it, that machine needs NVIDIA's driver only, neither Go
# nor a network. The tests run in the folders of their packages, so scripts/test-gpu.sh wants a copy of the repository beside one of the two.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cuda-env.sh

bundle=out/gpu
rm -rf "$bundle"
mkdir -p "$bundle/lib"

go build -tags cuda -trimpath -ldflags="-s -w" -o "$bundle/kvbounce" ./cmd/kvbounce
go test -c -tags cuda -ldflags="-s -w" -o "$bundle/cuda.test" ./adapters/cuda
go test -c -tags cuda -ldflags="-s -w" -o "$bundle/wiring.test" ./wiring
go test -c -tags cuda -ldflags="-s -w" -o "$bundle/kvbounce.test" ./cmd/kvbounce

# What the command loads that a bare system lacks: libzmq and what it needs, and the runtime library that UCX's modules for CUDA ask for.
ldd "$bundle/kvbounce" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | while read -r library; do
	case $(basename "$library") in
	libc.so* | libm.so* | libresolv.so* | libgcc_s.so* | libstdc++.so* | libpthread.so* | libdl.so* | librt.so* | ld-linux* | libcuda.so*) ;;
	*) cp -L "$library" "$bundle/lib/" ;;
	esac
done
cp .deps/cuda/nvidia/cuda_runtime/lib/libcudart.so.12 "$bundle/lib/"

# Of NIXL's wheel, 66 MB packed, the libraries that the UCX plugin comes to.
wheel=.deps/nixl
mkdir -p "$bundle/nixl/.nixl_cu12.mesonpy.libs/plugins" "$bundle/nixl/nixl_cu12.libs/ucx"
cp "$wheel"/.nixl_cu12.mesonpy.libs/*.so "$bundle/nixl/.nixl_cu12.mesonpy.libs/"
cp "$wheel/.nixl_cu12.mesonpy.libs/plugins/libplugin_UCX.so" "$bundle/nixl/.nixl_cu12.mesonpy.libs/plugins/"
cp -a "$wheel"/nixl_cu12.libs/ucx/*.so* "$bundle/nixl/nixl_cu12.libs/ucx/"
rm -f "$bundle"/nixl/nixl_cu12.libs/ucx/libucx_perftest*
mkdir -p "$bundle/nixl/$(basename "$wheel"/nixl_cu12-*.dist-info)" # tells the version
needed() { find "$bundle/nixl" -name '*.so*' -type f -exec readelf -d {} + | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u; }
before=
while [ "$before" != "$(needed)" ]; do
	before=$(needed)
	for name in $before; do
		file=$wheel/nixl_cu12.libs/$name
		[ ! -e "$file" ] || [ -e "$bundle/nixl/nixl_cu12.libs/$name" ] || cp -L "$file" "$bundle/nixl/nixl_cu12.libs/"
	done
done
tar -czf out/gpu.tar.gz -C out gpu
printf 'gpu: %s, and packed %s\n' "$(du -sh "$bundle")" "$(du -sh out/gpu.tar.gz)"
