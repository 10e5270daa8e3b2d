# The desk of a newcomer, a developer and CI.  Every target sets up .venv by itself; only python3.11 with venv is needed.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
CHECKERS := $(VENV)/checkers
MADE := .make

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c

# also holds for the environment in which pip builds packages
export PIP_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run test check style types interpreted wheel model docs clean

run: $(READY)
	@mkdir -p $(MADE)
	$(BIN)/python -m zonetrack.clients.conversation $(MADE)/conversation.pcap
	$(BIN)/zonetrack replay --workers 2 $(MADE)/conversation.pcap

test: $(READY)
	$(BIN)/pytest

check: style types test interpreted wheel

style: $(CHECKERS)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(CHECKERS)
	$(BIN)/pyright --pythonpath $(BIN)/python

# kernels are plain Python too, and must do the same under the interpreter
interpreted: $(READY)
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest tests/kernels tests/shm

wheel: $(CHECKERS)
	.ci/wheel $(BIN)/python

model: $(READY)
	$(BIN)/pytest tests/model

# pages that are printed from the code
docs: $(READY)
	$(BIN)/python -m zonetrack.shm.format > docs/format.md
	$(BIN)/python -m zonetrack.shm.format reasons > docs/reasons.md
	$(BIN)/python -m zonetrack.service.pages > docs/tcp-states.md

clean:
	rm -rf $(VENV) $(MADE) build dist *.egg-info

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[test]'
	@touch $@

$(CHECKERS): $(READY)
	$(BIN)/pip install --quiet --editable '.[test,check]'
	@touch $@
