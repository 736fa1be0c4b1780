"""The lake of a store holds its runs, read once."""

import pytest

from harness.case import Case
from results.lake.log.lake import Lake
from results.lake.transfer.store_lake import LAKE_FOLDER, lake_of_store
from tests.results.lake.test_ingest import history
from tests.run_folders import keep_run

pytestmark = pytest.mark.lake


def runs_of(uri):
    lake = Lake.open(uri)
    return {row["run"].split("@")[0]: row for row in lake.dataset("runs").to_table().to_pylist()}


def test_a_store_gets_a_lake_of_its_runs(tmp_path):
    store = tmp_path / "store"
    keep_run(store, "ddl-none", "r1", Case(seed=1), history(1))

    found = lake_of_store(store)

    assert found.uri == str(store / LAKE_FOLDER)
    assert [*runs_of(found.uri)] == ["ddl-none/r1"]
    assert found.problems.total == 0

    keep_run(store, "ddl-none", "r2", Case(seed=2), history(2))

    assert sorted(runs_of(lake_of_store(store).uri)) == ["ddl-none/r1", "ddl-none/r2"]
