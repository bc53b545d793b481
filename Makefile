# Each target is one script or one command; scripts/*.sh can be run by themselves too.
.DEFAULT_GOAL := help
.NOTPARALLEL: # setup comes before what needs it
.PHONY: help setup build demo test lint fuzz cover clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do printf '  make %-8s %s\n' "$$name" "$$text"; done

setup: ## install what is missing: compiler, libzmq, pip, NIXL (into .deps/)
	@scripts/setup.sh

build: ## build bin/kvbounce
	@scripts/build.sh

demo: setup build ## move a KV layout between two processes and check every byte
	@./bin/kvbounce demo

test: setup ## everything CI runs: lint, all tests with the race detector, real NIXL, fuzz smoke
	@scripts/test.sh

lint: ## gofmt, go vet, staticcheck, go mod tidy
	@scripts/lint.sh

fuzz: ## run each fuzz target for FUZZTIME (default 10s)
	@scripts/fuzz.sh

cover: ## statement coverage of the whole repo into out/cover.html
	@mkdir -p out
	@go test -coverpkg=./... -coverprofile=out/cover.out ./...
	@go tool cover -html=out/cover.out -o out/cover.html
	@go tool cover -func=out/cover.out | tail -n 1

clean: ## remove bin/ and out/ (.deps/ stays)
	@rm -rf bin out
