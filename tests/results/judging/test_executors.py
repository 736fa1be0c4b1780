"""Three executors, one core: equal rows, and none is lost with a worker."""

import contextlib
import os
import time

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.limits import SpentError, cpu_limit, memory_limit
from harness.ops import History
from results.judging.budgets import Budget
from results.judging.executors import pool
from results.judging.executors.pool import PoolExecutor
from results.judging.manifest import Unit
from results.judging.markers import RESULTS, Marker, forget_markers
from results.judging.packing import pack
from results.judging.pipeline import check_store
from results.judging.units import CRASHED
from tests.results.judging.stores import (
    hopeless,
    keyed_history,
    numbered,
    put_run,
    register_ops,
    rows_of,
    store_with_a_killer,
)


def mixed_store(store):
    """Valid, invalid and hopeless runs, plain and by key."""
    for n in range(3):
        put_run(store, "n", f"r{n}", History(register_ops(n, stale=n == 1)), seed=n)
    keys = keyed_history(list("abcdef"), stale=("b",), giant="g", giant_ops=40)
    put_run(store, "n", "keys", keys, buckets=2)
    put_run(store, "n", "hard", numbered(hopeless(None, 40, process=0)))
    return store


BUDGET = Budget(cpu_s=300.0, steps=20_000, configurations=1_000)


@pytest.mark.slow
@pytest.mark.process
def test_pool_and_inline_make_equal_rows(tmp_path):
    import shutil

    mixed_store(tmp_path)
    found = {}
    for executor in ("inline", "pool"):
        shutil.rmtree(tmp_path / RESULTS, ignore_errors=True)
        checked = check_store(tmp_path, executor=executor, jobs=2, budget=BUDGET, second_pass=False)
        assert checked.executor == executor
        assert checked.problems == ()
        found[executor] = rows_of(checked)
    assert found["inline"] == found["pool"]
    assert len(found["inline"]["verdicts"]) == 4 * 4 + 3 + 7


@pytest.mark.slow
@pytest.mark.process
def test_a_unit_that_kills_its_worker_is_named_and_nothing_else_is_lost(
    tmp_path, deadly, monkeypatch
):
    store = store_with_a_killer(tmp_path / "store")
    names = ("linearizable-register", "deadly", "stats")
    checked = check_store(store, executor="pool", jobs=2, checkers=names)

    (path,) = checked.tables["verdicts"]
    rows = {(row["run"], row["checker"]): row for row in pq.read_table(path).to_pylist()}
    runs = {info.key for info in checked.runs}
    assert set(rows) == {(run, name) for run in runs for name in names}
    for run in runs:
        row = rows[run, "deadly"]
        expected = ("unknown", CRASHED) if "killer" in run else ("valid", "alive")
        assert (row["verdict"], row["reason"]) == expected
        assert rows[run, "linearizable-register"]["verdict"] == "valid"
    assert len(pq.read_table(checked.tables["runs"][0])) == 4
    assert checked.problems == ()
    again = check_store(store, executor="pool", jobs=2, checkers=names)
    assert (again.units, rows_of(again)) == (0, rows_of(checked))
    assert not list((store / RESULTS / "started").iterdir())
    assert again.results_unsettled == 1

    # On another machine, or on this one with more memory, it lives.
    monkeypatch.setenv("DEADLY_CURED", "1")
    once_more = check_store(store, executor="pool", jobs=2, checkers=names, again=True)
    found = pq.read_table(once_more.tables["verdicts"][0]).to_pylist()
    assert {row["verdict"] for row in found if row["checker"] == "deadly"} == {"valid"}
    assert (once_more.results_new, once_more.results_unsettled) == (1, 0)
    assert check_store(store, checkers=names).results_new == 0


@pytest.mark.slow
@pytest.mark.process
def test_memory_is_limited_in_workers(tmp_path, deadly):
    store = tmp_path / "store"
    put_run(store, "n", "fine", History(register_ops(1)), seed=1)
    put_run(store, "n", "greedy", History(register_ops(2)), seed=667)
    budget = Budget(memory_mib=300)
    checked = check_store(
        store, executor="pool", jobs=1, checkers=("deadly",), budget=budget, second_pass=False
    )
    (path,) = checked.tables["verdicts"]
    rows = {row["run"]: row for row in pq.read_table(path).to_pylist()}
    assert rows["n/fine"]["verdict"] == "valid"
    assert rows["n/greedy"]["verdict"] == "unknown"
    assert "more than 300 MiB of memory" in rows["n/greedy"]["reason"]


def test_a_small_store_is_judged_here(tmp_path):
    put_run(tmp_path, "n", "r", History(register_ops(1)))
    assert check_store(tmp_path).executor == "inline"


# --- packing --------------------------------------------------------------------------------------


def unit(n, cost):
    return Unit(
        folder="",
        name="n",
        run=str(n),
        source="",
        files=(),
        digest="",
        checks=(),
        budget=Budget(),
        n_ops=0,
        cost=cost,
    )


@given(costs=st.lists(st.integers(0, 1000), max_size=40), bins_max=st.integers(1, 12))
def test_bins_hold_every_unit_once_and_are_balanced(costs, bins_max):
    units = [unit(n, cost) for n, cost in enumerate(costs)]
    bins = pack(units, bins_max)

    assert sorted(u.run for b in bins for u in b.units) == sorted(u.run for u in units)
    assert len(bins) == min(bins_max, len(units))
    loads = [found.cost for found in bins]
    assert loads == sorted(loads, reverse=True)
    if costs:
        # Graham: whoever ends last began when all others were busy.
        share = sum(costs) / len(bins)
        assert max(loads) <= share + max(costs) * (1 - 1 / len(bins)) + 1e-9
    for found in bins:
        assert [u.cost for u in found.units] == sorted((u.cost for u in found.units), reverse=True)
    assert pack(list(reversed(units)), bins_max) == bins


def test_no_bins_is_a_mistake():
    with pytest.raises(ValueError, match="0 bins"):
        pack([unit(1, 1)], 0)


# --- budgets --------------------------------------------------------------------------------------


def test_cpu_is_limited_even_for_those_that_swallow_everything(monkeypatch):
    monkeypatch.setattr("harness.limits._GRACE_S", 0.05)
    begin = time.process_time()

    def swallow():
        with cpu_limit(0.05):
            while True:
                with contextlib.suppress(Exception):
                    sum(range(1000))

    with pytest.raises(SpentError):
        swallow()
    assert time.process_time() - begin < 5.0


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


def test_a_larger_budget_is_larger_in_everything():
    small = Budget()
    for name, value in msgspec.structs.asdict(small).items():
        assert getattr(small.larger(), name) > value


def test_a_marker_counts_only_what_never_ended(tmp_path):
    for _ in range(3):
        with Marker(tmp_path, "r", "stage"):
            pass
    assert not Marker(tmp_path, "r", "stage").spent
    for killed in (False, True):
        Marker(tmp_path, "r", "stage").__enter__()
        assert Marker(tmp_path, "r", "stage").spent == killed
    assert not Marker(tmp_path, "other", "stage").spent
    forget_markers(tmp_path, "r")
    assert not Marker(tmp_path, "r", "stage").spent


def test_a_pool_without_work_starts_nothing():
    from results.judging.units import Config

    assert list(PoolExecutor(2).run([], Config("", "", limit_memory=False))) == []


def test_a_worker_is_out_of_reach_of_ctrl_c_from_its_first_moment_on():
    from results.judging.units import Config

    worker = pool._Worker(Config("", "", limit_memory=False))
    try:
        assert os.getpgid(worker._process.pid) != os.getpgrp()
    finally:
        worker.end()
