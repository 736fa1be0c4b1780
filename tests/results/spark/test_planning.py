"""Runs that miss something are cut into tasks as brute force cuts them; no Spark is asked here."""

import datetime as dt
import random
import shutil

import pyarrow as pa
import pytest

from results.spark import planning
from results.spark.planning import COST_MIN, MISSING, Missing, missing_of, task_cost
from tests.repeated import for_each
from tests.results.spark.test_asking import asked, in_parts
from tests.results.spark.test_report import on_duckdb

pytestmark = pytest.mark.lake


def drawn(rng):
    """Rows of runs of two labels and days, some giants, some that were cut short."""
    return [
        {
            "target": "kudu", "label": rng.choice(("", "next")),
            "day": dt.date(2026, 1, rng.choice((1, 2))), "run": f"r{number:02}", "batch": "a",
            "lines": 1, "results": rng.randint(1, 3), "again": rng.choice((0, 0, 0, 1)),
            "missing": "1 stats x", "cost": rng.choice((5, 10, 1_000, 50_000)),
        }
        for number in range(rng.choice((1, 7, 40)))
    ]  # fmt: skip


def by_brute_force(rows, size):
    """The task of each run: slices of running costs; giants, and what was cut short, alone."""
    groups, total = {}, 0
    for row in sorted(rows, key=lambda row: (row["target"], row["label"], row["day"], row["run"])):
        small = row["cost"] < size
        total += row["cost"] if small else 0
        alone = "" if small and not row["again"] else row["run"]
        groups.setdefault((total // size, alone), []).append(row)
    costs = {key: sum(row["cost"] for row in own) for key, own in groups.items()}
    ordered = sorted(groups, key=lambda key: (-costs[key], key))
    return {row["run"]: task for task, key in enumerate(ordered) for row in groups[key]}


def batches_of(rows):
    schema = planning._schema(MISSING)
    return pa.Table.from_pylist(rows, schema).to_batches(7)


@for_each("seed", range(30))
def test_tasks_are_those_of_brute_force(seed):
    rng = random.Random(seed)
    rows, size = drawn(rng), rng.choice((1, 20, 2_000, 10**9))
    rng.shuffle(rows)
    placed = [*planning.place(batches_of(rows), size_of=lambda total, slots: size, slots=2)]
    found = [row for batch in placed for row in batch.to_pylist()]
    assert {row["run"]: row["task"] for row in found} == by_brute_force(rows, size)
    assert sorted(({**row, "task": 0} for row in found), key=lambda row: row["run"]) == sorted(
        ({"task": 0, **row} for row in rows), key=lambda row: row["run"]
    )
    shares = [row for batch in planning.share_out(placed) for row in batch.to_pylist()]
    assert [row["task"] for row in shares] == sorted(row["task"] for row in shares)
    for share in shares:
        own = [
            row
            for row in found
            if all(row[name] == share[name] for name in ("task", "target", "label", "day"))
        ]
        assert (share["first_run"], share["last_run"]) == (
            min(row["run"] for row in own),
            max(row["run"] for row in own),
        )
        assert share["runs"] == len(own)
        for name in ("cost", "results", "again"):
            assert share[name] == sum(row[name] for row in own)
    assert sum(share["runs"] for share in shares) == len(rows)


def test_where_nothing_is_missing_there_is_no_task():
    assert not [*planning.place([], size_of=task_cost, slots=2)]
    assert not sum(batch.num_rows for batch in planning.share_out([]))


def missing_in(what, *starts, above=0):
    rows, what = in_parts(what, *starts)
    batches = planning.missing_in_parts(rows, asking=what, above=above)
    return {row["run"]: row for batch in batches for row in batch.to_pylist()}


def test_each_run_names_what_it_misses(lake, tmp_path):
    """All at first; of a checker that has a new version that alone, and nothing otherwise."""
    there = shutil.copytree(lake, tmp_path / "lake")
    from results.judging.result_lake import ResultLake

    ResultLake.beside(str(there), {}, create=True)
    what = asked(there)
    rows = missing_in(what)
    wants = {run: what.wants[kind] for run, kind in kinds(there).items()}
    assert rows.keys() == wants.keys()
    for run, row in rows.items():
        own = {Missing(1, name, ids[0]) for name, ids in wants[run].checks}
        assert {*missing_of(row["missing"])} == {*own, Missing(1, "", wants[run].facts)}
        assert (row["results"], row["again"]) == (len(own) + 1, 0)
        assert row["cost"] == row["lines"] * (2 + len(own)) * planning.NS_A_LINE
        assert missing_of(row["missing"]) == sorted(missing_of(row["missing"]))
    assert missing_in(what, sorted(rows)[len(rows) // 2]) == rows
    assert not missing_in(what, above=1)

    on_duckdb(there)
    assert not missing_in(asked(there))
    newer = {
        kind: own._replace(
            checks=tuple(
                (name, tuple(f"new-{one}" for one in ids) if name == "stats" else ids)
                for name, ids in own.checks
            )
        )
        for kind, own in what.wants.items()
    }
    for row in missing_in(asked(there, wants=newer)).values():
        (only,) = missing_of(row["missing"])
        assert (only.level, only.checker, only.result_id[:4]) == (1, "stats", "new-")


def kinds(uri):
    """The kind of each run."""
    import msgspec

    from results.judging.required_results import Kind
    from tests.results.spark.test_report import opened

    rows = opened(uri).snapshot().dataset("runs").to_table(["run", "workload", "case"]).to_pylist()
    others = [msgspec.json.decode(row["case"]).get("checkers") or [] for row in rows]
    texts = [msgspec.json.encode(names).decode() for names in others]
    return {row["run"]: Kind(row["workload"], text) for row, text in zip(rows, texts, strict=True)}


@pytest.mark.parametrize(
    ("total", "slots", "tasks"),
    [
        (COST_MIN // 8, 2, 1),  # not worth two
        (COST_MIN, 2, 2),
        (5 * COST_MIN, 2, 4),  # two for each slot, not five
        (100 * COST_MIN, 2, 24),
        (10_000 * COST_MIN, 2, 10_000 * COST_MIN // planning.COST_MAX + 1),
    ],
)
def test_slots_get_equally_many_tasks(total, slots, tasks):
    assert -(-total // task_cost(total, slots)) == tasks
