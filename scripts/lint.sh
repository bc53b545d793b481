#!/usr/bin/env bash
# gofmt and go mod tidy over the repo, go vet and staticcheck over all packages or the given ones ("lint.sh ./core/wire/...").
set -euo pipefail
cd "$(dirname "$0")/.."
packages=("${@:-./...}")

say() { printf 'lint: %s\n' "$*"; }

say "gofmt"
# By file, not by package: files behind a build tag count too.
unformatted=$(find . \( -name .git -o -name .deps \) -prune -o -name '*.go' -print0 | xargs -0 gofmt -l)
if [ -n "$unformatted" ]; then
	say "not as gofmt writes them, run gofmt -w on:"
	printf '%s\n' "$unformatted"
	exit 1
fi

say "go vet"
go vet "${packages[@]}"

say "staticcheck"
go tool staticcheck "${packages[@]}"

say "go mod tidy"
go mod tidy -diff

say "scripts"
for script in .ci/run scripts/*.sh; do
	bash -n "$script"
done
