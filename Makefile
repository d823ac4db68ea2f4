# `make help` lists the targets.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c

# gVisor's sentry re-executes itself in an empty root: a binary that needs a
# dynamic loader cannot start there, so nothing here is ever built with cgo.
export CGO_ENABLED := 0
# For all commands alike, so that building, vetting and testing share one cache:
# gVisor takes minutes to compile.
export GOFLAGS += -trimpath

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
BUILD       := go build -ldflags '-s -w'
EMBEDDED    := internal/agent/embedded/bin
FUZZTIME    ?= 60s
FUZZPKGS    ?= ./...
# For each package: ten times what the longest takes on an idle machine.
TESTTIME    ?= 30m
# Packages of which one or two tests that failed are run again, some five times alone, and
# named as unsteady if they pass: they drive daemons and boxes beside each other. None
# that is all about walls, limits or packets is among them (docs/development.md). AGAIN='^$$' is none at all.
AGAIN       ?= /(test/(api|compat|crash|e2e|field|load|mcp|neighbours)|internal/(engine|tier/tiertest))$$

.DEFAULT_GOAL := build

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 20

# The program inside a box goes into the binary. Without it (a plain go build)
# the binary itself serves, which is larger and starts slower.
.PHONY: agent
agent: ## build the programs that run inside boxes, for both architectures
	@for arch in amd64 arm64; do for p in sunaba-agent sunaba-agentd; do \
	GOOS=linux GOARCH=$$arch $(BUILD) -o $(EMBEDDED)/$$p-linux-$$arch ./cmd/$$p; done; done

.PHONY: proto
proto: ## write the Go code of the agent's protocol anew
	cd tools/genproto && GOFLAGS= go run . ../../internal/agent/agentpb agent.proto

.PHONY: build
build: agent ## write bin/sunaba for this machine
	$(BUILD) -o bin/sunaba ./cmd/sunaba

.PHONY: build-arm64
build-arm64: agent ## write bin/sunaba-arm64 (built, not tested here)
	GOOS=linux GOARCH=arm64 $(BUILD) -o bin/sunaba-arm64 ./cmd/sunaba

# Cheapest failures first: text, rules of the house, types, linter, behaviour.
.PHONY: test
test: fmt house vet staticcheck unit fuzz-gateway build-arm64 report ## everything that CI checks

.PHONY: fmt
fmt: ## fail if a file is not gofmt'ed
	@bad=$$(find . -name '.?*' -prune -o -name '*.go' -print | xargs gofmt -l); \
	if [ -n "$$bad" ]; then echo "run gofmt -w on:"; echo "$$bad"; exit 1; fi

.PHONY: house
house: ## the architecture's direction rules and the bans
	go test -count=1 ./internal/house/

.PHONY: vet
vet: ## go vet
	go vet ./...

.PHONY: staticcheck
staticcheck: ## staticcheck, pinned
	go run $(STATICCHECK) ./...

.PHONY: unit
unit: agent ## all Go tests, the real walls included; root and rootless
	@mkdir -p bin
	go run ./tools/testreport -again '$(AGAIN)' go test -count=1 -timeout $(TESTTIME) -json ./... | tee bin/test-report.txt

.PHONY: report
report:
	@grep '^UNSTEADY ' bin/test-report.txt || :; tail -n 1 bin/test-report.txt

# As many targets at a time as there are cores, with one worker each: for all of them
# the time is that of their part, and one that finds something ends it. Without a bound
# on it, a new input is made smaller for up to a minute, in which nothing is tried. Up to
# Go 1.26 the end of the time is now and then told as a failure of its own
# (golang/go#75804): that alone, without an input or any other word, is none.
.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME each (60s)
	@targets=""; for pkg in $$(go list $(FUZZPKGS)); do \
	  found=$$(go test -list '^Fuzz' $$pkg) || { echo "$$found"; exit 1; }; \
	  for target in $$(echo "$$found" | grep '^Fuzz'); do targets="$$targets $$pkg $$target"; done; \
	done; \
	echo $$targets | xargs -r -n 2 -P $$(nproc) sh -c ' \
	  out=$$(go test -run "^$$" -fuzz "^$$1$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x -parallel 1 $$0 2>&1) || \
	    [ "$$(echo "$$out" | grep -Ev "^(fuzz: elapsed: |FAIL|exit status 1$$)" | sed "s/ ([0-9.]*s)$$//")" = "$$(printf -- "--- FAIL: $$1\n    context deadline exceeded")" ] || \
	    { echo "$$0 $$1:"; echo "$$out"; exit 255; }; \
	  echo "$$0 $$1: $$(echo "$$out" | grep -o "execs: [0-9]*" | tail -n 1)"'

# What reads a box's packets, and what they are judged by: a little of it at every check.
.PHONY: fuzz-gateway
fuzz-gateway: ## the gateway's fuzz targets for 20s each
	@$(MAKE) --no-print-directory fuzz FUZZTIME=20s FUZZPKGS="./internal/hostname ./internal/egress/..."

.PHONY: compat
compat: build ## the long compatibility list; results go to docs/compat.md by hand
	go test -count=1 -timeout 180m -v -tags compat ./test/compat/...

# What is not installed is named in the result: docs/bench.md lists the packages.
.PHONY: bench
bench: bench-tiers bench-net ## both of the next two (root)

.PHONY: bench-tiers
bench-tiers: build ## measure the tiers beside other sandboxes (root); tables to bin/bench.md
	@$(BUILD) -o bin/bench ./tools/bench
	bin/bench -out bin/bench.md $(BENCHFLAGS)

.PHONY: bench-net
bench-net: build ## measure the network of boxes beside none and beside squid (root); tables to bin/bench-net.md
	@$(BUILD) -o bin/benchnet ./tools/benchnet
	bin/benchnet -out bin/bench-net.md $(NETFLAGS)

.PHONY: bench-neighbours
bench-neighbours: agent ## a neighbour's p99 without and with four nuisances beside it, as JSON, a line each tier (root)
	@go test -count=1 -timeout $(TESTTIME) -tags bench -run Latency -v ./test/neighbours | grep '^{'

.PHONY: load
load: agent ## 200 clients on one daemon for five minutes, which is killed now and then: wrong answers, p50, p99, leaks (root)
	go test -count=1 -timeout 30m -v -tags load ./test/load

.PHONY: crash
crash: agent ## kill the daemon at each named moment three times and 100 times at random; about ten minutes
	go test -count=1 -timeout 60m -v -tags crash ./test/crash

.PHONY: hostile
hostile: agent ## all attacks on the walls, those that CI has no time for included
	go test -count=1 -timeout 30m -v -tags hostile ./test/hostile

.PHONY: hostile-long
hostile-long: agent ## all attacks 20 times in random order, 4 boxes at once; hours
	go test -count=1 -timeout 12h -v -tags hostilelong -run InAnyOrder ./test/hostile

.PHONY: generate
generate: ## rewrite generated files (precompiled system-call filters)
	go generate ./...

.PHONY: clean
clean: ## remove what make wrote
	rm -rf bin $(EMBEDDED)/sunaba-*
