"""What a task makes of the rows that it is given, without Spark."""

import datetime as dt

import msgspec
import pyarrow as pa
import pytest

from results.judging.budgets import Budget
from results.judging.manifest import Check
from results.judging.problems import Problem
from results.judging.units import Done
from results.judging.work import LakeConfig
from results.lake.log.files import FileRef, batch_name, merged_name
from results.spark import ranges
from results.spark import tasks as judging
from results.spark.planning import Missing, missing_of
from results.spark.tasks import Job, TaskDone, judge_rows, units_of

pytestmark = pytest.mark.lake

DAY = dt.date(2026, 1, 1)
BUDGETS = (Budget(), Budget().larger())
CONFIG = LakeConfig(uri="/l", scratch="", round="r0", since_s=0.0, limit_memory=False)
ONE, TWO = "1" * 32, "2" * 32


def file_of(name, first, last, *, day=DAY):
    return FileRef(
        table="events", name=name, uri=name, size_bytes=1, rows=1, partition=("kudu", None, day),
        first_run=first, last_run=last, modified_ms=0,
    )  # fmt: skip


def row(run, *, task=0, batch=ONE, missing="1 crash c1", day=DAY, lines=10):
    return {
        "task": task, "target": "kudu", "label": None, "day": day, "run": run, "batch": batch,
        "lines": lines, "missing": missing,
    }  # fmt: skip


def job(*files):
    return Job(config=CONFIG, files={"events": files}, budgets=BUDGETS, options={})


def test_a_cell_names_level_checker_and_id():
    assert missing_of("1  f0\n1 crash c1\n2 stats s2") == [
        Missing(1, "", "f0"),
        Missing(1, "crash", "c1"),
        Missing(2, "stats", "s2"),
    ]


def test_runs_that_miss_the_same_are_one_unit_in_the_order_of_their_keys():
    both = "1  f0\n1 crash c1"
    first, second = units_of([row("b", missing=both), row("c"), row("a", missing=both)], job())
    assert (first.runs, first.facts_id) == (("a", "b"), "f0")
    assert (second.runs, second.facts_id) == (("c",), None)
    assert first.checks == second.checks == (Check("crash", "c1"),)
    assert (first.budget, first.n_ops) == (BUDGETS[0], 20)


def test_what_was_limited_has_the_larger_budget_in_a_unit_of_its_own():
    first, second = units_of([row("a", missing="1 crash c1\n2 stats s2")], job())
    assert (first.checks, first.budget) == ((Check("crash", "c1"),), BUDGETS[0])
    assert (second.checks, second.budget) == ((Check("stats", "s2"),), BUDGETS[1])


@pytest.mark.parametrize(
    ("file", "taken"),
    [
        (file_of(batch_name(ONE, 0), "a", "z"), True),
        (file_of(merged_name(3, TWO), "a", "z"), True),
        (file_of(batch_name(TWO, 0), "a", "z"), False),
        (file_of(merged_name(3, TWO), "n", "z"), False),
        (file_of(merged_name(3, TWO), "a", "l"), False),
        (file_of(batch_name(ONE, 1), "a", "z", day=None), False),
    ],
    ids=["its append", "merged", "another append", "behind", "before", "another day"],
)
def test_the_files_of_a_unit_are_those_that_may_hold_its_runs(file, taken):
    (unit,) = units_of([row("m")], job(file))
    assert unit.files == {"events": (file.name,) if taken else ()}


def test_a_task_says_one_row_however_many_units_and_batches(monkeypatch, tmp_path):
    monkeypatch.setattr(judging.tempfile, "gettempdir", lambda: str(tmp_path))
    seen = []

    def do_units(units, *, config):
        seen.append(config.scratch)
        for unit in units:
            yield Done(unit.unit_id, 0, (), part=0.5)
            torn = Problem(unit.key, "history", "torn")
            yield Done(unit.unit_id, 7, (torn,), limited=unit.key == "a")

    monkeypatch.setattr(judging, "do_units", do_units)
    rows = [row("a"), row("b", missing="1 stats s1"), row("c", task=1)]
    batches = [pa.RecordBatch.from_pylist([one]) for one in rows]
    found = [
        msgspec.json.decode(text, type=TaskDone)
        for batch in judge_rows(batches, job=job())
        for text in batch.column("done").to_pylist()
    ]
    torn = [Problem(run, "history", "torn") for run in "abc"]
    assert found == [
        TaskDone(0, 2, 14, (torn[0], torn[1]), limited=True),
        TaskDone(1, 1, 7, (torn[2],)),
    ]
    assert set(seen) == {str(tmp_path / "harness-r0")}
    assert list(tmp_path.iterdir()) == []


def test_an_executor_takes_the_drivers_settings_where_it_has_none(monkeypatch):
    monkeypatch.setattr(ranges.os, "environ", {"AWS_REGION": "here"})
    ranges.use({"aws_region": "there", "aws_access_key_id": "old"})
    ranges.use({"aws_region": "there", "aws_access_key_id": "new"})
    assert ranges.os.environ["AWS_REGION"] == "here"
    assert ranges.os.environ["AWS_ACCESS_KEY_ID"] == "new"
