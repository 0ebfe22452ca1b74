# make reproduce   the whole chain: data, notebooks, figures, report (PROFILE=smoke|gpu|sample|full)
# make test        the test suite
# Each works on a fresh clone: the environment is made from requirements.lock where it is missing or outdated.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
PROFILE ?= smoke
ARGS ?=
BIN := $(VENV)/bin
# Named after the contents of what it was made from: another lock or another pyproject is another stamp.
STAMP := $(VENV)/.installed-$(firstword $(shell cat requirements.lock pyproject.toml | cksum))
TORCH := $(shell sed -n '/^torch==/p' requirements.lock)
# PyPI's Linux wheel brings gigabytes of CUDA libraries; a host without an NVIDIA driver takes the CPU build.
CPU_TORCH := $(if $(filter Linux,$(shell uname -s)),$(if $(shell command -v nvidia-smi),,yes))

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, and \
	$(PYTHON) is " + sys.version.split()[0] + ": name one, as in `make $(MAKECMDGOALS) PYTHON=python3.11`")'
	@echo "Installing requirements.lock into $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@rm -f $(VENV)/.installed-*
ifeq ($(CPU_TORCH),yes)
	@$(BIN)/python -m pip install -qq --no-deps --retries 0 \
		--extra-index-url https://download.pytorch.org/whl/cpu $(TORCH)
endif
	@$(BIN)/python -m pip install -qq -r requirements.lock
	@$(BIN)/python -m pip install -qq --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: install
install: $(STAMP) ## Make or update the environment in .venv

.PHONY: reproduce
reproduce: $(STAMP) ## Data, notebooks, figures and report of PROFILE (default: smoke)
	@$(BIN)/python -m notebooks.reproduce $(PROFILE) $(ARGS)

.PHONY: gpu
gpu: ## make reproduce PROFILE=gpu: one NVIDIA GPU
	@$(MAKE) --no-print-directory reproduce PROFILE=gpu

.PHONY: test
test: $(STAMP) ## The test suite (ARGS="-k name" to choose)
	@$(BIN)/python -m pytest $(ARGS)

.PHONY: lint
lint: $(STAMP) ## ruff (lint and format, notebooks included) and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

.PHONY: lab
lab: $(STAMP) ## JupyterLab on the notebooks
	@$(BIN)/jupyter lab --notebook-dir notebooks $(ARGS)

.PHONY: lock
lock: ## Resolve pyproject.toml afresh into requirements.lock; torch stays as it is there
	@rm -rf .lock-venv && $(PYTHON) -m venv .lock-venv
	@.lock-venv/bin/python -m pip install -qq $(TORCH)
	@.lock-venv/bin/python -m pip install -qq '.[dev]' 'setuptools>=77'
	@sed -n '/^#/p' requirements.lock > requirements.lock.new
	@.lock-venv/bin/python -m pip freeze --all --exclude erase-repro --exclude pip \
		| sed 's/+[a-z0-9.]*$$//' | LC_ALL=C sort -f >> requirements.lock.new
	@mv requirements.lock.new requirements.lock && rm -rf .lock-venv

.PHONY: clean
clean: ## Remove caches (neither runs/ nor .venv)
	@rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .snakemake build *.egg-info
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## Remove caches and .venv
	@rm -rf $(VENV)
