"""One small store of simulated runs, as a lake, for all tests here."""

from pathlib import Path

import pytest

from results.ingest_verb import main as ingest
from tests.results.report.stores import MIXED, make_store


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """Runs of both labels, of two workloads, with bugs that are found and without."""
    buggy = [spec for spec in MIXED if spec.bugs][:2]
    plain = [spec for spec in MIXED if spec.workload == "append"] + [MIXED[0], MIXED[3], MIXED[5]]
    return make_store(tmp_path_factory.mktemp("some") / "store", (*buggy, *plain))


@pytest.fixture(scope="session")
def lake(store, tmp_path_factory):
    """Where it is; nothing is judged yet, and nobody is to judge here: copy it."""
    uri: Path = tmp_path_factory.mktemp("lakes") / "lake"
    assert ingest([str(store), "--lake", str(uri)]) == 0
    return uri
