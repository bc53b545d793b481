#!/usr/bin/env bash
# Unpacks one of NVIDIA's Python wheels into a folder, unless it is there: cuda-wheel.sh NAME VERSION SHA256 FOLDER. Only what does not depend on the processor is used of it, or
# what runs here: so the wheel for x86_64 is taken everywhere.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1 version=$2 sha256=$3 folder=$4

mkdir -p .deps
exec {lock}>.deps/lock
flock "$lock"
if [ "$(cat "$folder/.wheel.sha256" 2>/dev/null)" = "$sha256" ]; then
	printf 'cuda: %s %s in %s\n' "$name" "$version" "$folder"
	exit 0
fi
python=
for candidate in python3 /usr/bin/python3; do
	if "$candidate" -c 'import pip' 2>/dev/null; then
		python=$candidate
		break
	fi
done
[ -n "$python" ] || {
	printf 'cuda: no Python with pip found: run make setup\n' >&2
	exit 1
}
printf 'cuda: downloading %s %s\n' "$name" "$version"
rm -rf .deps/fetch-cuda.* # of a run that was killed
work=$(mktemp -d .deps/fetch-cuda.XXXXXX)
trap 'rm -rf "$work"' EXIT
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux1_x86_64 \
	--platform manylinux2014_x86_64 --dest "$work" "$name==$version"
wheel=$(echo "$work"/*.whl)
printf '%s  %s\n' "$sha256" "$wheel" | sha256sum --check --status || {
	printf 'cuda: %s has SHA-256 %s, expected %s: not used\n' "$(basename "$wheel")" "$(sha256sum "$wheel" | cut -d ' ' -f 1)" "$sha256" >&2
	exit 1
}
"$python" -m zipfile -e "$wheel" "$work/unpacked"
printf '%s\n' "$sha256" >"$work/unpacked/.wheel.sha256"
rm -rf "$folder"
mv "$work/unpacked" "$folder"
