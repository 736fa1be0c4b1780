# `make` prints what there is to do. Each target sets up what it needs, and is quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# uv on the PATH, or one that is brought from PyPI into the environment.
UV ?= $(or $(shell command -v uv),$(BIN)/uv)
export UV_PROJECT_ENVIRONMENT := $(abspath $(VENV))
# Hashes are checked; what is installed besides (examples, a native core, other groups) stays.
SYNC := $(UV) sync --quiet --frozen --inexact --no-default-groups
IN_PLACE := $(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation
EXAMPLES := examples/toy_register examples/http_register
# Packages of earlier commits: they are files now, and an old environment would list them as broken.
GONE := etcd-example postgres-example zookeeper-example asyncio-service
CARGO ?= cargo
NO_CARGO := CARGO=/nonexistent/cargo
DISK := native/fusedisk
RUN_ARGS ?= --env process --nemesis partition-leader --time-limit 20
# Tests wait more than they compute: twice as many workers as processors.
WORKERS ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadgroup -q

# What runs and reports need; what the quick tier needs besides; what everything else needs.
STAMP := $(VENV)/.setup-stamp
TEST_STAMP := $(VENV)/.test-stamp
DEV_STAMP := $(VENV)/.dev-stamp
DOCS_STAMP := $(VENV)/.docs-stamp
DIST_STAMP := $(VENV)/.dist-stamp
NATIVE_STAMP := $(VENV)/.native-stamp

.DEFAULT_GOAL := help
.PHONY: help run test test-all test-heavy nightly exam check docs dist dist-check setup dev docs-setup kerberos native lock bench clean-venv

# Runs a step quietly and prints its time; where it fails, its output.
define step
	@printf '%-46s' '$(1)'; started=$$(date +%s%N); \
	if $(2) > $(VENV)/step.log 2>&1; then \
		awk "BEGIN { printf \"%6.1f s\n\", ($$(date +%s%N) - $$started) / 1e9 }"; \
	else echo ' failed'; cat $(VENV)/step.log >&2; exit 1; fi
endef

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# A native core that was built once is kept in step with its sources.
run: $(STAMP) $(if $(wildcard checkers/_native*),$(NATIVE_STAMP)) ## run Kudu's masters as processes for 30 s (RUN_ARGS="--env docker ..." for others)
	@echo '3/3 harness run $(RUN_ARGS)'
	@$(BIN)/harness run $(RUN_ARGS)

test: $(TEST_STAMP) ## run the quick tier of the tests
	$(PYTEST) -m quick

test-all: $(DEV_STAMP) $(NATIVE_STAMP) ## run both tiers
	$(PYTEST)

test-heavy: $(DEV_STAMP) $(NATIVE_STAMP) ## run the tests that are not in the quick tier
	$(PYTEST) -m 'not quick and not nightly'

nightly: $(DEV_STAMP) $(NATIVE_STAMP) ## run the expensive variants (CONTRIBUTING.md has more for a night)
	$(BIN)/pytest -m nightly -n 2 --dist loadgroup -q

# Within two hours on two cores: --cpu bounds what all runs cost together, in seconds.
EXAM ?= --first --clean 1..69 --cpu 14000
exam: $(DEV_STAMP) $(NATIVE_STAMP) ## look for every bug switch and planted defect, and for false alarms
	$(BIN)/harness exam --target kudu,hive --defects tests.mutants $(EXAM)

check: $(DEV_STAMP) ## run linters, mypy, and the rules of layout and determinism
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_layout.py
	$(BIN)/python -m harness.determinism targets

docs: $(DOCS_STAMP) ## build the site of the documentation, strictly
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo 'site/index.html'

dist: $(DIST_STAMP) ## build the wheel and the sdist (dist/)
	$(BIN)/python .ci/dist.py

dist-check: dist ## install wheel and sdist in empty environments, run, soak and report there
	UV=$(UV) $(BIN)/python .ci/dist.py check

setup: $(STAMP)

dev: $(DEV_STAMP) $(NATIVE_STAMP) ## set up everything that test-all and check need

docs-setup: $(DOCS_STAMP)

# gssapi is built from source, against Debian's libkrb5-dev.
kerberos: $(STAMP)
	$(NO_CARGO) $(SYNC) --extra kerberos

native: $(NATIVE_STAMP) ## build the native core (needs cargo)

# --- environments ----------------------------------------------------------------------------

$(BIN)/uv: .ci/uv.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r .ci/uv.txt
	@touch $@

# No cargo here: compiling takes longer than all the rest.
$(STAMP): uv.lock pyproject.toml $(EXAMPLES:=/pyproject.toml) | $(filter $(BIN)/uv,$(UV))
	@mkdir -p $(VENV)
	@test -x $(BIN)/python || $(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
	$(call step,1/3 Python packages,$(NO_CARGO) $(SYNC) --extra docker --extra hive --extra report --extra systems --group build)
	$(call step,2/3 example plug-ins,$(UV) pip uninstall --quiet --python $(BIN)/python $(GONE) && $(IN_PLACE) $(addprefix -e ./,$(EXAMPLES)))
	@touch $@

$(TEST_STAMP): $(STAMP)
	@$(NO_CARGO) $(SYNC) --group build --group test
	@touch $@

$(DEV_STAMP): $(STAMP)
	@$(NO_CARGO) $(SYNC) $(patsubst %,--extra %,docker hive report spark systems) --group dev
	@touch $@

$(DOCS_STAMP): $(STAMP)
	@$(NO_CARGO) $(SYNC) --group build --group docs
	@touch $@

$(DIST_STAMP): $(STAMP)
	@$(NO_CARGO) $(SYNC) --group build --group dist
	@touch $@

# Builds the core and the disk for foreign programs where there is a Rust toolchain (which fetches
# its crates); says whether it did.
$(NATIVE_STAMP): $(STAMP) $(wildcard native/Cargo.* native/src/*.rs $(DISK)/Cargo.* $(DISK)/src/*.rs)
	@$(IN_PLACE) --reinstall-package catalog-harness -e .
	@$(BIN)/python -c "from checkers.linearizability import native; print(native.native_status())"
	@if ! command -v $(CARGO) > /dev/null; then \
		echo "faulty disks for foreign programs: not built, there is no cargo"; \
	elif $(CARGO) build --quiet --release --locked --manifest-path $(DISK)/Cargo.toml; then \
		install $(DISK)/target/release/harness-fusedisk $(BIN)/; \
	else \
		echo "faulty disks for foreign programs: not built, see above"; \
	fi
	@touch $@

lock: $(STAMP) ## bring uv.lock in step with pyproject.toml
	$(UV) lock

BENCHES := generator simulation judging.checkers judging.edn judging.elle results.lake_report \
	results.page results.serve_lake targets.kudu_simulation

bench: $(DEV_STAMP) $(NATIVE_STAMP) ## run the benchmarks
	for name in $(BENCHES); do $(BIN)/python -m bench.$$name || exit 1; done

clean-venv: ## remove the environment
	rm -rf $(VENV)
