"""Fixtures for tests of the command line: a stored run, and `harness` as users start it."""

import sys

import pytest

from harness.cli import main

PROGRAM = [sys.executable, "-c", "import sys; from harness.cli import main; sys.exit(main())"]


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """Return a run with more operations than a pipe can buffer."""
    store = tmp_path_factory.mktemp("store")
    words = ["run", "--env", "sim", "--target", "toy-register", "--workload", "register"]
    words += ["--reporters", "none", "--quiet", "--seed", "1", "--time-limit", "30"]
    assert main([*words, "--rate", "100", "--store", str(store)]) == 0
    (folder,) = (store / "register-none").glob("2*")
    return folder
