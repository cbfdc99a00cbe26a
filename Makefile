# make demo    senses and reconstructs a photograph, after setting everything up
# make test    checks style and types and runs the tests
# make setup   only sets up: leaves .venv/bin/tersense

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test setup

demo: setup
	$(BIN)/tersense demo -o demo

setup: .venv/.core

test: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

.venv/.core: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tersense needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

.venv/.test: .venv/.core
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	@touch $@
