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

.PHONY: run test check style types interpreted share wheel model model-all conformance sim sim-pairs intents faults soak fuzz fuzz-guided \
    restarts gateway transfer bench docs site clean

# a service of its own, started, used and stopped; the line that it prints says that packets can flow
PLAYED := --instance play --socket $(MADE)/play.sock
define PLAY
coproc service { exec $(BIN)/zonetrack serve $(PLAYED) --workers 2 --port shm:lab,queues=2 --fresh --log-level warning; }; \
pid=$$service_PID; trap 'kill $$pid 2>/dev/null || true' EXIT; \
read -r ready <&$${service[0]}; echo "$$ready"; set -x; \
$(BIN)/zonetrack send lab $(MADE)/conversation.pcap --instance play; \
$(BIN)/zonetrack list --socket $(MADE)/play.sock; \
$(BIN)/zonetrack stop --unlink --socket $(MADE)/play.sock; \
wait $$pid; { set +x; } 2>/dev/null; trap - EXIT
endef

run: $(READY)
	@mkdir -p $(MADE)
	$(BIN)/python -m zonetrack.clients.conversation $(MADE)/conversation.pcap
	@$(PLAY)

# two at a time: much of a test is waiting, for processes and for what they say
SIDE_BY_SIDE := -n 2 --dist loadfile

test: $(READY)
	$(BIN)/pytest $(SIDE_BY_SIDE)

check: style types test interpreted wheel

style: $(CHECKERS)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(CHECKERS)
	$(BIN)/pyright --pythonpath $(BIN)/python

# kernels are plain Python too, and must do the same under the interpreter
interpreted: $(READY)
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -n auto tests/kernels tests/shm tests/sim tests/interleave tests/test_scripts.py \
	    tests/model_based

# man pages and completion, for packages
share: $(READY)
	rm -rf packaging/share
	$(BIN)/python -m zonetrack.clients.manual packaging/share > /dev/null

wheel: $(CHECKERS) share
	.ci/wheel $(BIN)/python

# the protocol's model: its smaller scenarios, which `make test` has too; all of them, and every known flaw
model: $(READY)
	$(BIN)/pytest tests/model

model-all: $(READY)
	$(BIN)/python -m tests.model

# what others say of the corpus, and what we do: docs/conformance.md
conformance: $(READY)
	$(BIN)/python tests/support/conformance_page.py docs/conformance.md

# simulated worlds from seeds: SEED is the first, STEPS the rounds of each; a seed that goes wrong prints a smaller case
SEED ?= 1
STEPS ?= 1
SEEDS ?= 1

sim: $(READY)
	$(BIN)/python -m tests.sim $(SEED) $(STEPS) $(SEEDS)

# two workers, each pair of operations, one of them killed at every access
sim-pairs: $(READY)
	$(BIN)/python -m tests.sim --pairs
	$(BIN)/python -m tests.sim --both

# loads with kernels as they are, and with kernels that write no intents, in turns
intents: $(READY)
	$(BIN)/python -m tests.intents

# real processes under load, killed at random
KILLS ?= 100

faults: $(READY)
	$(BIN)/python -m tests.faults $(KILLS) $(SEED)

# everything at once for some minutes, a worker killed every two seconds
MINUTES ?= 3

soak: $(READY)
	$(BIN)/python -m tests.faults.soak $(MINUTES) $(SEED)

# nonsense: frames through the tracker with forbidden pages behind them, captures, rules, messages, rings, saved tables
FRAMES ?= 1000000
MESSAGES ?= 100000
CAPTURES ?= 10000
RULES ?= 10000
RINGS ?= 20000
SAVED ?= 500

fuzz: $(READY)
	$(BIN)/python -m tests.fuzz $(SEED) frames=$(FRAMES) messages=$(MESSAGES) captures=$(CAPTURES) rules=$(RULES) \
	    rings=$(RINGS) saved=$(SAVED)

# parsers in Python, guided by what they reach
SECONDS_EACH ?= 60

fuzz-guided: $(READY)
	$(BIN)/pip install --quiet --editable '.[test,fuzz]'
	@mkdir -p $(MADE)/fuzz
	for parser in rules messages ports; do \
	    $(BIN)/python -m tests.fuzz.guided $$parser -max_total_time=$(SECONDS_EACH) -artifact_prefix=$(MADE)/fuzz/; \
	done

# a service with so many connections: how long packets wait while it is restarted; save and restore
CONNECTIONS ?= 1000000

restarts: $(READY)
	$(BIN)/python -m tests.restarts $(CONNECTIONS)

# two logical routers that translate, with real workers on the queues of two ports
WORKERS ?= 60
QUEUES ?= 1024

gateway: $(READY)
	$(BIN)/python -m tests.gateway $(WORKERS) $(QUEUES)

# a real transfer of so many bytes through a gateway: packets as they are, segments that are cut, a router
TRANSFER_BYTES ?= 1000000000

transfer: $(READY)
	TRANSFER_BYTES=$(TRANSFER_BYTES) $(BIN)/pytest tests/service/test_routing.py \
	    tests/service/test_gateway.py -k "goes_through or longer or reach"

LOAD := $(BIN)/zonetrack load
KEEP := $(BIN)/python -m zonetrack.clients.history docs/benchmarks/history.jsonl

# the seed's configurations of `handshake`: connections of each of ten threads, zones, data packets
SEED_CONFIGURATIONS := 10000,100,0 10000,100,20 10000,1,0 10000,1,20 10,100,20000 10,1,20000

bench: $(READY)
	for threads in 1 2; do $(LOAD) hit --threads $$threads --repeat 5 --json | $(KEEP); done
	$(LOAD) hit --connections 1024 --iterations 5000 --repeat 5 --json | $(KEEP)
	$(LOAD) miss --repeat 5 --json | $(KEEP)
	for zones in 1 1000 10000; do for threads in 1 2; do \
	    $(LOAD) scan --threads $$threads --zones $$zones --repeat 5 --json | $(KEEP); \
	done; done
	$(LOAD) scan --threads 2 --connections 5000000 --limit 1000000 --timeout-ms 200 --repeat 5 --json | $(KEEP)
	$(LOAD) scan --threads 2 --connections 500000 --limit 300000 --timeout-ms 1000 --repeat 5 --json | $(KEEP)
	for given in $(SEED_CONFIGURATIONS); do for burst in 32 1; do \
	    IFS=, read connections zones data <<<"$$given"; \
	    $(LOAD) handshake --threads 10 --connections $$connections --zones $$zones --data-packets $$data \
	        --iterations 100 --burst $$burst --json | $(KEEP); \
	done; done
	$(LOAD) zones --repeat 3 --json | $(KEEP)
	$(LOAD) flood --json | $(KEEP)
	$(LOAD) rules --json | $(KEEP)
	for addresses in 61 64; do $(LOAD) nat --addresses $$addresses --json | $(KEEP); done
	$(LOAD) nat --threads 2 --json | $(KEEP)
	$(LOAD) nat --addresses 1 --connections 100000 --fill 99 --json | $(KEEP)
	for expectations in 0 1000; do for threads in 1 2; do \
	    $(LOAD) unnat --threads $$threads --expectations $$expectations --json | $(KEEP); \
	done; done
	for topology in p pp pv pvp vv vn; do $(LOAD) forward --topology $$topology --json | $(KEEP); done
	for size in 512 1024 1280 1518; do $(LOAD) forward --size $$size --flows 1000 --seconds 5 --json | $(KEEP); done
	$(LOAD) forward --topology vv --flows 1000 --tx-batching on --tx-flush-interval-us 0,50,100,200,400 --json | $(KEEP)
	$(LOAD) forward --flows 1000 --tx-batching on --seconds 60 --paced-share 0.8 --json | $(KEEP)
	$(LOAD) forward --flows 1000 --against kernel --seconds 10 --json | $(KEEP)
	$(LOAD) forward --flows 1000 --stats-pairs 60 --seconds 1 --json | $(KEEP)
	for scenario in events dump views clients; do $(LOAD) $$scenario --json | $(KEEP); done
	$(BIN)/python -m zonetrack.clients.benchmarks docs/benchmarks/history.jsonl > docs/benchmarks.md

# pages that are printed from the code
docs: $(READY)
	$(BIN)/python -m zonetrack.shm.format > docs/format.md
	$(BIN)/python -m zonetrack.shm.format reasons > docs/reasons.md
	$(BIN)/python -m zonetrack.service.pages > docs/tcp-states.md
	$(BIN)/python -m zonetrack.service.ovs_page > docs/ovs-states.md
	$(BIN)/python -m zonetrack.service.sctp_page > docs/sctp-states.md
	$(BIN)/python -m zonetrack.service.service_page > docs/service.md
	$(BIN)/python -m zonetrack.clients.commands_page > docs/commands.md
	$(BIN)/python -m zonetrack.clients.benchmarks docs/benchmarks/history.jsonl > docs/benchmarks.md

# docs as a site, to be read from disk or by any web server: .make/site/index.html
site: $(READY)
	$(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) $(MADE) build dist *.egg-info

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[test]'
	@touch $@

$(CHECKERS): $(READY)
	$(BIN)/pip install --quiet --editable '.[test,check]'
	@touch $@
