# Everything a developer runs, one line each. `make help` lists it.
export CARGO_TERM_COLOR ?= auto

.PHONY: help build run test check unit clients mcp dialects api-fuzz rootless cgroup-v2 fuzz fuzz-briefly soak bench bless setup

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

build: ## the release binary, target/release/warren
	cargo build --release -p warren

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
	scripts/side-by-side "mcp dialects api-fuzz" "rootless cgroup-v2"

# The builds below are of the whole workspace: one package alone is compiled anew, with features of its own.
mcp: ## MCP clients that others wrote, and the official conformance suite (npm, pip)
	cargo test --workspace --no-run
	tests/mcp-clients/conformance target/debug/warren
	tests/mcp-clients/run target/debug/warren

dialects: ## clients of other systems, unmodified, against a real daemon (pip)
	cargo test --workspace --no-run
	tests/dialects/run target/debug/warren

api-fuzz: ## requests that schemathesis makes from the OpenAPI document, for 90 seconds (pip)
	cargo test --workspace --no-run
	tests/api-fuzz/run target/debug/warren

rootless: ## the sandbox tests again, as an ordinary user (when root asks)
	scripts/test-rootless

cgroup-v2: ## cgroup v2 and an older kernel, in an emulated machine
	cargo test --workspace --no-run
	scripts/cgroup-v2/run target/debug/warren

fuzz-briefly: ## every fuzz target for 20 seconds (needs a nightly compiler)
	scripts/fuzz 20

fuzz: ## every fuzz target for half an hour
	scripts/fuzz 1800

soak: ## slow tests: long random cycles
	WARREN_CYCLES=20000 cargo test --release -p warren --test sandbox cycles
	WARREN_CELLS=10000 cargo test --release -p guest --test guest many_cells

bench: build ## numbers beside the peers that are installed
	cargo build --release -p bench
	target/release/bench
	target/release/bench mcp
	target/release/bench code
	target/release/bench network
	target/release/bench ports
	target/release/bench storage

bless: ## write the generated reference pages anew
	BLESS=1 cargo test -p frontends -p warren
