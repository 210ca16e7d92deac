# Needs make and Python 3.11 to 3.14; everything else is installed into .venv on first use.
# Another interpreter, in an environment of its own: make test PYTHON=python3.13 VENV=.venv-3.13

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
ARGS   ?=
TIMES  ?= 1

# Compiled modules are kept: else every process that a test starts compiles the whole package, and each worker all tests.
export PYTHONDONTWRITEBYTECODE :=

BENCHES := $(sort $(filter-out bench/_% bench/clients.py bench/live.py bench/million.py bench/peers.py bench/pictures.py bench/scale.py bench/suite.py bench/faults.py,$(wildcard bench/*.py)))

.DEFAULT_GOAL := help
.PHONY: help demo test nightly check bench house clients peers pictures million scale scenes lint format types imports golden dist release-check clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(STAMP) ## see it work: a long run, a compaction, a crash and a resume, offline
	$(BIN)/python -m perdure.lab.demo $(ARGS)

test: $(STAMP) ## run the quick tests, which find nearly everything (ARGS='-k name' narrows)
	$(BIN)/python -m pytest -n auto --dist loadgroup $(ARGS)

nightly: $(STAMP) ## run everything: both stores, kills, storms, real clients, all recordings (TIMES=20: laws and kills at length)
	$(BIN)/python -m tools.nightly --times $(TIMES) $(ARGS)

.PHONY: docs
docs: $(VENV)/.docs ## the documentation as a site with search and a reference, in build/site (ARGS=--release for a release's)
	$(BIN)/python docs/site/build.py $(ARGS)

check: lint types imports test ## everything CI runs: style, types, import contracts, quick tests

bench: $(STAMP) ## run every benchmark under bench/
	@set -e; for script in $(BENCHES); do \
		printf '\n== %s\n' "$$script"; $(BIN)/python -m "bench.$$(basename "$$script" .py)" $(ARGS); \
	done

house: $(STAMP) ## the package in figures (ARGS=--names), or its pages written anew (ARGS='--picture --decisions')
	$(BIN)/python -m bench.house $(ARGS)

clients: $(STAMP) ## real coding agents and frameworks through the gateway, installed from npm and PyPI (ARGS='codex --calls 20')
	$(BIN)/python bench/clients.py $(ARGS)

peers: $(STAMP) ## against LangChain, OpenAI Agents, pydantic-ai-harness, LiteLLM, OpenHands (from PyPI, 1.3 GB at first)
	$(BIN)/python bench/peers.py $(ARGS)

pictures: $(STAMP) ## make the front page's pictures anew: context, terminal, report (ARGS=context makes one)
	$(BIN)/python -m bench.pictures $(ARGS)

million: $(STAMP) ## what a million sessions take in PostgreSQL, from 100,000 that are loaded (five minutes, 10 GB of disk)
	$(BIN)/python -m bench.million $(ARGS)

scale: $(STAMP) ## three gateways and two workers over PostgreSQL and an object store, in a storm of kills, pauses and cuts (8 minutes)
	$(BIN)/python -m bench.scale $(ARGS)

scenes: $(STAMP) ## a chat in a terminal that draws: 25 scenes, at 60 and 140 columns, with and without colours; read build/scenes
	$(BIN)/python -m tests.scenes $(ARGS)

lint: $(STAMP) ## style: ruff check and ruff format --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP) ## rewrite the sources in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

.PHONY: types-all
types-all: $(STAMP) ## the same for macOS and Windows as well, each with a cache of its own (150 s of a processor at first)
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin --no-warn-unreachable --cache-dir .mypy_cache/darwin
	$(BIN)/mypy --platform win32 --no-warn-unreachable --cache-dir .mypy_cache/win32

imports: $(STAMP) ## the import contracts of pyproject.toml
	$(BIN)/lint-imports --no-cache

golden: $(STAMP) ## rewrite the golden files and show what changed
	@status=0; $(BIN)/python -m pytest tests/golden --rewrite-golden $(ARGS) || status=$$?; \
	git --no-pager diff --stat -p -- tests/golden; \
	git ls-files --others --exclude-standard -- tests/golden | sed 's/^/new: /'; \
	exit $$status

dist: $(STAMP) ## the wheel and the sdist of the last commit into dist/, the same bytes whenever they are built
	$(BIN)/python -m tools.release_check --build-only

release-check: $(STAMP) ## build a release, install it into fresh environments of each Python here, and try it (ARGS='--python 3.13')
	$(BIN)/python -m tools.release_check $(ARGS)

clean: ## remove the environment, builds and caches
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Sphinx is installed by the first `make docs`; no check and no test needs it.
$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	@touch $@

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 15) else \
		"Perdure needs Python 3.11 to 3.14, and $(PYTHON) is %d.%d. Try: make PYTHON=python3.13" % v)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
