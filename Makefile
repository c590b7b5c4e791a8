# Every target does its own set-up (Python 3.11 or newer; Spark needs Java 17) and is quick the
# second time. `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo manifests deb image test test-all run-fast run-all lint types imports format sync bench sim verify drills harness attack attack-sql admin clients suites dist lock setup clean distclean

# Types and contracts of imports are checked beside the tests, once style is right: mypy from nothing
# keeps one core busy for a minute, and none of them would use the other. It gives way to them: they
# wait for real processes.
MAKEFLAGS += --jobs=3

PY := .venv/bin/python
SEEDS ?= 1..5000
VERIFY_S ?= 600
ATTACK ?= 1..400
ATTACK_S ?= 300
INPUTS ?= 1000000
SEED ?= 1
NODES ?= 1
PACKAGES := raft kv tso txn procedures sqlproxy kvorum pyspark_kvorum
# Only one Java question, asked in one place; empty when there is none (the Spark tests then say so).
JAVA = JAVA_HOME="$$(scripts/java_home.sh 2>/dev/null || true)"
export PYTHONUNBUFFERED = 1
# Byte-code is kept whatever the caller's environment says: tests start hundreds of processes, which
# spend half of their start on compiling otherwise.
export PYTHONDONTWRITEBYTECODE =

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

setup: ## .venv with the locked packages
	@scripts/setup.sh

demo: ## the tour: Spark writes exactly once while things are killed (NODES=3: a cluster; needs Java 17)
	@scripts/setup.sh --java
	@$(JAVA) $(PY) -m demo --nodes $(NODES)

PYTEST = $(JAVA) $(PY) -m pytest -n auto --dist loadfile $(if $(DURATIONS),--write-durations)

test: run-fast types imports ## at most eight minutes: style, types, import contracts, every feature, Spark's too

test-all: run-all types imports ## an hour: the same, with the tests that take long

run-fast: lint  # generated cases are the same ones each time: a red run there is red here, too
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(PYTEST) -m "not slow and not clients"

run-all: lint
	@$(PYTEST)

lint: setup
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

types: setup
	@nice -n 19 $(PY) -m mypy

imports: setup
	@.venv/bin/lint-imports --no-logo

format: setup ## lay the code out, and fix what ruff can fix
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

sync: setup ## kvorum/sdk/sync.py from the asynchronous SDK
	@$(PY) -m scripts.generate_sync

bench: setup ## the benchmarks; bench/PEERS.md tells how to put other stores beside them
	@$(JAVA) $(PY) -m bench

sim: setup ## thousands of simulated clusters, then every rule of consensus switched off (SEEDS=1..5000)
	@$(PY) -m tests.sim.raft --seeds $(SEEDS) --jobs $$(nproc)
	@$(PY) -m tests.sim.raft --proof

harness: setup ## every built-in procedure, crashed and failed at every point (TYPES="CreateTable …")
	@$(PY) -m tests.harness $(TYPES)

verify: setup ## ten minutes of every workload on three nodes that are killed, paused and cut (VERIFY_S=600)
	@$(PY) -m kvorum verify --workload all --clients 3 --seconds $(VERIFY_S) --nemesis kill,pause,cut,restart
	@$(PY) -m kvorum verify --workload skew,list-append,bank,register --isolation serializable --clients 3 \
	  --seconds $$(( $(VERIFY_S) / 5 + 1 )) --nemesis kill,pause,cut,restart

drills: setup ## clusters of real processes whose nodes are killed, cut off, filled up, replaced, … (DRILLS="suspend restore")
	@$(PY) -m tests.drills $(DRILLS)
	@$(if $(DRILLS),,SITES_CUT_S=60 $(PY) -m pytest -n 0 -o faulthandler_timeout=0 tests/processes/test_two_clusters.py tests/processes/test_cluster_sites.py)

sim-txn: setup ## thousands of whole clusters with transactions, then builds broken on purpose (SEEDS=1..5000)
	@$(PY) -m tests.sim.cluster --seeds $(SEEDS) --jobs $$(nproc)
	@$(PY) -m tests.sim.cluster --proof
	@$(PY) -m tests.sim.cluster --crash-points

attack-sql: setup ## SQL with everything killed, simulated and on real processes (ATTACK=1..400, ATTACK_S=300)
	@$(PY) -m tests.kvorum.cluster.sql_simulated --seeds $(ATTACK)
	@$(PY) -m tests.kvorum.cluster.sql_attack --seconds $(ATTACK_S)

attack: setup ## a million hostile inputs to every decoder and port (INPUTS=1000000, SEED=1)
	@$(PY) -m pip install --quiet --no-deps --require-hashes -r requirements/attack.lock
	@$(PY) -m tests.attack --inputs $(INPUTS) --seed $(SEED)

clients: setup ## Knex, TypeORM, Sequelize, node-pg-migrate, peewee and pgjdbc against a node (needs Node 20, Java 17)
	@scripts/clients.sh
	@$(PY) -m pytest -n 0 -m clients tests/clients/sql/test_foreign_clients.py

suites: setup ## asyncpg's, SQLAlchemy's and Django's own tests against a node
	@$(PY) -m pytest -n 0 -o faulthandler_timeout=0 -m clients tests/clients/sql/suites

admin: setup ## Django's admin over Kvorum in a headless Chromium (needs chromium)
	@$(PY) -m tests.clients.sql.admin_browser

dist: setup ## a wheel and a source archive in dist/
	@$(PY) -m build --outdir dist .

manifests: setup ## deploy/kubernetes/kvorum.yaml from the Helm chart
	@$(PY) -m scripts.chart

deb: setup ## a Debian package in dist/ (needs dpkg-deb)
	@$(PY) -m scripts.deb dist

image: setup ## an OCI image in dist/, without an engine
	@$(PY) -m scripts.image dist

lock: setup ## requirements/*.lock from pyproject.toml (needs uv; UPGRADE=--upgrade for newer versions)
	@scripts/lock.sh $(UPGRADE)

clean: ## caches and what runs leave behind
	@find $(PACKAGES) tests bench demo scripts -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist *.egg-info \
	  spark-warehouse metastore_db derby.log

distclean: clean ## clean, .venv and .clients
	@rm -rf .venv .clients
