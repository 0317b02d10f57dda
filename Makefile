# Bare make prints what there is. Tools and the control plane that the tests run
# are built once per machine into CACHE, outside the checkout.

SHELL := /bin/bash
# A test whose output goes through grep must still fail its target.
.SHELLFLAGS := -o pipefail -c
CACHE ?= $(or $(WATERSHED_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/watershed)
export WATERSHED_CACHE := $(CACHE)

GOLANGCI_VERSION := v2.14.0
GOLANGCI := $(CACHE)/golangci-lint/$(GOLANGCI_VERSION)/golangci-lint
GOTESTSUM_VERSION := v1.13.0
GOTESTSUM := $(CACHE)/gotestsum/$(GOTESTSUM_VERSION)/gotestsum
# The folder for the results of race and e2e, one file of go test -json each.
RESULTS ?= $(CURDIR)/dist/tests

MODULES := . metrics cmd/watershed conformance examples/gin examples/operator
# The packages that users get, of all modules that are published.
PACKAGES := ./... ./metrics/... ./cmd/watershed/...
# A module that is not in go.work, because it needs replace directives.
ORACLE := cmd/watershed/internal/rbac/oracle
# A module that is not in go.work, because it has many dependencies.
PROMETHEUS := conformance/prometheus
FUZZTIME ?= 60s
N ?= 1
NAME ?= store

.PHONY: help
help: ## print this
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: check
check: $(GOLANGCI) ## gofmt, linters (go vet among them), layout rules
	@test -z "$$(gofmt -l .)" || { echo "gofmt is needed on:"; gofmt -l .; exit 1; }
	$(GOLANGCI) run --allow-parallel-runners $(addsuffix /...,$(patsubst %,./%,$(MODULES)))
	go vet -tags invariants ./store ./internal/buffer ./wire
	go test ./internal/layout/...

.PHONY: modules
modules: ## what is published works without the checkout: tidy modules, go install, a user's build
	internal/layout/modules.sh
	cd internal/kubetest/binaries/etcd && GOWORK=off go mod tidy -diff
	cd $(ORACLE) && GOWORK=off go mod tidy -diff

.PHONY: tidy
tidy: ## go mod tidy in every module
	internal/layout/modules.sh -write
	cd internal/kubetest/binaries/etcd && GOWORK=off go mod tidy
	cd $(ORACLE) && GOWORK=off go mod tidy

.PHONY: test
test: ## unit tests and a short differential run; no Kubernetes needed
	go test -short $(PACKAGES)
	cd conformance && go test -short ./...

# $(call packages,PATTERN,FILES) lists the tested packages in which one of the files matches the pattern. Every test
# runs at least once: with -short in race if its package has goroutines or locks, and in e2e if its package has tests
# that are longer without -short or need a control plane, or if race leaves its package out, as it does with the
# examples and the programs of the tests.
TESTED = $(PACKAGES) ./conformance/bench/... ./conformance/compat ./conformance/cuts ./conformance/diff/... ./conformance/servers
concurrent := (^|[^a-z])(go func|go [a-z][A-Za-z.]*\(|sync\.|atomic\.|chan )
longer := testing\.Short|kubetest|WATERSHED_
packages = go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}} {{.ImportPath}}{{end}}' $(TESTED) | \
	while read -r dir path; do if grep -qsE '$($(1))' $$dir/$(2); then echo $$path; fi; done
RACED = $(shell $(call packages,concurrent,*.go) | grep -v -e /examples -e /internal/kubetest -e /internal/layout)
LONGER = $(shell $(call packages,longer,*_test.go))

# check runs vet for all packages, so the tests do not: each run of vet reads all dependencies again.
GOTEST = $(GOTESTSUM) --format pkgname --jsonfile $(RESULTS)/$@.json -- -vet=off

.PHONY: race
race: $(GOTESTSUM) ## unit tests and a short differential run, with the race detector and index invariants
	@mkdir -p $(RESULTS)
	CGO_ENABLED=1 $(GOTEST) -short -race -tags invariants $(RACED)

# At the end of its time the fuzzer sometimes takes its own deadline for a failure of
# the target. A failure that is one has a failing input.
.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME each (default 60s); race runs their stored inputs
	@set -e; for p in $$(go list $(PACKAGES)); do d=$$(go list -f '{{.Dir}}' $$p); \
		for f in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$d/*_test.go 2>/dev/null | sed 's/func //'); do \
			echo "$$p $$f"; out=$$(go test $$p -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x 2>&1) || \
				{ echo "$$out"; grep -q 'context deadline exceeded' <<<"$$out" && ! grep -q 'Failing input' <<<"$$out" || exit 1; }; \
			tail -1 <<<"$$out"; done; done

# Another Kubernetes than the pinned one, for kube, e2e and cluster. Not taken from
# a VERSION in the environment, which is likely to mean something else.
VERSION := $(WATERSHED_KUBE_VERSION)
export WATERSHED_KUBE_VERSION := $(VERSION)

.PHONY: kube
kube: ## build etcd, Kubernetes, kubectl and kwok for the tests (minutes, once per machine); VERSION=v1.33.13 for another Kubernetes
	go run ./internal/kubetest/kubebuild

.PHONY: cluster
cluster: ## run a complete cluster on loopback until Ctrl-C; N=3 runs three
	@go build -o $(CACHE)/kubecluster ./internal/kubetest/kubecluster
	@exec $(CACHE)/kubecluster -n $(N)

# What e2e tests: the packages with the longest tests first, so that none runs alone at the end.
# Left out are the layout rules, which check tests, and package storage, which needs no
# control plane: race runs it, and files in full. Package diff and the benchmarks need none either.
E2E = ./conformance/replica ./conformance/replicas ./cmd/watershed . ./fleet ./conformance/soak ./internal/kubetest/simulated ./conformance/compat \
	$(filter-out %/internal/layout %/internal/storage %/conformance/bench %/bench/harness %/bench/operators %/conformance/diff, \
	$(LONGER) $(filter-out $(RACED),$(shell go list $(PACKAGES)))) ./conformance/servers ./conformance/snippets ./examples/gin/... ./examples/operator/...

# Three packages at a time: with two, a sixth of the processors is idle, because these tests wait for servers.
.PHONY: e2e
e2e: $(GOTESTSUM) ## the tests against a real control plane, and what race leaves out; needs make kube, with the same VERSION
	@mkdir -p $(RESULTS)
	WATERSHED_KUBE=required $(GOTEST) -timeout 30m -p 3 $(E2E)

.PHONY: slowest
slowest: $(GOTESTSUM) ## the ten slowest tests of the last race and e2e
	@cat $(RESULTS)/*.json | $(GOTESTSUM) tool slowest --num 10

.PHONY: files
files: ## stored objects: every byte of the files damaged, hundreds of random histories and kills
	go test -timeout 60m -count=1 -v ./internal/storage -object.histories 2000

CASES ?= 1000000

.PHONY: oracle
oracle: ## RBAC decisions against those of kube-apiserver's authorizer: CASES random requests (default 1000000)
	cd $(ORACLE) && GOWORK=off go vet . && GOWORK=off go test -count=1 -v . -cases $(CASES)

.PHONY: cuts
cuts: ## for how long informers, compat, a fleet and client-go have no watch, when watches are cut and a real API server restarts; needs make kube
	cd conformance && WATERSHED_KUBE=required go test -timeout 30m -count=1 -v ./cuts -cuts.full | grep --line-buffered -v '^ *[IWE][0-9]'

ROUNDS ?= 20

.PHONY: chaos
chaos: ## random writes while servers are killed and connections break, ROUNDS times (default 20)
	WATERSHED_KUBE=required go test -timeout 120m -v -run '^TestChaos$$' . -chaos.rounds $(ROUNDS) | grep --line-buffered -v '^ *[IWE][0-9]'

.PHONY: fleet
fleet: ## three clusters whose types, credentials and servers come and go, ROUNDS times (default 20)
	WATERSHED_KUBE=required go test -timeout 120m -count=1 -v -run '^TestChaos$$' ./fleet -fleet.rounds $(ROUNDS) | grep --line-buffered -v '^ *[IWE][0-9]'

.PHONY: sources
sources: ## configuration and sources of clusters change and fail at random while a watch is open, ROUNDS times (default 20)
	go test -timeout 120m -count=1 -v -run '^TestSources_chaos$$' ./cmd/watershed -sources.rounds $(ROUNDS) | grep --line-buffered -v '^ *[IWE][0-9]'

.PHONY: group
group: ## two replicas of a group, 12 clusters and clients of all kinds: kills, stops, partitions, lost Leases, clocks an hour off, ROUNDS times (default 30); needs make kube
	cd conformance && WATERSHED_KUBE=required go test -timeout 120m -count=1 -v -run '^(TestGroup|TestJoin)$$' ./replicas -group.rounds $(if $(filter file,$(origin ROUNDS)),30,$(ROUNDS)) -group.clocks | grep --line-buffered -v '^ *[IWE][0-9]'

CONNECTIONS ?= 10000

.PHONY: attack
attack: ## slow and half-open connections, CONNECTIONS of them (default 10000), and hostile clusters: memory, and what other clients notice
	WATERSHED_ATTACK=$(CONNECTIONS) go test -timeout 10m -count=1 -v -run '^TestAttack' ./cmd/watershed/internal/serving
	WATERSHED_ATTACK=$(CONNECTIONS) go test -timeout 20m -count=1 -v -run '^TestHostile' ./fleet

STREAMS ?= 1000

.PHONY: streams
streams: ## STREAMS (default 1000) commands and followed logs at once through a replica with --pass-through: memory, latencies, leaks; needs make kube
	cd conformance && WATERSHED_KUBE=required go test -timeout 20m -count=1 -v -run '^TestConnections_(many|faults)$$' ./replica -streams $(STREAMS)

.PHONY: helm
helm: ## helm reads and writes releases through the program with a user's token; builds helm (minutes, once per machine), needs make kube
	go run ./internal/kubetest/kubebuild -helm
	WATERSHED_KUBE=required WATERSHED_HELM=required go test -count=1 -v -run '^TestHelm$$' ./cmd/watershed
	cd conformance && WATERSHED_KUBE=required WATERSHED_HELM=required go test -count=1 -v -run '^TestWrites$$/^helm$$' ./replica

DIR ?=

.PHONY: ecosystem
ecosystem: ## k9s, Headlamp's server, kube-state-metrics, stern, popeye and kubernetes-mcp-server at the API server and through the program; DIR has them, see docs/ecosystem.md
	@test -n "$(DIR)" || { echo "DIR is the folder with the programs: docs/ecosystem.md describes how to build them"; exit 1; }
	cd conformance && WATERSHED_KUBE=required WATERSHED_ECOSYSTEM=$(abspath $(DIR)) go test -timeout 40m -count=1 -v -run '^TestEcosystem$$' ./ecosystem | grep --line-buffered -av '^ *[IWE][0-9]'

.PHONY: dashboards
dashboards: ## dashboard and alerts on a real Prometheus that scrapes the program under load; needs Debian's package prometheus
	WATERSHED_PROMETHEUS=required go test -count=1 -v -run '^(TestPrometheus|TestAlertRules)$$' ./cmd/watershed

SIZE ?= full

.PHONY: operator
operator: ## the example operator with either cache, beside 20,000 secrets and 30,000 pods, or a tenth of them with SIZE=tenth; needs make kube
	cd examples/operator && WATERSHED_KUBE=required WATERSHED_OPERATOR_SIZE=$(SIZE) go test -timeout 30m -count=1 -v . | grep --line-buffered -v '^ *[IWE][0-9]'

.PHONY: upstream
upstream: ## controller-runtime's suites and client-go's informer tests with compat as the informer; needs make kube and the network
	cd conformance && WATERSHED_UPSTREAM=required go test -timeout 180m -count=1 -v ./upstream

.PHONY: memory
memory: ## the heap before, with and after stopped informers of 30,000 pods, with compat and with client-go
	cd conformance && WATERSHED_KUBE=required go test -timeout 30m -count=1 -v -run '^TestReal_stopFreesMemory$$' ./compat -memory.pods 30000

MINUTES ?= 5
KILLS ?= 2

.PHONY: soak
soak: ## informers and an operator on the replica, which is killed KILLS times (default 2) in MINUTES (default 5) of writes
	cd conformance && WATERSHED_KUBE=required go test -timeout 120m -count=1 -v -run '^TestSoak$$' ./soak -soak.time $(MINUTES)m -soak.kills $(KILLS)

RESTARTS ?= 200

.PHONY: restarts
restarts: ## a replica with files, and then a library program, is killed RESTARTS times (default 200) during writes: clients and handlers miss nothing, and nothing is listed
	cd conformance && WATERSHED_KUBE=required go test -timeout 120m -count=1 -v -run '^TestRestarts' ./soak -soak.restarts $(RESTARTS)

.PHONY: writing
writing: ## an operator that reads and writes only through the replica, which is killed KILLS times (default 2) in MINUTES (default 5) of writes; before that, one without the replica
	cd conformance && WATERSHED_KUBE=required go test -timeout 120m -count=1 -v -run '^TestWriting$$' ./soak -writing.time $(MINUTES)m -writing.kills $(KILLS) -writing.direct

WATCHES ?= 500

BINARY ?=

.PHONY: failover
failover: ## two replicas behind a load balancer, which are upgraded from another build (BINARY; default this source with another version), killed KILLS times, and ended in order, under WATCHES (default 500) watches and 200 requests/s, in memory and with files
	cd conformance && WATERSHED_KUBE=required go test -timeout 180m -count=1 -v -run '^TestFailover$$' ./replicas -failover.kills $(KILLS) -failover.restarts $(KILLS) -failover.watches $(WATCHES) -failover.rate 200 -failover.ready 20s -failover.binary '$(BINARY)'

PODS ?= 1000

.PHONY: controllers
controllers: ## kube-controller-manager and kube-scheduler with PODS pods (default 1000), directly and through the replica: their requests by verb
	cd conformance && WATERSHED_KUBE=required go test -timeout 60m -count=1 -v -run '^TestControllers$$' ./replica -controlled $(PODS) -controlled.direct

.PHONY: prometheus
prometheus: ## Prometheus' service discovery finds the same targets through the replica; builds it (minutes, once per machine), needs make kube
	cd $(PROMETHEUS) && GOWORK=off go vet .
	cd conformance && WATERSHED_KUBE=required WATERSHED_PROMETHEUS=required go test -count=1 -v -run '^TestPrometheus$$' ./replica

MINORS ?= 1.31,1.32,1.33,1.34,1.35,1.36,1.37

.PHONY: servers
servers: ## fidelity, kubectl and chaos on every Kubernetes of MINORS (default 1.31 to 1.37; 1.31.0 is one release); writes the table in docs/servers.md
	cd conformance && go run ./servers -minors $(MINORS)

WRITES ?= 100000

.PHONY: writes
writes: ## kubectl, helm and curl that write through the replica, and WRITES (default 100000) random writes, each followed by a read
	cd conformance && WATERSHED_KUBE=required go test -timeout 60m -count=1 -v -run '^(TestWrites|TestReadYourWrites)$$' ./replica -slow -writes $(WRITES)

.PHONY: loads
loads: ## LOADS (default 20) random loads, half of which fit into the memory limit of the process: memory, lists, what is current; SEED repeats them
	cd conformance && go test -timeout 4h -count=1 -v -run '^TestLoads$$' ./replica -loads $(or $(LOADS),20) -loads-for 2m -loads-seed $(or $(SEED),0)

.PHONY: budget
budget: ## a process with a limit of 1 GiB and clusters that need 2 GiB, for ten minutes
	cd conformance && go test -timeout 30m -count=1 -v -run '^TestBudget$$' ./replica -budget 1024 -budget-for 10m

# More than 40 rounds take longer than kube-apiserver keeps old versions in etcd.
.PHONY: past
past: ## random changes while the replica and the API server are restarted, ROUNDS times (default 20): the stored past against etcd; needs make kube
	WATERSHED_KUBE=required go test -timeout 20m -count=1 -v -run '^TestPast_replay$$' ./cmd/watershed -past.rounds $(ROUNDS)

# Each part runs even if one before it failed; the target fails if any did.
.PHONY: nightly
nightly: kube ## hours: the full differential, fuzz, chaos, fleet, sources, attack, streams, writes, soak and controller runs, and every Kubernetes from 1.31
	@failed=; for part in "race" "diff" "fuzz FUZZTIME=5m" "files" "e2e WATERSHED_PODS=30000" "oracle" "cuts" "chaos ROUNDS=20" "fleet ROUNDS=10" "group ROUNDS=30" "sources ROUNDS=50" "attack" "budget" "loads" "streams" "writes" "soak MINUTES=30 KILLS=10" "restarts" "past" "writing MINUTES=10 KILLS=2" "controllers PODS=1000" "memory" "helm" "deploy" "image CHECK=1" "release" "rehearsal" "prometheus" "dashboards" "operator" "upstream" "servers"; do \
		echo "=== make $$part"; start=$$SECONDS; $(MAKE) --no-print-directory $$part || failed="$$failed [$$part]"; \
		echo "=== make $$part took $$((SECONDS - start)) s"; done; \
		test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

.PHONY: diff
diff: ## the full differential runs: against client-go with the race detector, 20,000 histories of the replica's watches, and 25,000 expressions
	cd conformance && CGO_ENABLED=1 go test -timeout 60m -race ./bench/... ./compat ./diff/... ./servers
	go test -timeout 60m -count=1 -v -run '^TestDifferential_' ./replica -histories 20000
	cd cmd/watershed && go test -timeout 60m -count=1 -v -run '^TestRandom_' ./internal/expression -pairs 25000

.PHONY: bench
bench: ## one benchmark side by side with its rival: NAME=store|fanout|sync|handlers|heap|relist|restart|churn|disk|history|fleet|fleetrestart|list|watch|overhead|secrets|auth|scrape|verify|operators|replicas
	cd conformance && go run ./bench $(NAME)

.PHONY: pages
pages: ## insert the values of docs/performance/results into all pages, and mark those whose code has changed since
	go run ./internal/layout/pages/insert

.PHONY: figures
figures: ## count lines of code, exported names, sizes of packages, linked modules; BEFORE=commit compares
	@set -e; before=; if [ -n "$(BEFORE)" ]; then old=$$(mktemp -d); trap 'rm -rf "$$old"' EXIT; \
		git archive "$(BEFORE)" | tar -x -C "$$old"; before="$(BEFORE)=$$old"; fi; \
		go run ./internal/layout/size $$before now=.

$(GOLANGCI):
	@echo "building golangci-lint $(GOLANGCI_VERSION) into $(dir $@)"
	@GOBIN=$(dir $@) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

$(GOTESTSUM):
	@$(call build-tool,gotestsum,$(GOTESTSUM_VERSION),gotest.tools/gotestsum)

include deploy/deploy.mk
