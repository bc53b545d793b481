#!/usr/bin/env bash
# Brings what building and testing kvbounce needs: a C compiler, pkg-config, libzmq's headers and pip as packages of the
# system, NIXL as a Python wheel unpacked into .deps/nixl. Only what is missing is installed; the second run changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

NIXL_VERSION=1.5.1
NIXL_DIR=.deps/nixl
NIXL_LIBRARY=.nixl_cu12.mesonpy.libs/libnixl_capi.so

say() { printf 'setup: %s\n' "$*"; }
die() {
	printf 'setup: %s\n' "$*" >&2
	exit 1
}

check_go() {
	local need have
	need=$(sed -n 's/^go \([0-9.]*\)$/\1/p' go.mod)
	command -v go >/dev/null ||
		die "Go $need or newer is needed and no 'go' is on PATH: install it (https://go.dev/doc/install), then run make setup again"
	# In this directory a go command that may switch toolchains has already switched, or says why it cannot.
	have=$(go env GOVERSION) || die "Go $need or newer is needed: install it (https://go.dev/doc/install), then run make setup again"
	have=${have#go}
	if [ "$(printf '%s\n' "$need" "${have%%[!0-9.]*}" | sort -V | head -n 1)" != "$need" ]; then
		die "Go $need or newer is needed, found $have: update it (https://go.dev/doc/install), then run make setup again"
	fi
	say "Go $have"
}

compiler_works() {
	local cc
	read -ra cc <<<"$(go env CC)" # CC may carry flags
	printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | "${cc[@]}" -x c - -o /dev/null 2>/dev/null
}

libzmq_found() { pkg-config --exists 'libzmq >= 4.2' 2>/dev/null; }

# python_with_pip prints a Python whose pip can download a wheel for another Python (pip 20 or newer). The system's
# own Python comes second: the first on PATH may be one without pip that apt cannot help.
python_with_pip() {
	local python
	for python in python3 /usr/bin/python3; do
		if "$python" -c 'import pip, sys; sys.exit(int(pip.__version__.split(".")[0]) < 20)' 2>/dev/null; then
			printf '%s\n' "$python"
			return 0
		fi
	done
	return 1
}

nixl_unpacked() { [ "$(cat "$NIXL_DIR/.wheel.sha256" 2>/dev/null)" = "$nixl_sha256" ] && [ -e "$NIXL_DIR/$NIXL_LIBRARY" ]; }

install_packages() {
	local missing=()
	compiler_works || missing+=(gcc libc6-dev)
	command -v pkg-config >/dev/null || missing+=(pkg-config)
	libzmq_found || missing+=(libzmq3-dev)
	nixl_unpacked || python_with_pip >/dev/null || missing+=(python3-pip)
	if [ ${#missing[@]} -eq 0 ]; then
		say "C compiler, pkg-config, libzmq $(pkg-config --modversion libzmq)"
		return
	fi
	command -v apt-get >/dev/null ||
		die "no apt-get here: install what Debian calls ${missing[*]} with your system's package manager, then run make setup again"
	local as_root=()
	if [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null ||
			die "root is needed: run as root 'apt-get update && apt-get install ${missing[*]}', then make setup again"
		as_root=(sudo)
	fi
	say "installing ${missing[*]}"
	"${as_root[@]}" apt-get update -q >/dev/null
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >/dev/null
	compiler_works || die "'$(go env CC)' still does not compile C: set CC to a working compiler"
	libzmq_found || die "pkg-config still does not find libzmq 4.2 or newer: check PKG_CONFIG_PATH"
}

# One Python ABI is named, whatever Python runs here: the C libraries inside do not use Python. The wheel is unpacked
# beside its place and moved there whole, so that an interrupted run leaves nothing that looks finished.
fetch_nixl() {
	if nixl_unpacked; then
		say "NIXL $NIXL_VERSION in $NIXL_DIR"
		return
	fi
	local python wheel="nixl_cu12-$NIXL_VERSION-cp312-cp312-$nixl_platform.whl"
	python=$(python_with_pip) || die "no pip 20 or newer found: install python3-pip, then run make setup again"
	say "downloading $wheel (66 MB)"
	mkdir -p .deps
	exec {lock}>.deps/lock
	flock "$lock"
	if nixl_unpacked; then # by the run that held the lock
		return
	fi
	rm -rf .deps/fetch.* # of a run that was killed
	local work
	work=$(mktemp -d .deps/fetch.XXXXXX)
	# shellcheck disable=SC2064 # $work is expanded now: it is local
	trap "rm -rf '$work'" EXIT
	"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 \
		--implementation cp --abi cp312 --platform "$nixl_platform" --dest "$work" "nixl-cu12==$NIXL_VERSION" ||
		die "pip could not download nixl-cu12 $NIXL_VERSION: check the network and pip's settings, then run make setup again"
	printf '%s  %s\n' "$nixl_sha256" "$work/$wheel" | sha256sum --check --status ||
		die "$wheel has SHA-256 $(sha256sum "$work/$wheel" | cut -d ' ' -f 1), expected $nixl_sha256: not used"
	"$python" -m zipfile -e "$work/$wheel" "$work/nixl"
	[ -e "$work/nixl/$NIXL_LIBRARY" ] || die "$wheel holds no $NIXL_LIBRARY"
	printf '%s\n' "$nixl_sha256" >"$work/nixl/.wheel.sha256"
	rm -rf "$NIXL_DIR"
	mv "$work/nixl" "$NIXL_DIR"
	say "NIXL $NIXL_VERSION unpacked into $NIXL_DIR"
}

[ "$(uname -s)" = Linux ] || die "only Linux is supported, this is $(uname -s)"
case $(uname -m) in
x86_64)
	nixl_platform=manylinux_2_28_x86_64
	nixl_sha256=a02005f84e498641b8fe02d058fdc6762c99edf7ae6430176d2d16fa57f4fb93
	;;
aarch64)
	nixl_platform=manylinux_2_28_aarch64
	nixl_sha256=98d4b169813a5110842aefc383ba3bf259a886cd09cc9d54c7a6db69bb36de4d
	;;
*) die "NIXL has no wheel for $(uname -m): x86_64 and aarch64 are supported" ;;
esac

check_go
install_packages
fetch_nixl
