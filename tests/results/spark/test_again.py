"""What is done more than once on Spark: larger budgets, `--again`, lost jobs; and giants alone."""

import contextlib
import dataclasses

import pytest

from harness.ops import History
from results.judging.budgets import Budget
from results.judging.lake_source import LakeSource
from results.judging.pipeline import check
from results.lake.log.lake import Lake
from results.spark import driver, planning
from results.spark.driver import SparkLake
from tests.results.judging.stores import hopeless, numbered, put_run, register_ops, rows_of
from tests.results.lake.test_check_results import lose_rows
from tests.results.spark.test_report import results_in
from tests.spark_support import spark_test

pytestmark = [pytest.mark.lake, pytest.mark.xdist_group("spark")]

SMALL = Budget(cpu_s=300.0, steps=20_000, configurations=1_000)
BUDGETS = (SMALL, SMALL.larger())
EASY = 3
WANTED = 5
"""Results of a run of registers: four checkers and its facts."""


@pytest.fixture
def uri(tmp_path):
    """A lake of three easy runs and one that no budget suffices for."""
    from results.lake.transfer.ingest_verb import main as ingest

    for n in range(EASY):
        put_run(tmp_path / "store", "n", f"r{n}", History(register_ops(n)), seed=n)
    put_run(tmp_path / "store", "n", "hard", numbered(hopeless(None, 40, process=0)))
    assert ingest([str(tmp_path / "store"), "--lake", str(tmp_path / "lake")]) == 0
    return tmp_path / "lake"


def opened(uri, **asked):
    from results.spark.session import get_spark

    lake = Lake.open(str(uri))
    return SparkLake(get_spark("local[2]"), lake, lake.snapshot(), budgets=BUDGETS, **asked)


def unsettled(work, checked):
    told, _ = work.ask(checked)
    return told.results_unsettled


def todo_of(work):
    """The next plan: what it says, and task and level of each run."""
    todo = work._plan()
    try:
        rows = todo.frame.toArrow().to_pylist() if todo.tasks else []
        return todo, {row["run"].partition("@")[0]: row for row in rows}
    finally:
        todo.close()


@spark_test
def test_what_a_budget_cut_short_is_tried_once_more_and_again_when_that_is_asked(uri):
    work = opened(uri)
    first = work.check()
    assert unsettled(work, first) == 1
    assert len(results_in(uri)) == (EASY + 1) * WANTED + 1  # one with both budgets
    work = opened(uri)
    second = work.check()
    assert (second.results_new, second.units, unsettled(work, second)) == (0, 0, 1)
    work = opened(uri, again=True)
    todo, rows = todo_of(work)
    assert (todo.runs, todo.results, set(rows)) == (1, 1, {"n/hard"})
    third = work.check()
    assert (third.results_new, unsettled(work, third)) == (1, 1)
    lake = Lake.open(str(uri))
    with contextlib.closing(LakeSource(lake.snapshot(), budgets=BUDGETS)) as source:
        found = check(source, executor="inline")
        assert (found.results_new, found.results_unsettled) == (0, 1)
        verdicts = rows_of(found)["verdicts"]
        assert len(verdicts) == len(set(verdicts)) == (EASY + 1) * (WANTED - 1)


@spark_test
def test_giants_and_what_was_cut_short_have_tasks_of_their_own(uri, monkeypatch):
    """The longest first, and every run in one task of the shares that are told."""
    monkeypatch.setattr(planning, "task_cost", lambda total, slots: total // 3)
    work = opened(uri)
    todo, rows = todo_of(work)
    alone = rows["n/hard"]
    assert alone["task"] == 0
    assert [row["run"] for row in rows.values() if row["task"] == 0] == [alone["run"]]
    assert len(rows) == todo.runs == sum(share.runs for share in todo.shares) == EASY + 1
    assert sum(share.cost for share in todo.shares) == todo.cost
    assert {share.task for share in todo.shares} == {*range(todo.tasks)}
    told = []
    monkeypatch.setattr("results.spark.job_progress.EVERY_S", 0.05)
    work.check(told.append)
    shown = [one.time_part for one in told if one.stage == "check"]
    assert shown == sorted(shown)
    assert all(0 <= one.cost_done <= one.cost for one in told)
    work = opened(uri)
    with monkeypatch.context() as patch:
        patch.setattr(work, "_since", "2999-01-01 00:00:00")  # all that is unsettled is too old
        todo, rows = todo_of(work)
        assert (set(rows), todo.tasks) == ({"n/hard"}, 1)


@spark_test
def test_a_job_that_is_lost_is_planned_again_from_what_its_tasks_appended(uri, monkeypatch):
    """The first submission judges one run and is lost; the second does the others alone."""
    monkeypatch.setattr(planning, "task_cost", lambda total, slots: 1)
    submit, submitted = driver.SparkLake._submit, []

    def losing(self, todo, progress):
        submitted.append((todo.runs, todo.is_again))
        if len(submitted) > 1:
            return submit(self, todo, progress)
        only = todo.frame.orderBy("run", ascending=False).limit(1)  # an easy one
        submit(self, dataclasses.replace(todo, frame=only), progress)
        raise RuntimeError("the executors are gone")

    monkeypatch.setattr(driver.SparkLake, "_submit", losing)
    work = opened(uri)
    checked = work.check()
    assert not work.problems.total
    assert submitted[:2] == [(EASY + 1, False), (EASY, False)]
    found = results_in(uri)
    assert len(found) == len(set(found)) == (EASY + 1) * WANTED + 1
    assert checked.results_new == (EASY + 1) * WANTED


@spark_test
def test_what_no_budget_cut_short_is_not_planned_again(tmp_path, monkeypatch):
    from results.lake.transfer.ingest_verb import main as ingest

    put_run(tmp_path / "store", "n", "r0", History(register_ops(0)))
    assert ingest([str(tmp_path / "store"), "--lake", str(tmp_path / "lake")]) == 0
    plan, planned = driver.SparkLake._plan, []

    def planning_told(self, above=0):
        planned.append(above)
        return plan(self, above)

    monkeypatch.setattr(driver.SparkLake, "_plan", planning_told)
    work = opened(tmp_path / "lake")
    assert work.check().results_new == WANTED
    assert planned == [0]


@spark_test
def test_a_job_that_is_lost_twice_without_a_result_ends_the_report(uri, monkeypatch):
    from harness.errors import InfrastructureError

    def lost(*_):
        raise RuntimeError("no executor")

    monkeypatch.setattr(driver.SparkLake, "_submit", lost)
    work = opened(uri)
    with pytest.raises(InfrastructureError, match="no executor"):
        work.check()


@spark_test
def test_a_report_stops_where_verdicts_lost_their_rows(uri):
    from harness.errors import InfrastructureError

    opened(uri).check()
    lose_rows(uri, "verdicts", lambda row: row["run"].startswith("n/r1@"))
    with pytest.raises(InfrastructureError, match="remove this folder"):
        opened(uri).check()


@spark_test
def test_a_run_that_came_to_no_result_is_counted(uri):
    import deltalake

    deltalake.DeltaTable(str(uri / "operations")).delete("run LIKE 'n/r0@%' AND process = 1")
    work = opened(uri)
    told, _ = work.ask(work.check())
    lake = Lake.open(str(uri))
    with contextlib.closing(LakeSource(lake.snapshot(), budgets=BUDGETS)) as source:
        local = check(source, executor="inline")
    assert told.runs_unjudged == local.runs_unjudged == 1
