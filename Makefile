# Heliograph: every command a developer needs. `make` alone shows them.
# Each target works from any state of the checkout: the environment in .venv is made when it is missing, out of date or
# moved, and nothing else has to be installed first but Python 3.11 (or newer) and make.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo browser test test-plain test-spark quick check sweep sweep-seeds sweep-plain sweep-spark mutants bench \
	bench-peers fuzz soak lock clean FORCE

# The first Python that really runs (a pyenv shim may exist and still fail), is new enough and can make environments.
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	$$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$python && break; \
	done)

# Tests start Python hundreds of times: what is compiled once need not be compiled again.
unexport PYTHONDONTWRITEBYTECODE

RUN := .venv/bin/python
LOCKS := locks/build.lock locks/requirements.lock
COMPILED := $(wildcard src/heliograph/*/_*.c src/heliograph/*/*/_*.c)
# Nothing is installed that the locks do not name with its hash: --no-build-isolation builds with the locked setuptools.
PIP_INSTALL = $(RUN) -m pip install --disable-pip-version-check --no-build-isolation
PYTEST := $(RUN) -m pytest -n auto --dist worksteal
INPUTS ?= 100000
SEEDS ?= 10000
# network-quiet takes half a minute, and one seed of it says as much as many.
STORES = $(basename $(notdir $(wildcard src/heliograph/sim/scenarios/stores-*.toml)))
SCENARIOS = $(filter-out network-quiet $(STORES),$(basename $(notdir $(wildcard src/heliograph/sim/scenarios/*.toml))))

help: ## show this text
	@echo 'Heliograph. Targets:'
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' Makefile | expand -t 20
	@echo 'Options: PYTHON=python3.12 (which Python makes .venv), INPUTS=100000 (fuzz), SEEDS=10000 (soak).'

demo: .venv/.stamp ## run brokers, clients, Spark and a simulation, and report what happened (under 3 minutes)
	@.venv/bin/heliograph demo

# A target of several parts names them, so that `make --keep-going` runs the others when one fails.
test: test-plain test-spark ## run all tests but the sweep: the same examples and seeds every time

test-plain: .venv/.stamp
	$(PYTEST) -m 'not sweep and not spark and not soak'

test-spark: .venv/.stamp
	$(RUN) -m pytest -m 'spark and not sweep and not soak'

quick: .venv/.stamp ## lint and the fast tests, for every commit (at most a minute)
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(PYTEST) -m 'not slow and not live and not sweep and not spark and not soak' --hypothesis-profile quick

check: .venv/.stamp ## ruff, mypy strict and the architecture tests
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy
	$(RUN) -m pytest tests/architecture

sweep: sweep-seeds sweep-plain sweep-spark ## many fixed seeds of every shipped scenario, then the tests marked sweep

sweep-seeds: .venv/.stamp
	@$(RUN) -m tests.sweep

sweep-plain: .venv/.stamp
	$(PYTEST) -m 'sweep and not spark'

sweep-spark: .venv/.stamp
	$(RUN) -m pytest -m 'sweep and spark'

mutants: .venv/.stamp ## plant small bugs in a copy of the sources, one at a time; a test must notice each
	@$(RUN) -m tests.mutants

bench: .venv/.stamp ## the short form of every benchmark, one after another
	@$(RUN) -m benchmarks all --quick --json

browser: ## install the browser in which pages are tested (Debian, Ubuntu)
	@tests/browser/install.sh

bench-peers: ## install the brokers that the benchmarks compare with (Debian, Ubuntu), and fetch Kafka and its Spark
	@benchmarks/install-peers.sh
	@PYTHON='$(PYTHON)' benchmarks/install-spark-peers.sh

fuzz: .venv/.stamp ## send INPUTS broken and mutated inputs to a network of brokers with all services, on all cores
	$(RUN) -m tests.fuzz.fuzz --inputs $(INPUTS)

soak: .venv/.stamp ## every property with ten times the examples, new ones each time, all crash points of the archive, then every shipped scenario over SEEDS seeds
	$(PYTEST) -m 'not live and not sweep and not spark and not soak' --ignore tests/sim --hypothesis-profile thorough
	@$(RUN) -m tests.sweep --seeds 1..$$(( ($(SEEDS) + 4) / 5 )) $(STORES)
	HELIOGRAPH_KILL_S=300 $(RUN) -m pytest -q -s tests/stores/test_kill.py
	$(PYTEST) -m 'soak and not spark'
	$(RUN) -m pytest -m 'spark and soak'
	@printf '%s\n' $(SCENARIOS) | xargs -P "$$(nproc 2>/dev/null || echo 2)" -I{} \
		.venv/bin/heliograph simulate {} --seeds 1..$(SEEDS)

lock: ## write the locks anew after a change of locks/constraints.txt: the hashes of all files of each version, from pip's index
	@$(if $(wildcard $(RUN)),$(RUN),$(PYTHON)) -m tests.architecture.lock

clean: ## remove everything that make made
	rm -rf .venv .peers build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info
	find src -name '*.so' -delete

# The stamp holds the place of the checkout: an environment that was moved with it is made anew.
ifneq ($(shell cat .venv/.stamp 2>/dev/null),$(CURDIR))
.venv/.stamp: FORCE
endif

.venv/.stamp: pyproject.toml src/heliograph/hardened_build.py $(LOCKS) $(COMPILED)
	@if [ "$$(cat $@ 2>/dev/null)" != '$(CURDIR)' ] || ! $(RUN) -m pip --version >/dev/null 2>&1; then \
		if [ -z '$(PYTHON)' ]; then \
			echo 'No Python 3.11 or newer that can make environments was found.' \
				'Install it (Debian: python3 and python3-venv) or name it: make PYTHON=/path/to/python3.12' >&2; \
			exit 1; \
		fi; \
		echo 'Making .venv with $(PYTHON) …'; \
		rm -f $@; \
		$(PYTHON) -m venv --clear .venv || exit 1; \
	fi
	@echo 'Installing Heliograph and its tools into .venv (about 1 GB with Spark; some minutes the first time) …'
	@for lock in $(LOCKS); do \
		$(PIP_INSTALL) --require-hashes --requirement $$lock || exit 1; \
	done
	@$(PIP_INSTALL) --no-deps --editable .
	@echo '$(CURDIR)' > $@

FORCE:
