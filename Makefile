# Everything goes through .venv; see CONTRIBUTING.md.
PYTHON ?= python3
# A package index that has PyTorch's CPU build, where the default one would bring CUDA (see README, "Install").
TORCH_INDEX ?=
COMMA := ,
VENV := .venv
STAMP := $(VENV)/.installed
# On a terminal pip shows how far it is.
QUIET := $(shell [ -t 2 ] || echo --quiet)
PIP = $(VENV)/bin/pip install $(QUIET) --disable-pip-version-check --no-compile
# Python compiles what is imported, once: processes share it, also where the environment has it thrown away.
unexport PYTHONDONTWRITEBYTECODE
DEBIAN := openssh-server iproute2 iperf3 fping python3-venv iputils-ping tcpdump
# For `make bench` only; a benchmark that misses them says so.
BENCHED := openmpi-bin libopenmpi-dev gcc libc6-dev
# For `make test` only: tests of what they read are skipped where they are missing.
LAUNCHERS := openmpi-bin mpich slurmctld slurmd slurm-client munge libgomp1 python3-simgrid
BROWSER := chromium

# Of each target under `make fuzz`.
SECONDS ?= 20

.PHONY: setup demo test test-all test-ec2 launchers lint style bench dist fuzz coverage links lock reference clean system

setup: $(STAMP)

system:
	@tools/system-packages $(DEBIAN)

$(STAMP): pyproject.toml constraints.txt requirements.lock | system
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@echo "installing what plink needs, each file checked against requirements.lock"
	@$(PIP) --require-hashes --no-deps -r requirements.lock
	@$(VENV)/bin/python -m tools.compile_ahead  # goes on meanwhile
	@echo "installing PyTorch from $(or $(TORCH_INDEX),pip's default index$(COMMA) whose Linux wheels may bring CUDA (several GB): TORCH_INDEX=URL names another)"
	@$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX),) -c constraints.txt torch
	@echo "installing plink"
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo:
	@[ -e $(STAMP) ] || echo "demo: first the set-up (some minutes, once), then about a minute"
	@$(MAKE) --no-print-directory setup
	@$(VENV)/bin/plink demo

CORES := $(shell nproc 2>/dev/null || echo 2)
# Workers of the quick tier: one more than there are cores, for tests wait, too.
WORKERS ?= $(shell [ $(CORES) -gt 7 ] && echo 8 || echo $$(($(CORES) + 1)))
PYTEST = $(VENV)/bin/python -m pytest
PARALLEL = --numprocesses $(WORKERS) --dist loadfile --max-worker-restart 4
QUICK = $(PYTEST) $(PARALLEL) -m quick --timeout 120

# make test                  the quick tier; make test PART=ordering runs all tests of one part (a folder below tests/)
# make test-all              everything: of the extended tier, labs and live jobs one after the other, the rest on all cores
# make test-all PART=lab     all tests of one part
# The types are checked beside the tests, on a core that waits anyway, and shown at the end where they are wrong.
TYPES = types=$$(mktemp); $(VENV)/bin/mypy > $$types 2>&1 & mypy=$$!
TYPES_END = wait $$mypy || { cat $$types; code=1; }; rm -f $$types; exit $$code

# Of all parts, or of one. Exit code 5 is pytest's for no tests: a part need not have every kind.
ALL = worst=5; tests() { "$$@" $(if $(PART),--part $(PART)); code=$$?; \
	  [ $$code = 5 ] || [ $$worst != 5 -a $$worst != 0 ] || worst=$$code; }; \
	tests $(QUICK); \
	tests $(PYTEST) $(PARALLEL) --numprocesses $(CORES) -m "extended and not quick and not alone"; \
	tests $(PYTEST) -m "extended and not quick and alone"; code=$$worst

test: style launchers
	@$(TYPES); $(if $(PART),$(ALL),$(QUICK); code=$$?); $(TYPES_END)

test-all: style launchers
	@$(TYPES); $(ALL); $(TYPES_END)

launchers: setup
	-@tools/system-packages $(LAUNCHERS) $(BROWSER)

# Tests of EC2: the real `aws` command against moto's server. Their versions contradict plink's, so they have an
# environment of their own, which the first call makes (a minute).
EC2 := .venv-ec2
test-ec2: setup $(EC2)/.installed
	@PATH="$(CURDIR)/$(EC2)/bin:$$PATH" $(PYTEST) -m "" tests/runners/live/test_spot_aws.py

$(EC2)/.installed:
	@$(PYTHON) -m venv $(EC2)
	@$(EC2)/bin/pip install --quiet --disable-pip-version-check awscli==1.46.3 'moto[ec2,server]==5.2.5'
	@touch $@

lint: setup
	@$(TYPES); $(MAKE) --no-print-directory style; code=$$?; $(TYPES_END)

style: setup
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/lint-imports
	@$(VENV)/bin/python -m tools.retired_words

# make bench            the theses' figures, an hour and a quarter on two cores: docs/results/theses.md
# It ends with exit code 1 when a benchmark fails or misses a bar, after all have run; docs/results/theses.md says which.
# make bench NAME=demo  one benchmark; NAME=list says which there are and how long they take, NAME=all runs every one
bench: setup
	-@tools/system-packages $(BENCHED)
	@$(VENV)/bin/python benchmarks/run.py $(NAME)

# What is released: dist/*.tar.gz, and dist/*.whl made from it, the same bytes each
# time for the same commit. What an earlier build left would go into them.
dist: setup
	@rm -rf build dist *.egg-info
	@$(VENV)/bin/python -m tools.dist

# requirements.lock, after a change of constraints.txt; it asks the package index.
lock:
	@$(PYTHON) -m tools.lock

# make fuzz                          every target for 20 s
# make fuzz SECONDS=60 NAME="plan order"  two of them for a minute each
fuzz: setup
	@$(VENV)/bin/python -m tests.fuzz.guided --seconds $(SECONDS) $(NAME)

# Which lines the quick tier runs: make coverage WHAT="" runs all tests. It takes twice as long as the tests.
WHAT ?= quick
coverage: setup
	@$(VENV)/bin/coverage erase
	-@$(VENV)/bin/coverage run -m pytest -q $(PARALLEL) -m "$(WHAT)"
	@$(VENV)/bin/coverage combine -q
	@$(VENV)/bin/coverage report

# Whether external links lead somewhere. It needs the internet, so it is no part of `make test`; two minutes at most.
links: setup
	@$(VENV)/bin/python -m tools.links

# docs/reference.md and docs/schemas, after a change to the command line or to documents in plink/model
reference: setup
	@$(VENV)/bin/python -m tools.reference
	@$(VENV)/bin/python -m tools.schemas

clean:
	rm -rf $(VENV) $(EC2) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
