# make test is what a change has to pass; everything else is a part of it or
# takes longer.

GO ?= go
# Packages whose tests are too heavy for the race detector: they run without.
HEAVY ?= ./test/large
# Units of random SQL in one soak, and what else has a sample in make test.
SOAKUNITS ?= 100000
FUZZTIME ?= 10m
SOAKTIME ?= 30m
FLEETTIME ?= 20m
LARGEDIR ?= /tmp
COUNT ?= 6
BIN ?= bin

.DELETE_ON_ERROR:

.PHONY: all
all: build

.PHONY: build
build:
	$(GO) build -trimpath -o $(BIN)/ ./cmd/...

# Everything: vet, the rules of the house, then all tests, under the race
# detector but for the heavy ones. Of the random fleets, of random SQL and of
# the states that a stopped delivery leaves, the race detector sees a part;
# all of them run without it. Most tests wait more than they work: more of them
# than there are processors run side by side, and both halves at once.
.PHONY: test
test:
	$(GO) vet ./...
	$(GO) test -count=1 ./test/house
	$(MAKE) -j 2 raced sampled

.PHONY: raced
raced:
	$(GO) test -race -parallel 6 -timeout 30m $(filter-out celldexport/diffpage celldexport/sinks/delivery,$(LIGHT))

.PHONY: sampled
sampled:
	$(GO) test -race -short -timeout 14m ./diffpage
	$(GO) test -race -short -timeout 14m ./sinks/delivery -rapid.checks=20
	$(GO) test -count=1 -timeout 14m ./diffpage ./sinks/delivery
	$(GO) test -count=1 -run '^TestModelFleet$$' ./exporter
	@if [ -n "$(strip $(HEAVY))" ]; then set -x; $(GO) test -timeout 14m $(HEAVY); fi

LIGHT = $(filter-out $(addprefix celldexport/,$(patsubst ./%,%,$(HEAVY))),$(shell $(GO) list ./...))

# The race detector over everything, whatever it takes.
.PHONY: race
race:
	$(GO) test -race -timeout 60m ./...

.PHONY: lint
lint:
	@files=$$(git ls-files -co --exclude-standard -- '*.go' | while read -r f; do [ -f "$$f" ] && echo "$$f"; done | xargs gofmt -l); \
	if [ -n "$$files" ]; then echo "gofmt would change:"; echo "$$files"; exit 1; fi
	$(GO) vet ./...
	$(GO) test -count=1 ./test/house

# Every fuzz test of the module for FUZZTIME each.
.PHONY: fuzz
fuzz:
	@$(GO) list -f '{{.ImportPath}}' ./... | while read -r package; do \
		$(GO) test -list '^Fuzz' "$$package" | grep '^Fuzz' | while read -r name; do \
			echo "== $$package $$name"; \
			$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$package" || exit 1; \
		done || exit 1; \
	done

# Random fleets, random SQL and every script, broken image and foreign database
# there is, then the randomised tests over and over, each time with other
# random numbers.
.PHONY: soak
soak:
	EXPORTD_SOAK=$(FLEETTIME) $(GO) test -count=1 -timeout 24h -run '^TestModelFleetSoak$$' ./exporter
	corpus=$$(test/corpus/fetch) || echo "some foreign databases cannot be had: their test does without" >&2; \
	if [ -n "$$(find "$$corpus" -type f 2>/dev/null | head -n 1)" ]; then export EXPORTD_CORPUS="$$corpus"; fi; \
	{ EXPORTD_SOAK_UNITS=$(SOAKUNITS) $(GO) test -count=1 -timeout 24h -v -run '^(TestRandom|TestScripts|TestCorpus|TestForeignDatabases|TestBrokenImages)$$' ./diffpage ./envelope/rowset; echo "exit status $$?"; } | \
		awk '/^exit status / { code = $$3 } !/^ *(===|--- PASS)/ { print } END { exit code }'
	@end=$$(( $$(date +%s) + $$(echo $(SOAKTIME) | sed 's/m$$/*60/; s/h$$/*3600/; s/s$$//') )); round=0; \
	while [ "$$(date +%s)" -lt "$$end" ]; do \
		round=$$((round + 1)); echo "== round $$round"; \
		$(GO) test -count=1 -timeout 30m ./... || exit 1; \
	done

.PHONY: large
# Units that rewrite a database of 2 GiB, then 10,000 cells under 256 open
# files: fails when the exporter takes more memory than it promises. Needs 16
# GiB of disk below LARGEDIR.
large:
	$(GO) run ./test/large -dir "$(LARGEDIR)"
	$(GO) run ./test/large -dir "$(LARGEDIR)" -page-size 512
	$(GO) run ./test/large -dir "$(LARGEDIR)" -cells 10000

# Every stage beside its floor, as a table: make bench BENCH='-short',
# '-stage diff,json', '-large', '-json'. What the packages measure for
# themselves is in micro.
BENCH ?=
.PHONY: bench
bench:
	$(GO) run ./test/bench $(BENCH)

.PHONY: micro
micro:
	$(GO) test -run '^$$' -bench . -benchmem -cpu 1 -count $(COUNT) ./...

.PHONY: demo
demo:
	$(GO) run ./cmd/exportd demo --cells 8 --seconds 20

# The store's suite and what else asks for it, against an S3 server of another
# make, built once outside this tree.
.PHONY: test-s3
test-s3:
	test/s3/with-server $(GO) test -count=1 ./internal/objstore/... ./test/...

# Cases of the Kafka sink, and the suite that every sink runs, against Apache
# Kafka itself: that of BROKERS, or one that is fetched from Maven Central and
# started on the loopback address. The suite needs the latter: it stalls and
# stops its place, by a proxy that the broker sends its clients to.
.PHONY: test-kafka
test-kafka:
	test/kafka/with-broker $(GO) test -count=1 -run TestApacheKafka -v ./sinks/kafka

# The bucket sink's objects, and docs/duckdb.sql, against DuckDB. It is a module
# of its own, kept in step by: go -C test/duckdb mod tidy
.PHONY: test-duckdb
test-duckdb:
	$(GO) -C test/duckdb vet .
	$(GO) -C test/duckdb test -count=1 .

.PHONY: clean
clean:
	rm -rf $(BIN)
