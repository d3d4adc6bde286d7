PYTHON ?= python3
WORKERS ?= 2
ARGS ?=
SECONDS ?= 600
LOCK_ARGS ?=
UV_VERSION := 0.13.8

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
say = @printf '\n== %s\n' '$(1)'

# Where packages come from is yours to set; how they are installed is decided here.
unexport PIP_CONSTRAINT PIP_DRY_RUN PIP_EDITABLE PIP_PREFIX PIP_REQUIRE_HASHES PIP_REQUIREMENT PIP_ROOT PIP_TARGET PIP_USER

.PHONY: help setup engines lint format test lock clean demo prove

help: ## show this list
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 16

setup: .venv/installed ## make .venv: the locked tools, and this package in editable form

.venv/locked: requirements/dev.txt
	$(call say,setup: locked tools)
	@$(PYTHON) -m venv --clear .venv
	@$(PIP) install --require-hashes --requirement requirements/dev.txt
	@touch $@

.venv/installed: .venv/locked pyproject.toml
	$(call say,setup: this package)
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

engines: setup ## what the tests need beside Python: Java, Maven, DynamoDB Local, the model checker TLC
	$(call say,setup: engines)
	@tools/install-tlc
	@$(BIN)/python -c 'from sluice.testing.dynamodb.install import installed; print("DynamoDB Local:", installed().libs)'

lint: setup ## check style, types and the direction of imports
	$(call say,lint: ruff check)
	@$(BIN)/ruff check --quiet
	$(call say,lint: ruff format)
	@$(BIN)/ruff format --check --quiet
	$(call say,lint: mypy)
	@$(BIN)/mypy
	$(call say,lint: imports)
	@$(BIN)/lint-imports --no-logo --no-cache

format: setup ## rewrite the code in the house format
	@$(BIN)/ruff check --quiet --fix-only
	@$(BIN)/ruff format

test: setup lint engines ## lint, run every test on every engine, require full coverage of the core
	$(call say,test: the core, covered whole)
	@$(BIN)/coverage erase
	@$(BIN)/pytest -q -n $(WORKERS) --cov --cov-report= tests/core
	@$(BIN)/coverage report --include='src/sluice/core/*' --fail-under=100
	$(call say,test: everything else)
	@$(BIN)/pytest -q -n $(WORKERS) --ignore=tests/core $(ARGS)

lock: ## pin requirements/dev.in (LOCK_ARGS=--upgrade for newer versions)
	$(call say,lock: requirements/dev.txt)
	@$(PYTHON) -m venv --clear .venv-lock
	@.venv-lock/bin/python -m pip --disable-pip-version-check --quiet install uv==$(UV_VERSION)
	@.venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
		--no-config --custom-compile-command 'make lock' $(LOCK_ARGS) \
		--output-file requirements/dev.txt requirements/dev.in
	@rm -rf .venv-lock

clean: ## remove everything that these targets made
	@rm -rf .venv .venv-lock .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@rm -rf .coverage .coverage.* build dist
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

demo: setup ## see it work: a short run on this machine
	@$(BIN)/sluice demo

prove: setup engines ## try harder than make test, SECONDS each: simulate, plant every bug, models, histories
	$(call say,prove: simulated schedules)
	@$(BIN)/python -m proof.schedules --seconds $(SECONDS) $(ARGS)
	$(call say,prove: planted bugs)
	@$(BIN)/python -m proof.mutants
	$(call say,prove: models)
	@$(BIN)/python -m tests.models.prove --seconds $(SECONDS)
	$(call say,prove: histories of real processes)
	@$(BIN)/python -m tests.histories.prove --seconds $(SECONDS)
