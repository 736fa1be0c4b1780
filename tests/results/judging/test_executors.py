"""Local workers and Spark give equal rows, and lose none if a worker dies."""

import shutil
from pathlib import Path

import pytest

from harness.ops import History
from harness.verdict.limits import cpu_limit, memory_limit
from results.judging.budgets import Budget
from results.judging.markers import Marker
from results.judging.pipeline import in_workers
from results.judging.work_units import RoundConfig
from results.lake.log.files import RESULTS
from results.lake.transfer.store_lake import lake_of_store
from tests.results.judging.stores import (
    hopeless,
    judge_lake,
    judge_store,
    numbered,
    plain_store,
    put_run,
    register_ops,
)

pytestmark = pytest.mark.lake


def mixed_store(store):
    """Build a store of valid, invalid and undecidable runs."""
    plain_store(store)
    put_run(store, "n", "hard", numbered(hopeless(40)))
    return store


BUDGET = Budget(cpu_s=300.0, steps=20_000, configurations=1_000)


@pytest.mark.slow
@pytest.mark.process
def test_pool_and_inline_make_equal_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("results.judging.report_runs.UNIT_RUNS_MAX", 1)
    uri = Path(lake_of_store(mixed_store(tmp_path)).uri)
    found = {}
    for executor in ("inline", "pool"):
        shutil.rmtree(uri / RESULTS, ignore_errors=True)
        judged = judge_lake(uri, executor=executor, jobs=2, budget=BUDGET, second_pass=False)
        assert judged.checked.executor == executor
        assert judged.checked.problems == ()
        found[executor] = judged.rows()
    assert found["inline"] == found["pool"]
    assert len(found["inline"]["verdicts"]) == 4 * 4


@pytest.mark.slow
@pytest.mark.process
def test_memory_is_limited_in_workers(tmp_path, deadly):
    store = tmp_path / "store"
    put_run(store, "n", "fine", History(register_ops(1)), seed=1)
    put_run(store, "n", "greedy", History(register_ops(2)), seed=667)
    result = judge_store(
        store, executor="pool", jobs=1, checkers=("deadly",), budget=Budget(memory_mib=300),
        second_pass=False,
    )  # fmt: skip
    rows = result.verdict_rows()
    assert rows["n/fine", "deadly", None]["verdict"] == "valid"
    assert rows["n/greedy", "deadly", None]["verdict"] == "unknown"
    assert "more than 300 MiB of memory" in rows["n/greedy", "deadly", None]["reason"]


def test_a_small_store_is_judged_here(tmp_path):
    put_run(tmp_path, "n", "r", History(register_ops(1)))
    assert judge_store(tmp_path, executor="auto").checked.executor == "inline"


# --- budgets --------------------------------------------------------------------------------------


def test_no_alarm_rings_afterwards():
    import signal

    with cpu_limit(0.01):
        pass
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_memory_is_limited_and_given_back():
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(MemoryError), memory_limit(100):
        bytearray(200 << 20)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert len(bytearray(200 << 20)) == 200 << 20


def test_a_marker_counts_only_unfinished_runs(tmp_path):
    for _ in range(3):
        with Marker(tmp_path, "r", "stage"):
            pass
    assert not Marker(tmp_path, "r", "stage").spent
    for killed in (False, True):
        Marker(tmp_path, "r", "stage").__enter__()
        assert Marker(tmp_path, "r", "stage").spent == killed
    assert not Marker(tmp_path, "other", "stage").spent


CONFIG = RoundConfig(uri="", scratch="", round="", since_s=0.0, limit_memory=False)


def test_a_pool_without_work_starts_nothing():
    assert list(in_workers([], CONFIG, 2)) == []
