# make demo      senses and reconstructs a photograph, after setting everything up
# make test      checks style and types and runs the tests
# make lint      only checks style and types
# make coverage  runs the tests and tells which lines and branches of src they reach
# make mutants   changes ternary, sensing and measurements in every small way; a test should notice
# make kills     kills a training run 50 times, resumes it and compares (about 15 minutes)
# make fuzz      feeds 100,000 damaged files to everything that reads files (about 20 minutes)
# make frames    sends 10,000 frames through the AXI4-Stream encoder in a simulator (two minutes)
# make decisions lets C and Verilog decide 100,000 random windows and 1,000 real ones (half an hour)
# make soak      holds the page and the batch commands under load, and the page under attack
# make audit     looks up the pinned dependencies in the advisory database (needs the network)
# make locks     writes the locks (needs the network), after a change of constraints.txt or pyproject.toml
# make docs      writes the reference pages and builds the documentation to site/, with the page that needs no server
# make notebooks runs the notebooks and keeps what they print and draw
# make dist      builds the source distribution and the wheel in dist/, with a bill of materials, and tries them
# make container runs the steps of the Dockerfile in a fresh environment, then the demo and the page
# make setup     only sets up: leaves .venv/bin/tersense
# make tools     installs what the tests run besides Python: simulator, synthesizer, compilers, browser

PYTHON ?= python3
BIN := .venv/bin
LOCKED := $(BIN)/python -m pip install --quiet --no-deps --require-hashes --only-binary :all: --requirement
TOOLS := iverilog yosys gcc arm-none-eabi-gcc qemu-system-arm chromium
PACKAGES := iverilog yosys gcc libc6-dev make gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm chromium

.PHONY: demo test lint coverage mutants kills frames decisions fuzz fuzz-guided soak audit locks docs notebooks dist container setup tools

demo: setup
	$(BIN)/tersense demo -o demo

setup: .venv/.core

# Only root can install packages; others get a line from each test that misses its tool.
tools:
	@for tool in $(TOOLS); do command -v $$tool > /dev/null || missing="$$missing $$tool"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then \
	    echo "missing:$$missing; on Debian: apt-get install $(PACKAGES)" >&2; exit 0; fi; \
	echo "installing:$$missing"; export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -qq && apt-get install -y -qq --no-install-recommends $(PACKAGES) > /dev/null

test: tools lint
	$(BIN)/python -m pytest -n 2

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

kills: .venv/.test
	$(BIN)/python tests/long/kills.py --kills 50

# Kernels are compiled anew, so that the Python that writes their code is seen to run.
coverage: tools .venv/.test
	NUMBA_CACHE_DIR=$$(mktemp -d) $(BIN)/python -m pytest -n 2 --cov --cov-report=term-missing:skip-covered

mutants: .venv/.mutants
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m long.mutants

frames: tools .venv/.test
	PYTHONPATH=tests $(BIN)/python -m long.frames --frames 10000

decisions: tools .venv/.test
	PYTHONPATH=tests $(BIN)/python -m long.decisions --random 100000 --real 1000

soak: .venv/.test
	PYTHONPATH=tests $(BIN)/python -m long.soak_app --requests 5000
	PYTHONPATH=tests $(BIN)/python -m long.siege --good 2000 --hostile 200
	PYTHONPATH=tests $(BIN)/python -m long.soak_batch --pictures 5000

fuzz: .venv/.test
	$(BIN)/python tests/long/fuzz.py --inputs 100000

# Guided by coverage, one reader after the other, as in: make fuzz-guided READER='image .png'
READER ?= model
fuzz-guided: .venv/.test
	$(BIN)/python -m pip install --quiet atheris
	$(BIN)/python tests/long/fuzz_guided.py '$(READER)' -runs=100000

# --strict: what could not be looked up is no good news.
audit: .venv/.upkeep
	$(BIN)/python -m pip_audit --strict --no-deps --disable-pip --requirement constraints.txt

locks: .venv/.upkeep
	$(BIN)/python tools/lock.py

# Material tells on every build that it will be kept up until May 2027; we know.
# The page that needs no server is part of the site; what it runs in is fetched once.
docs: .venv/.docs .venv/.test
	$(BIN)/python tools/commands.py
	$(BIN)/python tools/reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/tersense export web -m flex -o site/page

notebooks: .venv/.test
	$(BIN)/python tools/notebooks.py

# All files have the date of the commit, so that whoever builds it again gets the same bytes. What
# was built is tried as users get it: with the dependencies that pip finds (needs the network).
dist: export SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2> /dev/null),1580601600)
dist: .venv/.dist
	rm -rf dist
	$(BIN)/python tools/sbom.py
	$(BIN)/python -m build --no-isolation
	$(BIN)/python tools/try_install.py dist

container: .venv/.test
	PYTHONPATH=tests $(BIN)/python -m long.container --python $(PYTHON)

# Every file that is installed has the hash that its lock says; nothing is built that was not checked.
# pip looks up no dependencies, because a build of torch for CPUs needs fewer than one for GPUs; in
# the end it checks that none is missing.
.venv/.core: pyproject.toml locks/core.txt locks/cpu.txt locks/cuda.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tersense needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv .venv
	@$(LOCKED) locks/cpu.txt > /dev/null 2>&1 || echo "taking the build of torch for GPUs: pip is offered no other"
	$(LOCKED) locks/core.txt
	@if $(BIN)/python -m pip show torch | grep -q '^Requires:.*nvidia'; then $(LOCKED) locks/cuda.txt; fi
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m pip check
	@touch $@

.venv/.test .venv/.mutants .venv/.docs .venv/.dist .venv/.upkeep: .venv/.%: .venv/.core locks/%.txt
	$(LOCKED) locks/$*.txt
	@$(BIN)/python -m pip check
	@touch $@

.venv/.mutants: .venv/.test
