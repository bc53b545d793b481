# Each target is one script or one command; scripts/*.sh can be run by themselves too.
.DEFAULT_GOAL := help
.NOTPARALLEL: # setup comes before what needs it
.PHONY: help setup build build-cuda test-gpu ptx demo test lint fuzz cover mutations soak idle pause settle clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

setup: ## install what is missing: compiler, libzmq, pip, NIXL (into .deps/)
	@scripts/setup.sh

build: ## build bin/kvbounce
	@scripts/build.sh

build-cuda: setup ## build bin/kvbounce-cuda, for GPU memory; needs neither a GPU nor a CUDA install
	@scripts/build-cuda.sh

test-gpu: setup ## what a machine with a GPU runs: every test of GPU memory
	@scripts/gpu-bundle.sh
	@scripts/test-gpu.sh

ptx: ## make the kernels' PTX anew, after a change of kernels/*.cu
	@scripts/cuda-ptx.sh

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

mutations: ## switch on each deliberate bug of the core, count the seeds until the simulator sees it, write docs/mutations.md
	@KVBOUNCE_MUTATIONS_OUT=$(CURDIR)/docs/mutations.md go test -tags mutations -count=1 -run TestMutationsAreCaught ./wiring/simulation

soak: ## run 10 million requests of each kind and see that no memory stays: successful, cancelled, mixed
	@KVBOUNCE_SOAK=10000000 go test -count=1 -timeout 0 -v -run TestRequestsLeaveNothing ./wiring/simulation

idle: setup ## measure what an idle agent takes of a core, with each control channel
	@scripts/idle.sh

pause: setup ## stop processes for 70 s in the middle of transfers: no byte is lost and all quiesces without a fence
	@scripts/pause.sh

settle: setup ## fence killed processes with the default settle delay of 180 s
	@scripts/settle.sh

clean: ## remove bin/ and out/ (.deps/ stays)
	@rm -rf bin out
