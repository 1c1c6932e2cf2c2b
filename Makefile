TOOL    := go tool -modfile=$(CURDIR)/tools/go.mod
SUM     := $(TOOL) gotestsum --format pkgname-and-test-fails --

# The modules of this repository. What a module tests says its place: see CONTRIBUTING.md.
ADAPTERS := $(patsubst %/go.mod,%,$(wildcard adapter/*/go.mod adapter/*/*/go.mod))
TESTED   := integration proof
CHECKED  := $(TESTED) $(ADAPTERS) tools/release bench
PINNED   := internal/servers/pinned internal/servers/pinned/gcs
# Types are checked for these platforms too, those of tests included.
PLATFORMS := windows/amd64 darwin/arm64

.PHONY: check test integration integration-ci prove race racelong lint lint-changed types format tidy tidy-changed fmt fuzz lockorder layouts mutate bench
.PHONY: adapters published man site servers snapshot reproducible image packages-check apicheck vulncheck

check: format lint types tidy test race # before a commit

test: # class (a): fast, no servers
	go test ./...

# The servers that make integration runs tests on.
SERVERS ?= gofakes3 versitygw minio fake-gcs-server azurite s3rver
# Packages of the main module whose tests run on these servers too.
ON_SERVERS := ./store/... ./internal/servers

integration: # class (b): real servers, interpreters, browsers, databases; then the adapters
	LEASEHOLD_TEST_SERVERS="$(SERVERS)" $(SUM) -count=1 -timeout 30m $(ON_SERVERS)
	cd integration && LEASEHOLD_TEST_SERVERS="$(SERVERS)" $(SUM) -count=1 -timeout 30m ./...
	@set -e; for dir in $(ADAPTERS) tools/release; do echo "in $$dir"; (cd $$dir && $(SUM) -short -count=1 -timeout 30m ./...); done
	$(MAKE) published

# What CI runs of it: two servers, and neither browsers, databases nor adapters.
CI_SERVERS := gofakes3 versitygw
CI_INTEGRATION := ./cli ./clients ./conformance ./docs ./stores

integration-ci:
	LEASEHOLD_TEST_SERVERS="$(CI_SERVERS)" $(SUM) -count=1 -timeout 15m $(ON_SERVERS)
	cd integration && LEASEHOLD_TEST_SERVERS="$(CI_SERVERS)" $(SUM) -count=1 -timeout 15m $(CI_INTEGRATION)

prove: # class (c): every attack, in about an hour; LONG=-long for hours
	go -C proof run . $(LONG)

RACE    := $(SUM) -race -timeout 30m

# Packages with many goroutines. Left out: tests of which the race detector makes minutes.
RACED   := . ./multilock ./peer ./semaphore ./metrics ./internal/engine

race: # the race detector where goroutines are
	$(RACE) -skip 'TestEveryLayout|TestMemoryOfALease|TestTraceIsWhole|TestTakeover' $(RACED)

racelong: # everywhere
	$(RACE) -timeout 2h ./...
	@set -e; for dir in $(TESTED) $(ADAPTERS); do echo "in $$dir"; (cd $$dir && $(RACE) -short ./...); done
	@echo "figures: $$(go list ./... | wc -l) packages and $(words $(TESTED) $(ADAPTERS)) modules, no data race"

lint: # go vet is one of the linters
	@set -e; for dir in . $(CHECKED); do echo "golangci-lint run in $$dir"; (cd $$dir && $(TOOL) golangci-lint run ./...); done

# What CI lints: the packages with changes since BASE, by default the last commit of the day before.
BASE ?= $(shell git rev-list -1 --before='1 day ago' HEAD)

lint-changed:
	tools/lint-changed "$(BASE)"

types:
	@set -e; for platform in $(PLATFORMS); do go -C tools run ./types $$platform $(addprefix ../,. $(CHECKED)); done

format: # fails if fmt would change anything
	@diff=$$($(TOOL) golangci-lint fmt --diff) && test -z "$$diff" || { echo "$$diff"; echo 'run: make fmt'; exit 1; }

fmt:
	$(TOOL) golangci-lint fmt

# bench is left out: a test of one of its dependencies needs a module that some proxies lack.
TIDY := . tools $(TESTED) $(ADAPTERS) tools/release $(PINNED)

tidy:
	@set -e; for dir in $(TIDY); do echo "go mod tidy -diff in $$dir"; (cd $$dir && go mod tidy -diff); done

# What CI checks: the modules that have changed since BASE, and all of them if the main one requires something else.
tidy-changed:
	@git diff --quiet $(BASE) HEAD -- go.mod && dirs= || dirs="$(TIDY)"; \
	[ -n "$$dirs" ] || for dir in $(TIDY); do git diff --quiet $(BASE) HEAD -- $$dir || dirs="$$dirs $$dir"; done; \
	$(MAKE) --no-print-directory tidy TIDY="$$dirs"

FUZZTIME := 60s

fuzz: # each target for a minute, two at a time
	@set -e; for pkg in $$(grep -rl '^func Fuzz' --include=*_test.go . | xargs -n 1 dirname | sort -u | xargs go list); do \
		for word in $$(go test -list '^Fuzz' $$pkg); do case $$word in Fuzz*) echo "$$pkg $$word";; esac; done; \
	done | tee /dev/stderr | xargs -P 2 -L 1 tools/fuzz $(FUZZTIME)
	@echo "figures: $$(grep -rl '^func Fuzz' --include=*_test.go . | xargs grep -h '^func Fuzz' | wc -l) targets, $(FUZZTIME) each"

ORDERED := . ./multilock ./peer ./semaphore

lockorder: # the tests, with mutexes that panic when they are locked out of order
	go test -tags lockorder -count 1 -timeout 30m ./internal/engine $(ORDERED)
	@echo "figures: $$(go test -tags lockorder -list . $(ORDERED) | grep -c '^Test') tests, no mutex locked out of order"

LAYOUTS := "epochs" "epochs without If-Match" "marker" "marker without If-Match"

layouts: # the tests of the library over the other layouts
	@set -e; for layout in $(LAYOUTS); do echo "over $$layout"; \
		go test -count 1 -timeout 30m -ldflags "-X 'github.com/leasehold/leasehold/internal/layout.Default=$$layout'" . ./multilock ./admin; done
	@echo "figures: the tests of three packages over four other ways to store a lock"

mutate: # take out each rule in turn: the tests must notice
	go -C proof run ./mutate

bench: # run it beside what else there is, for an hour, and write docs/benchmarks.md
	go -C bench run .

adapters: # the adapters' tests in full, with other projects' own tests and the race detector
	@set -e; for dir in $(ADAPTERS); do echo "in $$dir"; (cd $$dir && go test -race -count 1 -timeout 30m ./...); done

published: # install the command and build the adapters as users do, from a module proxy
	go -C tools run ./published ..

MANDIR := man

man: # write the manual pages
	go run ./cmd/leasehold man $(MANDIR)

site: # the documentation as a site, in docs/site/public; Hugo takes minutes to compile, once
	cd docs/site && go tool hugo --minify --cleanDestinationDir --panicOnWarning

servers: # build the test servers and print where they are
	@set -e; for dir in $(PINNED); do (cd $$dir && for tool in $$(go list tool); do go tool -n $$tool; done); done

snapshot: # everything that a release has, of the last commit, in .cache/release
	tools/snapshot

reproducible: # the same twice, at two paths
	tools/reproducible

image: # the container image, in .cache/image
	tools/image

packages-check: # install and remove the packages of the snapshot, as root on Debian
	tools/packages-check

apicheck: # compare the exported API with that of the last tag, or of tools/api/base
	tools/apicheck

vulncheck: # look for known vulnerabilities in what is called
	tools/vulncheck
