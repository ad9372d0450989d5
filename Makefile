# Everything that is done with this repository. `make help` lists it.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# A real model and its engine stand apart.
LLM_VENV ?= .venv-llm
LLM_READY := $(LLM_VENV)/.ready
export VIRTUAL_ENV := $(abspath $(VENV))
export PATH := $(VIRTUAL_ENV)/bin:$(PATH)
# A resolver of the environment could point Python elsewhere.
unexport PYTHONPATH PYTHONHOME
export PIP_QUIET := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help run run-llm test test-llm check bench figures work soak dist need build build-dev rust-test py-test fuzz clean

help: ## what can be done
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

run: build ## build, start an engine simulator, a router and an agent, and send one chat (ONCE=1: then stop)
	@$(BIN)/python -m tools.demo $(if $(ONCE),--once)

run-llm: build $(LLM_READY) ## the same with a small real model, served by llama.cpp (built at the first time, minutes)
	@$(BIN)/python -m tools.demo --engine llama.cpp --llm-venv $(LLM_VENV) $(if $(ONCE),--once)

test: rust-test py-test ## the whole suite

test-llm: build $(LLM_READY) ## the tests with that real model
	LLM_VENV=$(abspath $(LLM_VENV)) $(BIN)/python -m pytest tests/llm $(PYTEST_ARGS)

check: build-dev ## the suite, and lint, types, imports, formatting
	$(BIN)/ruff format --check src tests tools bench
	$(BIN)/ruff check src tests tools bench
	$(BIN)/mypy
	$(BIN)/lint-imports
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	$(MAKE) test

bench: build ## measure throughput, latency and CPU, direct and through (BENCH_ARGS, ORIGINAL_DIR, see docs/performance.md)
	cargo build --release -p plane-core --examples
	$(BIN)/python -m bench $(BENCH_ARGS)

figures: build ## measure chunks, memory per stream, long prompts, recovery and exactness of limits
	cargo build --release -p plane-core --examples
	$(BIN)/python -m bench --figures $(BENCH_ARGS)

work: build ## measure what the most expensive input within each port's bounds costs
	$(BIN)/python -m bench --work

soak: build ## load and failure test: SECONDS (60), CLIENTS (1000), CHAOS (kill; also stop, links, engine)
	$(BIN)/python -m tools.soak $(if $(SECONDS),--seconds $(SECONDS) --warm-up $(SECONDS)) \
		$(if $(CLIENTS),--clients $(CLIENTS)) $(if $(CHAOS),--chaos $(CHAOS))

dist: need $(READY) ## a wheel and a source archive in dist/
	$(BIN)/maturin build --release --sdist --out dist

fuzz: build-dev ## fuzz guard, digest, meter, connections, answers and HTTP/2 for FUZZ_SECONDS each (needs nightly and cargo-fuzz)
	PYTHON=$(abspath $(BIN)/python) tools/fuzz.sh $(or $(FUZZ_SECONDS),60)

clean: ## remove what was built
	rm -rf $(VENV) $(LLM_VENV) target dist src/hivenet_router/_plane*.so

need:
	@PYTHON=$(PYTHON) tools/need.sh

$(READY): pyproject.toml constraints.txt | need
	@test -x $(BIN)/python || { echo "Making a Python environment in $(VENV)."; $(PYTHON) -m venv $(VENV); }
	$(BIN)/python -m pip install -q -U 'pip>=25.1'
	$(BIN)/python -m pip install -q -c constraints.txt --group dev $$($(BIN)/python tools/dependencies.py)
	@touch $@

$(LLM_READY): constraints-llm.txt tools/llm_environment.py
	@PYTHON=$(PYTHON) tools/need.sh c++
	@$(PYTHON) tools/llm_environment.py $(LLM_VENV)
	@touch $@

build: need $(READY)
	@test -d target/release/deps || echo "Building the data plane. The first time this takes three to five minutes."
	@$(BIN)/maturin develop --release --quiet

build-dev: need $(READY)
	@test -d target/debug/deps || echo "Building the data plane for tests. The first time this takes two to four minutes."
	@$(BIN)/maturin develop --quiet

rust-test: need
	cargo test -p plane-core --quiet

py-test: build-dev
	$(BIN)/python -m pytest $(PYTEST_ARGS)
