# The two commands: `make run` and `make test`. Each sets up what it needs, and is quick the
# second time. Everything else is for developers.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
EXAMPLES := examples/toy_register examples/http_register examples/etcd examples/postgres \
	examples/zookeeper
IN_PLACE := -e . $(addprefix -e ./,$(EXAMPLES))
CARGO ?= cargo
DISK := native/fusedisk
RUN_ARGS ?= --nemesis partition-leader

# What runs and reports need; the native core; what tests and checks need besides.
STAMP := $(VENV)/.setup-stamp
NATIVE_STAMP := $(VENV)/.native-stamp
TEST_STAMP := $(VENV)/.test-stamp

.PHONY: run test nightly check setup native lock bench clean-venv

# A native core that was built once is kept in step with its sources.
run: $(STAMP) $(if $(wildcard checkers/_native*),$(NATIVE_STAMP))
	$(BIN)/harness run $(RUN_ARGS)

test: $(TEST_STAMP)
	$(BIN)/pytest -n 4 --dist loadgroup -q

# What `make test` leaves out; CONTRIBUTING.md has the other commands for a night.
nightly: $(TEST_STAMP)
	$(BIN)/pytest -m nightly -n 2 --dist loadgroup -q

check: $(TEST_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_layout.py
	$(BIN)/python -m harness.determinism targets

setup: $(STAMP)

native: $(NATIVE_STAMP)

# The lock files pin every package with its hashes; the project and its example plug-ins are
# installed in place. No cargo here: compiling takes longer than all the rest.
$(STAMP): requirements.lock pyproject.toml $(EXAMPLES:=/pyproject.toml)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes -r requirements.lock
	CARGO=/nonexistent/cargo $(PIP) install --no-deps --no-build-isolation $(IN_PLACE)
	touch $(STAMP)

# Builds the core and the disk for foreign programs where there is a Rust toolchain (which fetches
# its crates); says whether it did.
$(NATIVE_STAMP): $(STAMP) $(wildcard native/Cargo.* native/src/*.rs $(DISK)/Cargo.* $(DISK)/src/*.rs)
	$(PIP) install --no-deps --no-build-isolation -e .
	@$(BIN)/python -c "from checkers.linearizability import native; print(native.native_status())"
	@if ! command -v $(CARGO) > /dev/null; then \
		echo "faulty disks for foreign programs: not built, there is no cargo"; \
	elif $(CARGO) build --quiet --release --locked --manifest-path $(DISK)/Cargo.toml; then \
		install $(DISK)/target/release/harness-fusedisk $(BIN)/; \
	else \
		echo "faulty disks for foreign programs: not built, see above"; \
	fi
	touch $(NATIVE_STAMP)

$(TEST_STAMP): $(NATIVE_STAMP) requirements-test.lock
	$(PIP) install --require-hashes -r requirements-test.lock
	touch $(TEST_STAMP)

# A package that stands in several locks has the same version in all. The extra `kerberos` has a
# lock of its own: gssapi is built from source, against headers that not everybody has.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header

lock: pyproject.toml
	$(PIP) install uv
	$(COMPILE) $(patsubst %,--extra %,docker hive lake report spark) --group dev \
		-o requirements-test.lock pyproject.toml
	$(COMPILE) --extra docker --extra hive --extra report --group build -c requirements-test.lock \
		-o requirements.lock pyproject.toml
	$(COMPILE) --extra kerberos -c requirements-test.lock -o requirements-kerberos.lock pyproject.toml

# All but `report_masters`, which wants a store to report on.
BENCHES := checkers edn elle fuzz generator kudu_simulation page raft_schedules report serve simulation soak

bench: $(TEST_STAMP)
	for name in $(BENCHES); do $(BIN)/python -m bench.$$name || exit 1; done

clean-venv:
	rm -rf $(VENV)
