#!/usr/bin/env bash
# Runs each fuzz target for FUZZTIME (default 10s), in all packages or the given ones ("fuzz.sh ./core/wire").
set -euo pipefail
cd "$(dirname "$0")/.."
time=${FUZZTIME:-10s}

# run_target runs one target of a package, its output into out/fuzz.log. Until Go 1.27 the end of -fuzztime can itself be
# reported as a failure, with no input to blame (go.dev/issue/75804): that outcome, and only that, is tried again.
run_target() {
	local package=$1 target=$2 try
	for try in 1 2 3; do
		if go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" </dev/null >out/fuzz.log 2>&1; then
			return 0
		fi
		if ! grep -qx '    context deadline exceeded' out/fuzz.log || grep -qiE 'failing input|panic' out/fuzz.log; then
			return 1
		fi
		printf 'fuzz: try %d ended on the deadline of -fuzztime itself\n' "$try"
	done
	return 1
}

mkdir -p out
count=0
while IFS=$'\t' read -r package directory; do
	targets=$(find "$directory" -maxdepth 1 -name '*_test.go' -exec sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' {} + | sort)
	for target in $targets; do
		printf 'fuzz: %s %s for %s\n' "$package" "$target" "$time"
		if ! run_target "$package" "$target"; then
			cat out/fuzz.log
			exit 1
		fi
		tail -n 1 out/fuzz.log
		count=$((count + 1))
	done
done < <(go list -f '{{.ImportPath}}{{"\t"}}{{.Dir}}' "${@:-./...}")

if [ "$count" -eq 0 ]; then
	printf 'fuzz: no fuzz target found\n' >&2
	exit 1
fi
printf 'fuzz: %d targets, nothing found\n' "$count"
