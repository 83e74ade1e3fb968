PYTHON ?= python3
ARGS ?=
JOBS ?= 3
MINUTES ?= 2
HOURS ?= 1
ENGINE ?= all
SEED ?= 1
COVERAGE ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := $(VENV)/.demo
QUICK := tests/unit tests/conformance/test_memory.py tests/conformance/test_sqlite.py --ignore=tests/unit/benchmarks
# sys.monitoring costs little; Python 3.11 has only the tracer.
CORE = $(shell $(BIN)/python -c 'import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")')
MEASURED = COVERAGE_CORE=$(CORE) $(BIN)/pytest --cov --cov-report=
REPORT = @echo "Line coverage of src/keelbolt: $$($(BIN)/coverage report --format=total) % ($(BIN)/coverage html shows the lines)"

.DEFAULT_GOAL := help
.PHONY: help run demo test faults chaos soak coverage lint format docs build lock bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(DEMO) ## Serve the demo on SQLite, on this machine only, with the explorer (ARGS="--port 8080" for another port)
	@$(BIN)/python -m examples.demo $(ARGS)

demo: $(DEMO) ## Run the kernel demo: processes write and tail one file, one is killed, no data is lost
	@$(BIN)/python examples/kernel_demo.py $(ARGS)

test: $(STAMP) ## Run all tests, with the short version of the faults (ARGS="-k name" selects, JOBS=0 for one process, COVERAGE=1)
	@sh tests/tools.sh $(VENV)
	$(if $(COVERAGE),$(MEASURED),$(BIN)/pytest) --numprocesses=$(JOBS) --dist=loadfile --no-loadscope-reorder --durations=20 $(ARGS)
	$(if $(COVERAGE),$(REPORT))

faults: $(STAMP) ## Run the faults in full: kills, power loss, full disk, wrong clocks
	@sh tests/tools.sh $(VENV)
	$(BIN)/pytest tests/faults --full $(ARGS)

chaos: $(STAMP) ## Run all faces on one store while processes and servers die, then check every promise (MINUTES, ENGINE, SEED, ARGS="--hunt")
	@sh tests/tools.sh $(VENV)
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) --engine $(ENGINE) --seed $(SEED) $(ARGS)

soak: $(STAMP) ## Run all faces for hours at a low rate with sweeps, then check that nothing grows (HOURS, ENGINE)
	$(BIN)/python -m tests.chaos --soak --minutes $$((60 * $(HOURS))) --engine $(ENGINE) --seed $(SEED) $(ARGS)

coverage: $(STAMP) ## Measure line coverage of the quick tests; failed tests do not stop it
	@sh tests/tools.sh $(VENV)
	-$(MEASURED) --numprocesses=$(JOBS) --dist=loadfile --no-loadscope-reorder --quiet $(QUICK)
	$(REPORT)

lint: $(STAMP) ## Check style, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python tests/docs/typed_pages.py
	$(BIN)/lint-imports
	$(BIN)/pytest -q -n0 tests/unit/test_language.py

format: $(STAMP) ## Format the code and fix lint errors
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(STAMP) ## Build the documentation site into site/, with warnings as errors
	$(BIN)/python docs/build_site.py

build: $(STAMP) ## Build wheel and sdist into dist/, and check them
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

LOCK = $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.12 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate

lock: $(STAMP) ## Update the locked versions of the image (deploy/*.lock, with hashes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(LOCK) --extra apcore --extra auth --extra grpc --extra postgres --extra redis pyproject.toml -o deploy/requirements.lock
	echo 'hatchling>=1.27' | $(LOCK) - -o deploy/build.lock

bench: $(STAMP) ## Run all benchmarks (ARGS="--quick" for a short run)
	@for name in compare scale storage copy erase tasks server requests grpc client webhooks apcore state turns langgraph explorer; do \
		$(BIN)/python -m benchmarks $$name $(ARGS) || exit 1; done

clean: ## Remove all generated files
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage .coverage.* htmlcov bench-*.json
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Keelbolt needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# The demo needs few packages, so that it starts without installing those of the tests.
$(DEMO): pyproject.toml | $(VENV)/bin/python
	@test ! $(STAMP) -nt pyproject.toml || { touch $@; exit 0; }; \
		test $@ -nt pyproject.toml || { echo "Installing Keelbolt and the packages of the demo into $(VENV) (once) ..."; \
		$(BIN)/python -m pip install --disable-pip-version-check --editable '.[apcore]' && touch $@; }

$(STAMP): pyproject.toml | $(VENV)/bin/python
	@echo "Installing Keelbolt and the packages of its tests into $(VENV) (once; takes some minutes) ..."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
