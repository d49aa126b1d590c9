# Everything goes through .venv; see CONTRIBUTING.md.
PYTHON ?= python3
# A package index that has PyTorch's CPU build, where the default one would bring CUDA (see README, "Install").
TORCH_INDEX ?=
VENV := .venv
STAMP := $(VENV)/.installed
DEBIAN := openssh-server iproute2 iperf3 fping python3-venv iputils-ping tcpdump
# For `make test` only: tests of what they read are skipped where they are missing.
LAUNCHERS := openmpi-bin mpich

.PHONY: setup demo test lint bench clean system

setup: $(STAMP)

system:
	@tools/system-packages $(DEBIAN)

$(STAMP): pyproject.toml constraints.txt | system
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@echo "installing PyTorch (CPU build)"
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check \
	  $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX),) -c constraints.txt torch
	@echo "installing plink and what it needs"
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

demo: setup
	@$(VENV)/bin/plink demo

test: lint
	-@tools/system-packages $(LAUNCHERS)
	@$(VENV)/bin/python -m pytest

lint: setup
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

# make bench            every benchmark
# make bench NAME=demo  one of them
bench: setup
	@$(VENV)/bin/python benchmarks/run.py $(NAME)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
