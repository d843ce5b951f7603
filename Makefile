# Every target does its own set-up: a virtual environment, pinned dependencies, keys, database.
# Needs Python 3.11 or newer and nothing else.
SHELL := /bin/sh
VENV ?= .venv
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)
BIN := $(VENV)/bin
MANAGE := $(BIN)/python manage.py
ADDRESS ?= 127.0.0.1:8000
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes

.PHONY: help demo serve test browser lint bench test-model format lock clean

help: ## show this
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' Makefile | expand -t 16

demo: $(VENV)/.runtime ## an agent refines 211 memories in a few seconds, without network
	@env -i PATH="$$PATH" HOME="$$HOME" TERM="$$TERM" LANG=C.UTF-8 $(MANAGE) demo

serve: $(VENV)/.runtime ## run the service and its workers at ADDRESS (default 127.0.0.1:8000)
	@$(MANAGE) create_keys
	@$(MANAGE) migrate --verbosity 0
	@exec $(MANAGE) serve --bind $(ADDRESS)

test: $(VENV)/.dev ## the whole test suite (SQLite, or what DATABASE_URL names)
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

browser: $(VENV)/.dev ## the pages in a real browser (needs Chromium on the PATH)
	@$(BIN)/python -m pytest tests/browser $(PYTEST_ARGS)

lint: $(VENV)/.dev ## style, types, import contracts, Django's checks, migrations, size
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy .
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.deploy_check
	@$(BIN)/python -m tests.measure --quick

bench: $(VENV)/.dev ## speed and size, as ratios, with targets beside the figures
	@$(BIN)/python -m tests.bench

test-model: $(VENV)/.dev ## a session with a small real model; the first time, this builds llama.cpp (ten minutes)
	@$(BIN)/python -m tests.bench model

format: $(VENV)/.dev ## let ruff mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lock: $(VENV)/.dev ## pin the dependencies again (needs uv)
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url --no-emit-find-links \
		--no-header pyproject.toml -o requirements.txt
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url --no-emit-find-links \
		--no-header --extra local -c requirements.txt pyproject.toml -o requirements-local.txt
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url --no-emit-find-links \
		--no-header --extra dev -c requirements.txt pyproject.toml -o requirements-dev.txt

clean: ## remove the virtual environment and the demo's data
	@rm -rf $(VENV) var/demo

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Palimpsest needs Python 3.11 or newer on the PATH."; exit 1; }
	@echo "Making the virtual environment with $(PYTHON) …"
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is incomplete (on Debian: apt install python3-venv)."; exit 1; }

$(VENV)/.runtime: requirements.txt | $(VENV)/bin/python
	@echo "Installing dependencies …"
	@$(PIP_INSTALL) -r requirements.txt
	@touch $@

$(VENV)/.dev: requirements-dev.txt | $(VENV)/bin/python
	@echo "Installing dependencies …"
	@$(PIP_INSTALL) -r requirements-dev.txt
	@touch $@ $(VENV)/.runtime
