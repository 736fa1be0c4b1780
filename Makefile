# The two commands: `make run` and `make test`. Each sets up what it needs, and is quick the
# second time. Everything else is for developers.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp
EXAMPLES := examples/toy_register examples/http_register examples/etcd
RUN_ARGS ?= --nemesis partition-leader

.PHONY: run test check setup lock bench clean-venv

run: $(STAMP)
	$(BIN)/harness run $(RUN_ARGS)

test: $(STAMP)
	$(BIN)/pytest -n 2 --dist loadgroup -q

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_layout.py
	$(BIN)/python -m harness.determinism targets

setup: $(STAMP)

# The lock file pins every package with its hashes; the project and its example plug-ins are
# installed in place. That builds the native core where there is a Rust toolchain (which fetches
# its crates); the last line says whether it is there.
NATIVE := $(wildcard native/Cargo.* native/src/*.rs)

$(STAMP): requirements.lock pyproject.toml $(NATIVE) $(EXAMPLES:=/pyproject.toml)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		-e . $(addprefix -e ./,$(EXAMPLES))
	@$(BIN)/python -c "from checkers.linearizability import native; print(native.native_status())"
	touch $(STAMP)

lock: pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --all-extras --group dev \
		-o requirements.lock pyproject.toml

# All but `report_masters`, which wants a store to report on.
BENCHES := checkers edn elle fuzz generator kudu_simulation page report serve simulation soak

bench: $(STAMP)
	for name in $(BENCHES); do $(BIN)/python -m bench.$$name || exit 1; done

clean-venv:
	rm -rf $(VENV)
