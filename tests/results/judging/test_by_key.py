"""Every key of every bucket has a verdict, however buckets are cut into row groups and units."""

import pyarrow.parquet as pq
import pytest

from harness.store import keyed
from harness.store.keyed import bucket_paths
from results.judging import manifest
from results.judging.budgets import Budget
from results.judging.pipeline import check_store
from tests.results.judging.stores import keyed_history, numbered, put_run

KEYS = [f"k{n}" for n in range(25)]
STALE = ("k3", "k4", "k5", "k17", "k20")


def rows_of_keys(store, **options):
    checked = check_store(
        store, executor="inline", checkers=("linearizable-register",), facts=False, **options
    )
    assert checked.problems == ()
    return checked, pq.read_table(checked.tables["verdicts"][0]).to_pylist()


@pytest.mark.parametrize("native", ["1", "0"])
@pytest.mark.parametrize(("group", "large", "unit"), [(10**6, 10**6, 10**6), (60, 10**6, 100)])
@pytest.mark.parametrize("buckets", [1, 4])
def test_every_key_has_its_verdict(buckets, group, large, unit, native, tmp_path, monkeypatch):
    monkeypatch.setattr(keyed, "GROUP_ROWS", group)
    monkeypatch.setattr(keyed, "LARGE_KEY_ROWS", large)
    monkeypatch.setattr(manifest, "UNIT_ROWS", unit)
    monkeypatch.setenv("HARNESS_NATIVE", native)
    put_run(tmp_path, "n", "r", keyed_history(KEYS, stale=STALE), buckets=buckets)
    checked, rows = rows_of_keys(tmp_path)

    assert (checked.units > buckets) == (unit < 10**6)
    found = sorted((row["key"], row["verdict"], row["n_ops"]) for row in rows)
    assert found == sorted(
        (f'"{key}"', *(("invalid", 13) if key in STALE else ("valid", 12))) for key in KEYS
    )
    for row in rows:
        assert (row["counterexample"] is None) == (row["verdict"] == "valid")
        assert row["reason"]


@pytest.mark.parametrize("native", ["1", "0"])
def test_a_key_that_nobody_read_is_valid_beside_others(native, tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_NATIVE", native)  # without, every key is judged by itself
    history = keyed_history(["a", "b"])
    kept = (op for op in history if op.f != "read" or op.value[0] != "a")
    put_run(tmp_path, "n", "r", numbered(kept), buckets=1)
    _, rows = rows_of_keys(tmp_path)
    assert [(row["key"], row["verdict"]) for row in rows] == [('"a"', "valid"), ('"b"', "valid")]


def test_a_large_key_is_a_unit_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(keyed, "LARGE_KEY_ROWS", 60)
    monkeypatch.setattr(manifest, "UNIT_ROWS", 70)
    history = keyed_history(["a", "b"], giant="m", giant_ops=40)
    path = put_run(tmp_path, "n", "r", history, buckets=1)
    (bucket,) = bucket_paths(path / "history")
    file = pq.ParquetFile(bucket).metadata
    sizes = [file.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert sizes == [48, 82, 1]  # two keys, the large one, and what has no key
    steps = []
    budget = Budget(cpu_s=300.0, steps=20_000, configurations=1_000)
    rows_of_keys(tmp_path, progress=steps.append, second_pass=False, budget=budget)
    assert steps[0].units == 3


def test_a_mistake_over_columns_costs_time_only(tmp_path, monkeypatch):
    from checkers.linearizable import RegisterLinearizable

    def broken(*_):
        raise RuntimeError("no columns today")

    monkeypatch.setattr(RegisterLinearizable, "check_columns", broken)
    put_run(tmp_path, "n", "r", keyed_history(KEYS, stale=STALE), buckets=1)
    checked = check_store(tmp_path, executor="inline", facts=False)
    (problem,) = checked.problems
    assert "no columns today" in problem.text
    rows = pq.read_table(checked.tables["verdicts"][0]).to_pylist()
    verdicts = {row["key"]: row["verdict"] for row in rows if row["key"] is not None}
    assert verdicts == {f'"{key}"': "invalid" if key in STALE else "valid" for key in KEYS}
