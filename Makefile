# Needs Python 3.11 or newer and make. The first target that needs it builds .venv from requirements-dev.lock.

VENV := .venv
BIN := $(VENV)/bin

# Where KAI Scheduler's recorded decisions are; see CONTRIBUTING.md.
CONFORMANCE_DIR ?= $(or $(KAI_CONFORMANCE_DIR),../shared/conformance)
# More arguments for pytest, as in `make test PYTEST_ARGS="-k gang"`.
PYTEST_ARGS ?=
# One more than there are processors: some tests wait for processes, and for time that is what they test.
TEST_WORKERS ?= $(shell expr "$$(getconf _NPROCESSORS_ONLN)" + 1)
# How many control planes `make test-cluster` runs at a time, each with a share of the tests. One more than
# processors: the stories of tests/cluster and tests/e2e wait for half of their time.
CLUSTER_WORKERS ?= 3
# The end-to-end specs that `make test-cluster` takes, too: those that need the operator, webhooks or controllers. They
# stay on one worker, and come first.
E2E_IN_CI := $(patsubst %,tests/e2e/test_%.py, \
	doctor helm lifecycle operated contract api consolidation shards upgrade) \
	tests/e2e/test_workload_kinds.py::test_pods_of_a_job_set_that_end_in_turn_are_not_stale
# More arguments for `make cluster`, as in `make cluster CLUSTER_ARGS="--install everything --folder /tmp/plane"`.
CLUSTER_ARGS ?=
# More arguments for `make soak`, as in `make soak SOAK_ARGS="--kills 10 --seed 7"`.
SOAK_ARGS ?=
# More arguments for `make attack`, as in `make attack ATTACK_ARGS="--only 4 5"`.
ATTACK_ARGS ?=
# More arguments for `make rotate`, as in `make rotate ROTATE_ARGS=--cluster`.
ROTATE_ARGS ?=
# More arguments for `make mutants`, as in `make mutants MUTANTS_ARGS=--changed`.
MUTANTS_ARGS ?=
# More arguments for the clusters of `make bench`, as in `make bench SHAPES_ARGS="--nodes 100 --runs 1"`.
SHAPES_ARGS ?=
# More arguments for `make image`, as in `make image IMAGE_ARGS="--output /tmp/image"`.
IMAGE_ARGS ?=
# What `make mutants-all` changes: modules that differ from a revision or, as in `make mutants-all MODULES="core/placing/*.py"`,
# those that fit patterns below src/pykai.
BASE ?= origin/main
MODULES ?=
# `make lock UPGRADE=1` moves every pin to the newest version; without it only what pyproject.toml asks for changes.
UPGRADE ?=

# Tests start the program again and again, in several processes: compiling it each time would double what a start costs.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test e2e faults soak attack rotate cluster cluster-programs test-cluster kubectl helm test-kubectl test-helm test-prometheus image image-check check lint format format-check types layers conformance bench mutants mutants-all venv lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/ready ## start a living cluster with 100 simulated GPUs; Ctrl-C ends it
	@$(BIN)/kai up

test: $(VENV)/ready ## run the tests on all cores (PYTEST_ARGS adds arguments)
	@if [ -d "$(CONFORMANCE_DIR)" ]; then \
		KAI_CONFORMANCE_DIR="$$(cd "$(CONFORMANCE_DIR)" && pwd)"; export KAI_CONFORMANCE_DIR; \
	else \
		KAI_CONFORMANCE_DIR="$(CONFORMANCE_DIR)"; export KAI_CONFORMANCE_DIR; \
		echo; \
		echo "**********************************************************************"; \
		echo "**  NO CONFORMANCE CASES: $(CONFORMANCE_DIR) is missing."; \
		echo "**  The recorded decisions of KAI Scheduler are NOT tested in this run."; \
		echo "**  Set KAI_CONFORMANCE_DIR to the folder that holds them."; \
		echo "**********************************************************************"; \
		echo; \
	fi; \
	if ! command -v cc >/dev/null && ! command -v gcc >/dev/null; then \
		echo; \
		echo "**********************************************************************"; \
		echo "**  NO C COMPILER: the reservation program is NOT tested against the"; \
		echo "**  libraries of GPU drivers in this run. Install gcc."; \
		echo "**********************************************************************"; \
		echo; \
	fi; \
	echo "Running the tests"; \
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist worksteal $(PYTEST_ARGS)

faults: $(VENV)/ready ## let each call of each service fail alone, in every way, 10 minutes (PYTEST_ARGS adds arguments)
	@KAI_FAULTS=each $(BIN)/python -m pytest -n $(TEST_WORKERS) tests/faults $(PYTEST_ARGS)

e2e: $(VENV)/ready ## upstream's end-to-end specs on an installation on a real control plane, with all their waits; needs Go
	@$(BIN)/python tools/kubernetes.py --all >/dev/null && \
	KAI_HELM="$$($(BIN)/python tools/kubernetes.py helm)" && export KAI_HELM && \
	{ KAI_PROMETHEUS="$$($(BIN)/python tools/prometheus.py)" && export KAI_PROMETHEUS || \
	echo "Usage over time is tested with our own records only."; } && \
	KAI_E2E_REAL_TIMES=1 $(BIN)/python -m pytest --cluster -n 0 tests/e2e $(PYTEST_ARGS)

soak: $(VENV)/ready ## kill processes under load on a real control plane, then 20 leaders, and check what was seen, 45 minutes (SOAK_ARGS adds arguments)
	@if command -v go >/dev/null; then \
		$(BIN)/python tools/kubernetes.py --all >/dev/null && \
		$(BIN)/python -m tests.cluster.soak $(SOAK_ARGS) && \
		$(BIN)/python -m tests.cluster.leaderkills; \
	else \
		echo; \
		echo "**********************************************************************"; \
		echo "**  NO GO: etcd and Kubernetes cannot be built."; \
		echo "**  The soak runs on the embedded API server, for a few minutes."; \
		echo "**********************************************************************"; \
		echo; \
		$(BIN)/kai soak $(SOAK_ARGS); \
	fi

attack: $(VENV)/ready ## what a hostile tenant tries, what happens, and what others feel (ATTACK_ARGS adds arguments)
	@$(BIN)/python -m tests.attack $(ATTACK_ARGS)

rotate: $(VENV)/ready ## renew the webhooks' certificate 20 times under 50 admissions a second (ROTATE_ARGS adds arguments)
	@$(BIN)/python -m tests.webhooks.rotation $(ROTATE_ARGS)

cluster: $(VENV)/ready ## start a real control plane with machines, to install the chart on; Ctrl-C ends it; needs Go (CLUSTER_ARGS adds arguments)
	@$(BIN)/python -m tests.cluster $(CLUSTER_ARGS)

cluster-programs: $(VENV)/ready ## build etcd and Kubernetes' programs with Go into a cache outside the checkout
	@$(BIN)/python tools/kubernetes.py --all

test-cluster: $(VENV)/ready ## run the tests that need an API server on a real control plane; needs Go (PYTEST_ARGS adds arguments)
	@if command -v go >/dev/null; then \
		$(BIN)/python tools/kubernetes.py --all helm >/dev/null && \
		KAI_HELM="$$($(BIN)/python tools/kubernetes.py helm)" && export KAI_HELM && \
		{ KAI_PROMETHEUS="$$($(BIN)/python tools/prometheus.py)" && export KAI_PROMETHEUS || \
		echo "Usage over time is tested with our own records only."; } && \
		echo "Running the tests on a real control plane" && \
		$(BIN)/python -m pytest --cluster -n $(CLUSTER_WORKERS) $(E2E_IN_CI) tests/services tests/lab/apiserver tests/kube \
			tests/webhooks tests/cluster $(PYTEST_ARGS); \
	else \
		echo; \
		echo "**********************************************************************"; \
		echo "**  NO GO: etcd and Kubernetes cannot be built."; \
		echo "**  Nothing is tested on a real control plane in this run."; \
		echo "**********************************************************************"; \
		echo; \
	fi

kubectl: $(VENV)/ready ## build kubectl v1.35.4 with Go into a cache outside the checkout, and print its path
	@$(BIN)/python tools/kubernetes.py kubectl

helm: $(VENV)/ready ## build Helm with Go into a cache outside the checkout, and print its path
	@$(BIN)/python tools/kubernetes.py helm

test-kubectl: $(VENV)/ready ## what users do with kubectl, with the newest one too; needs Go
	@if command -v go >/dev/null; then \
		KAI_KUBECTL="$$($(BIN)/python tools/kubernetes.py kubectl)" && export KAI_KUBECTL && \
		$(BIN)/python -m pytest tests/lab/test_kubectl.py $(PYTEST_ARGS); \
	else \
		echo; \
		echo "**********************************************************************"; \
		echo "**  NO GO: kubectl v1.35.4 cannot be built, and is NOT tested."; \
		echo "**********************************************************************"; \
		echo; \
	fi

test-helm: $(VENV)/ready ## the chart as Helm reads it: lint, and the same objects as kai install prints; needs Go (PYTEST_ARGS adds arguments)
	@if command -v go >/dev/null; then \
		KAI_HELM="$$($(BIN)/python tools/kubernetes.py helm)" && export KAI_HELM && \
		$(BIN)/python -m pytest tests/helm $(PYTEST_ARGS); \
	else \
		echo; \
		echo "**********************************************************************"; \
		echo "**  NO GO: Helm cannot be built, and the chart is NOT tested with it."; \
		echo "**********************************************************************"; \
		echo; \
	fi

test-prometheus: $(VENV)/ready ## usage, dashboards and alerts with a real Prometheus, Debian's package; needs apt-get and dpkg (PYTEST_ARGS adds arguments)
	@if folder="$$($(BIN)/python tools/prometheus.py)"; then \
		KAI_PROMETHEUS="$$folder" $(BIN)/python -m pytest tests/scheduler/usage/test_real_prometheus.py \
			tests/operator/monitoring/test_real_monitoring.py $(PYTEST_ARGS); \
	else \
		echo; \
		echo "**********************************************************************"; \
		echo "**  NO PROMETHEUS: Debian's package cannot be had."; \
		echo "**  Usage from Prometheus is tested with a small stand-in only."; \
		echo "**********************************************************************"; \
		echo; \
	fi

image: $(VENV)/ready ## build the image of all services into dist, without Docker; needs root and Debian (IMAGE_ARGS adds arguments)
	@$(BIN)/python -m tools.image $(IMAGE_ARGS)

image-check: $(VENV)/ready ## build the image twice, compare, and run it with a read-only root; needs what `make image` needs (PYTEST_ARGS adds arguments)
	@if $(BIN)/python -m tools.image.programs; then \
		echo "Building the image twice and running it"; \
		KAI_IMAGE=build $(BIN)/python -m pytest -p no:cacheprovider tests/image $(PYTEST_ARGS); \
	fi

check: lint format-check types layers ## lint, format-check, types and layers

lint: $(VENV)/ready ## ruff check
	@echo "Linting"
	@$(BIN)/python -m ruff check .

format: $(VENV)/ready ## rewrite the sources in the project's format
	@$(BIN)/python -m ruff format .

format-check: $(VENV)/ready ## fail where `make format` would change something
	@echo "Checking the format"
	@$(BIN)/python -m ruff format --check .

types: $(VENV)/ready ## mypy, strict
	@echo "Checking types"
	@$(BIN)/python -m mypy

layers: $(VENV)/ready ## import-linter: who may import whom
	@echo "Checking layers"
	@$(BIN)/lint-imports

conformance: $(VENV)/ready ## compare with KAI Scheduler's recorded decisions (CONFORMANCE_DIR)
	@$(BIN)/kai conformance "$(CONFORMANCE_DIR)"

bench: $(VENV)/ready ## run all benchmarks, and one cycle on clusters that are hard to schedule (SHAPES_ARGS adds arguments)
	@$(BIN)/kai bench --all
	@$(BIN)/python -m bench.shapes $(SHAPES_ARGS)

mutants: $(VENV)/ready ## break the code on purpose, one statement at a time, and see that the tests notice
	@$(BIN)/python tools/mutants.py $(MUTANTS_ARGS)

mutants-all: $(VENV)/ready ## generate changes of modules that differ from BASE, or of MODULES, and show what survives
	@$(BIN)/python tools/mutate.py --base "$(BASE)" $(foreach pattern,$(MODULES),'$(pattern)')

venv: $(VENV)/ready ## build .venv

lock: $(VENV)/ready ## write all lock files anew (UPGRADE=1: newest versions)
	@echo "Locking the runtime"
	@$(COMPILE) -o requirements.lock pyproject.toml
	@echo "Locking the image"
	@$(COMPILE) --all-extras -c requirements.lock -o requirements-image.lock pyproject.toml
	@echo "Locking the runtime, the tools and the build backend"
	@$(COMPILE) --group dev --group build -c requirements-image.lock -o requirements-dev.lock pyproject.toml
	@echo "Locking the build backend"
	@$(COMPILE) --group build -c requirements-dev.lock -o requirements-build.lock

clean: ## remove .venv, builds and caches
	rm -rf $(VENV) build dist htmlcov .coverage .coverage.* .hypothesis
	rm -rf .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# One lock for all platforms and for Python 3.11 and newer, one version of each package, no address of an index in it.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links $(if $(UPGRADE),--upgrade)

# A virtual environment holds absolute paths: copied or moved along with its checkout it would run the other checkout's
# code, and without its interpreter nothing at all. In both cases it is built anew.
ifneq ($(shell test -x $(BIN)/python && cat $(VENV)/created 2>/dev/null),$(CURDIR))
.PHONY: $(VENV)/created
endif

$(VENV)/created:
	@python=python3.11; "$$python" -c '' 2>/dev/null || python=python3; \
	if ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		echo "PyKAI needs Python 3.11 or newer; found $$("$$python" --version 2>/dev/null || echo none)." >&2; exit 1; \
	fi; \
	echo "Creating $(VENV) with $$("$$python" --version)"; \
	"$$python" -m venv --clear $(VENV) || { \
		echo "Cannot create $(VENV): does this Python lack the module venv or ensurepip?" >&2; exit 1; }
	@printf '%s\n' "$(CURDIR)" > $@

$(VENV)/locked: requirements-dev.lock $(VENV)/created
	@echo "Installing requirements-dev.lock (about 250 MB on disk; this takes a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

$(VENV)/ready: pyproject.toml $(VENV)/locked
	@echo "Installing PyKAI in $(VENV), editable"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
