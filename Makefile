TOOL    := go tool -modfile=$(CURDIR)/tools/go.mod
# Modules of their own that have tests. The comparison is not tidied: a module that only a
# test of one of its dependencies needs cannot be had everywhere.
ADAPTERS := $(patsubst %/go.mod,%,$(wildcard adapter/*/go.mod adapter/*/*/go.mod))
TESTED  := $(ADAPTERS) integration/page integration/metrics integration/sql tools/release
CHECKED := $(TESTED) bench
PINNED  := internal/servers/pinned internal/servers/pinned/gcs
# CI has an hour on a machine that has compiled and fetched nothing. There the other modules are tested, and no more.
ifneq ($(CI),true)
OTHERS  := $(CHECKED)
MODULES := $(PINNED) $(TESTED)
endif
# On these the types are checked, with those of the tests, wherever this is run.
PLATFORMS := windows/amd64 darwin/arm64

.PHONY: check test race racelong lint types format tidy fmt fuzz lockorder mutate prove bench adapters man site servers
.PHONY: snapshot reproducible image packages-check apicheck vulncheck

check: format lint types tidy race # before a commit

test:
	go run ./internal/testall

RACE    := go test -race -short -timeout 30m

# What runs in many goroutines and in one process, but for its tests that the race detector makes minutes of.
RACED   := . ./peer ./semaphore ./metrics ./internal/engine

race: # the everyday loop of the packages where races are to be feared; racelong has all
	$(RACE) -skip 'TestEveryLayout|TestMemoryOfALease|TestTraceIsWhole|TestTakeover' $(RACED)

racelong: # the long tests of all packages
	LEASEHOLD_TEST_LONG=1 $(RACE) -timeout 2h ./...
	@set -e; for dir in $(TESTED); do echo "in $$dir"; (cd $$dir && LEASEHOLD_TEST_LONG=1 $(RACE) ./...); done
	@echo "figures: $$(go list ./... | wc -l) packages and $(words $(TESTED)) modules, no data race"

lint: # go vet is one of the linters
	@set -e; for dir in . $(OTHERS); do echo "golangci-lint run in $$dir"; (cd $$dir && $(TOOL) golangci-lint run ./...); done

types:
	@set -e; for platform in $(PLATFORMS); do go -C tools run ./types $$platform $(addprefix ../,. $(OTHERS)); done

format: # fails if fmt would change anything
	@diff=$$($(TOOL) gofumpt -d .) && test -z "$$diff" || { echo "$$diff"; echo 'run: make fmt'; exit 1; }

fmt:
	$(TOOL) gofumpt -w .

tidy:
	@set -e; for dir in . tools $(MODULES); do echo "go mod tidy -diff in $$dir"; (cd $$dir && go mod tidy -diff); done

FUZZTIME := 60s

fuzz: # each target for a minute, two at a time
	@set -e; for pkg in $$(grep -rl '^func Fuzz' --include=*_test.go . | xargs -n 1 dirname | sort -u | xargs go list); do \
		for word in $$(go test -list '^Fuzz' $$pkg); do case $$word in Fuzz*) echo "$$pkg $$word";; esac; done; \
	done | tee /dev/stderr | xargs -P 2 -L 1 tools/fuzz $(FUZZTIME)
	@echo "figures: $$(grep -rl '^func Fuzz' --include=*_test.go . | xargs grep -h '^func Fuzz' | wc -l) targets, $(FUZZTIME) each"

ORDERED := . ./peer ./semaphore

lockorder: # the tests, with mutexes that panic when they are locked out of turn
	go test -tags lockorder -short -count 1 -timeout 30m ./internal/lockorder $(ORDERED)
	@echo "figures: $$(go test -tags lockorder -list . $(ORDERED) | grep -c '^Test') tests, no mutex locked out of turn"

prove: # attack it in every way, for hours
	go run ./proof -long

mutate: # take out each rule in turn: the tests must notice
	go run ./proof/mutate

bench: # run it beside what else there is, for an hour, and write docs/benchmarks.md
	go -C bench run .

adapters: # the adapters' tests in full
	@set -e; for dir in $(ADAPTERS); do echo "in $$dir"; (cd $$dir && LEASEHOLD_TEST_LONG=1 go test -race -count 1 -timeout 30m ./...); done

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

apicheck: # compare the exported API with that of the last tag, or of api/base
	tools/apicheck

vulncheck: # look for known vulnerabilities in what is called
	tools/vulncheck
