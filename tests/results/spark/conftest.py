"""Fixtures: a small store of simulated runs, and a lake with these runs."""

from pathlib import Path

import pytest

from harness.ops import History
from results.lake.transfer.ingest_verb import main as ingest
from tests.results.judging.stores import put_run, register_ops
from tests.results.report.stores import MIXED, make_store


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """Build runs of both labels and two workloads, with detected bugs and without bugs.

    One run was interrupted, and names a checker that does not exist.
    """
    buggy = [spec for spec in MIXED if spec.bugs][:2]
    plain = [spec for spec in MIXED if spec.workload == "append"] + [MIXED[0], MIXED[3], MIXED[5]]
    made = make_store(tmp_path_factory.mktemp("some") / "store", (*buggy, *plain))
    odd = {"finished": False, "checkers": ("linearizable-register", "nowhere", "stats")}
    put_run(made, "odd", "r1", History(register_ops(1)), **odd)
    return made


@pytest.fixture(scope="session")
def lake(store, tmp_path_factory):
    """Return the address of a lake whose runs are not judged; copy it before you judge it."""
    uri: Path = tmp_path_factory.mktemp("lakes") / "lake"
    assert ingest([str(store), "--lake", str(uri), "--unfinished"]) == 0
    return uri
