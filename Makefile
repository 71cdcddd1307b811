# Everything a developer runs, one line each. `make help` lists it.
export CARGO_TERM_COLOR ?= auto

.PHONY: help build dist dist-test packages run test check unit clients mcp web dialects ssh observability network-clients api-fuzz instructions rootless cgroup-v2 fuzz fuzz-briefly soak bench bless setup

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

build: ## the release binary, target/release/warren
	cargo build --release -p warren

dist: ## packages of all sorts in target/dist/packages: docs/install.md
	scripts/dist/build
	scripts/dist/package target/dist/programs/warren target/dist/programs/warren-static target/dist/packages

dist-test: ## install every package of `make dist` on a clean ground (network; root for some)
	scripts/dist/test target/dist/packages

packages: ## pack the debug program, and install that: what of `dist-test` needs no build of its own
	cargo test --workspace --no-run
	scripts/dist/test-briefly target/debug/warren

run: ## Python in a new sandbox
	cargo run --release -- run python3 -c 'print("hello from a sandbox")'

setup: ## install what the tests need (apt; nothing without root)
	scripts/install-test-needs

test: setup check unit clients ## everything but fuzzing, which CI runs too

check: ## format and lints
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

unit: ## all tests, as the user who asks
	scripts/unit-tests

clients: ## what comes after the unit tests: it mostly waits, so two lists of it run side by side
	cargo test --workspace --no-run
	scripts/side-by-side "mcp dialects api-fuzz ssh observability" "web packages instructions rootless cgroup-v2"

# The builds below are of the whole workspace: one package alone is compiled anew, with features of its own.
mcp: ## MCP clients that others wrote, and the official conformance suite (npm, pip)
	cargo test --workspace --no-run
	tests/mcp-clients/conformance target/debug/warren
	tests/mcp-clients/run target/debug/warren

web: ## the dashboard in real browsers, and its committed build against its sources (npm)
	cargo test --workspace --no-run
	tests/web/run target/debug/warren

dialects: ## clients of other systems, unmodified, against a real daemon (pip)
	cargo test --workspace --no-run
	tests/dialects/run target/debug/warren

ssh: ## SSH clients that others wrote, against a real daemon (pip)
	cargo test --workspace --no-run
	tests/ssh/run target/debug/warren

observability: ## programs that others wrote look on: Prometheus, a webhook receiver, a collector, the journal (pip)
	cargo test --workspace --no-run
	tests/observability/run target/debug/warren

network-clients: ## everyday programs in sandboxes with a network
	cargo test -p warren --test sandbox network::clients -- --nocapture

api-fuzz: ## requests that schemathesis makes from the OpenAPI document, for 90 seconds (pip)
	cargo test --workspace --no-run
	tests/api-fuzz/run target/debug/warren

instructions: ## what a create, a command and a cell cost, as counts, against tests/instructions.json
	cargo test --workspace --no-run
	scripts/instructions target/debug/warren

rootless: ## the sandbox tests again, as an ordinary user (when root asks)
	scripts/test-rootless

cgroup-v2: ## cgroup v2 and an older kernel, in an emulated machine
	cargo test --workspace --no-run
	scripts/cgroup-v2/run target/debug/warren

fuzz-briefly: ## the network's fuzz targets for a minute each, all others for 10 seconds (needs a nightly compiler)
	scripts/fuzz 10 60

fuzz: ## every fuzz target for half an hour
	scripts/fuzz 1800

soak: ## slow tests: long random cycles
	WARREN_CYCLES=20000 cargo test --release -p warren --test sandbox cycles
	WARREN_CONNECTS=100000 cargo test --release -p warren --test sandbox many_connections -- --nocapture
	WARREN_CELLS=10000 cargo test --release -p guest --test guest many_cells

bench: build ## numbers beside the peers that are installed
	cargo build --release -p bench
	target/release/bench
	target/release/bench mcp
	target/release/bench memory
	target/release/bench code
	target/release/bench growth --chart docs/growth.svg
	target/release/bench network
	target/release/bench ports
	target/release/bench storage
	target/release/bench ssh

bless: ## write the generated reference pages anew
	BLESS=1 cargo test -p frontends -p warren
