# `make help` lists the targets. Everything runs in .venv, which is built when first needed.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# Which Python builds the virtual environments, for example: make PYTHON=python3.12 test
PYTHON ?= $(shell scripts/find_python.sh)
# Another place for .venv: make VENV=/path/to/venv test. One that exists and was not made here is used as it is.
VENV ?= .venv
# Which torch `make test-torch` takes.
TORCH ?= 2.15.0
# Which rows `make bench` runs; all when empty.
ROWS ?=
# How many processes run the tests that need no browser; the browser's run one after the other.
WORKERS ?= 2
PARALLEL := -n $(WORKERS) --dist worksteal --max-worker-restart 0
# A test that hangs ends with the stacks of all threads, and fails by its name.
HANGING := -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true
# What the tests compile is kept for the next run; a fresh clone has nothing, `make clean` removes it.
export REGIONAL_EXPLORER_TEST_CACHE ?= $(CURDIR)/build/compile-cache
# More options for pytest, for example: make test PYTEST_ARGS="-k plan -x"
PYTEST_ARGS ?=
# What is chosen by hand may lie in one of two runs alone: pytest ends with 5 where it ran nothing.
OR_NONE := $(if $(PYTEST_ARGS),|| [ $$? -eq 5 ])
# The tests of records, of what is drawn and written of them, and of the page's scripts: nothing is traced or compiled.
FAST := tests/test_house.py tests/record tests/render tests/ui_graph

BIN := $(VENV)/bin
FOREIGN := $(if $(filter file,$(origin VENV)),,$(if $(wildcard $(BIN)/python),$(if $(wildcard $(VENV)/install.log),,yes)))
STAMP := $(if $(FOREIGN),,$(VENV)/.stamp)
CODE := regional_explorer scripts tests $(if $(wildcard benchmarks/*.py),benchmarks)
NOTEBOOK := notebooks/quickstart.ipynb
# Jupyter shall take the kernel of the virtual environment, whatever other kernels there are.
OWN_KERNEL := env -u JUPYTER_PATH JUPYTER_PREFER_ENV_PATH=1

.PHONY: help campaign demo gallery lab docs test test-rest test-fast test-browser test-all coverage test-torch test-python dist bench lint clean \
	cxx chromium

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  \1\t/' | expand -t 16

$(VENV)/.stamp: pyproject.toml constraints.txt
	$(if $(PYTHON),,$(error no Python 3.11 or newer; name one: make PYTHON=/path/to/python))
	scripts/install.sh $(VENV) $(PYTHON) constraints.txt dev
	touch $@

cxx:
	@scripts/require_cxx.sh

# Without a browser the browser tests are skipped, but in CI they must run.
chromium:
	@scripts/require_chromium.sh >/dev/null $(if $(CI),,|| echo "The browser tests will be skipped." >&2)

demo: $(STAMP) cxx ## run the quickstart notebook, write build/quickstart.html, print its tables
	$(BIN)/python scripts/demo.py

gallery: $(STAMP) cxx ## run all notebooks, write their pages to build/gallery
	$(BIN)/python scripts/demo.py notebooks/*.ipynb --build build/gallery

lab: $(STAMP) cxx ## open the quickstart notebook in JupyterLab
	$(OWN_KERNEL) $(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) $(NOTEBOOK)

docs: $(STAMP) ## build the documentation site into build/site; a broken link or reference is an error
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs build/site

# Tools for the scripts of the page, run by the node of the virtual environment; nothing else needs them.
NODE_STAMP := node_modules/.stamp
NODE := PATH="$(abspath $(BIN)):$$PATH"
$(NODE_STAMP): $(STAMP) package.json package-lock.json
	$(NODE) npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

lint: $(STAMP) $(NODE_STAMP) cxx ## ruff, mypy, import-linter; eslint, prettier, tsc for JavaScript; the budget of the house
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(CODE)
	$(BIN)/python scripts/check_notebooks.py
	$(BIN)/lint-imports
	$(NODE) npm run --silent lint
	$(BIN)/python -m scripts.budget

# Their lines come as they are printed: who waits sees the progress of all four. The end says which failed, and shows
# the last lines of each again.
PARTS := build/parts
test: $(STAMP) $(NODE_STAMP) cxx chromium ## lint, the documentation, and all tests but the slow ones, side by side
	@rm -rf $(PARTS) && mkdir -p $(PARTS)
	@$(MAKE) --keep-going --jobs=4 --no-print-directory $(addprefix part-,lint docs test-rest test-browser) \
		|| { tail -v -n 30 $(PARTS)/*.failed; echo "failed: $$(cd $(PARTS) && echo *.failed)"; exit 1; }

part-%:
	@$(MAKE) --no-print-directory $* 2>&1 | tee $(PARTS)/$*.log || { mv $(PARTS)/$*.log $(PARTS)/$*.failed; exit 1; }

test-rest: $(STAMP) cxx ## all tests but the slow ones and the browser's
	$(BIN)/python -m pytest -m "not slow and not browser" --ignore tests/browser $(PARALLEL) $(HANGING) $(PYTEST_ARGS) $(OR_NONE)

test-fast: $(STAMP) ## the tests of records, views and the page's scripts, which trace nothing: under a minute
	$(BIN)/python -m pytest -m "not slow" $(FAST) $(PARALLEL) $(PYTEST_ARGS)

test-browser: $(STAMP) $(NODE_STAMP) cxx chromium ## the tests that drive a real JupyterLab in Chromium
	$(BIN)/python -m pytest -m "not slow and browser" tests/browser $(HANGING) $(PYTEST_ARGS) $(OR_NONE)

coverage: $(STAMP) cxx ## branch coverage of the package by all tests but the slow and the browser's: half as long again
	$(BIN)/python -m pytest -m "not slow and not browser" --ignore tests/browser $(PARALLEL) $(HANGING) --cov --cov-report=term:skip-covered $(PYTEST_ARGS)

test-all: lint cxx chromium ## lint, then all tests, the campaigns too
	$(BIN)/python -m pytest $(PYTEST_ARGS) $(OR_NONE)
	$(MAKE) campaign

campaign: $(STAMP) cxx ## random programs, models, libraries, upstream's own tests: hours; a part of it: PYTEST_ARGS="-k models"
	$(BIN)/python -m pytest benchmarks/campaign $(PYTEST_ARGS) $(OR_NONE)

# Deprecations of a torch newer than the pinned one are shown, but are no failure.
test-torch: .venv-$(TORCH)/.stamp cxx ## all but the browser tests with another torch: make test-torch TORCH=2.15.0
	for tests in tests benchmarks/campaign; do .venv-$(TORCH)/bin/python -m pytest $$tests -m "not browser" \
		-W default::DeprecationWarning -W default::FutureWarning $(PYTEST_ARGS) $(OR_NONE); done

.venv-$(TORCH)/.stamp: pyproject.toml constraints.txt
	$(if $(PYTHON),,$(error no Python 3.11 or newer; name one: make PYTHON=/path/to/python))
	mkdir -p .venv-$(TORCH)
	(grep -vE '^(torch|triton|setuptools)==' constraints.txt; echo 'torch==$(TORCH)') > .venv-$(TORCH)/constraints.txt
	scripts/install.sh .venv-$(TORCH) $(PYTHON) .venv-$(TORCH)/constraints.txt dev
	touch $@

# An environment of its own for each Python, with the pinned versions: the classifiers name those that pass.
test-python: cxx ## all but the slow and the browser tests with another Python: make test-python PYTHON=python3.13
	$(MAKE) VENV=.venv-$(notdir $(PYTHON)) test-rest

dist: cxx ## build the sdist and the wheel into dist/, check them, and use the wheel in an empty environment
	$(if $(PYTHON),,$(error no Python 3.11 or newer; name one: make PYTHON=/path/to/python))
	scripts/check_dist.sh $(PYTHON) constraints.txt

bench: $(STAMP) cxx ## run the benchmarks, or some rows of them: make bench ROWS="a b"
	$(BIN)/python -m benchmarks $(ROWS)

clean: ## remove what was built; virtual environments stay
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .grimp_cache
	find regional_explorer scripts tests benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
