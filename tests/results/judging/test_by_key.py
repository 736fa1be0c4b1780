"""Every key of every bucket has a verdict, however buckets are cut into row groups and units."""

import pytest

from harness.store import keyed
from tests.results.judging.stores import judge_store, keyed_history, numbered, put_run

KEYS = [f"k{n}" for n in range(25)]
STALE = ("k3", "k4", "k5", "k17", "k20")


def rows_of_keys(store, **options):
    found = judge_store(store, checkers=("linearizable-register",), facts=False, **options)
    assert found.checked.problems == ()
    return found.tables["verdicts"].to_pylist()


@pytest.mark.parametrize("native", ["1", "0"])
@pytest.mark.parametrize(("group", "large"), [(10**6, 10**6), (60, 10**6)])
@pytest.mark.parametrize("buckets", [1, 4])
def test_every_key_has_its_verdict(buckets, group, large, native, tmp_path, monkeypatch):
    monkeypatch.setattr(keyed, "GROUP_ROWS", group)
    monkeypatch.setattr(keyed, "LARGE_KEY_ROWS", large)
    monkeypatch.setenv("HARNESS_NATIVE", native)
    put_run(tmp_path, "n", "r", keyed_history(KEYS, stale=STALE), buckets=buckets)
    rows = rows_of_keys(tmp_path)

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
    rows = rows_of_keys(tmp_path)
    assert [(row["key"], row["verdict"]) for row in rows] == [('"a"', "valid"), ('"b"', "valid")]


def test_a_mistake_over_columns_costs_time_only(tmp_path, monkeypatch):
    from checkers.linearizable import RegisterLinearizable

    def broken(*_):
        raise RuntimeError("no columns today")

    monkeypatch.setattr(RegisterLinearizable, "check_columns", broken)
    put_run(tmp_path, "n", "r", keyed_history(KEYS, stale=STALE), buckets=1)
    found = judge_store(tmp_path, facts=False)
    (problem,) = found.checked.problems
    assert "no columns today" in problem.text
    rows = found.tables["verdicts"].to_pylist()
    verdicts = {row["key"]: row["verdict"] for row in rows if row["key"] is not None}
    assert verdicts == {f'"{key}"': "invalid" if key in STALE else "valid" for key in KEYS}
