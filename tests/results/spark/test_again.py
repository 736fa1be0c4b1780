"""Repeated work on Spark: larger budgets, `--again`, and lost jobs."""

import contextlib

import pytest

from harness.ops import History
from results.judging.budgets import Budget
from results.judging.pipeline import check
from results.judging.report_runs import ReportRuns
from results.lake.log.lake import Lake
from results.questions.engines import DuckEngine
from results.report.report import register
from results.spark import driver, range_answers, task_plan
from results.spark.driver import SparkLake
from tests.results.judging.stores import hopeless, numbered, put_run, register_ops
from tests.results.spark.test_report import results_in
from tests.support.run_folders import ingested
from tests.support.spark_session import spark_test

pytestmark = [pytest.mark.lake, pytest.mark.xdist_group("spark")]

SMALL = Budget(cpu_s=300.0, steps=20_000, configurations=1_000)
BUDGETS = (SMALL, SMALL.larger())
EASY = 3
WANTED = 5
"""The number of results of a register run: four checkers and its facts."""


@pytest.fixture
def uri(tmp_path):
    """Build a lake of three easy runs, and one run that exceeds any budget."""
    for n in range(EASY):
        put_run(tmp_path / "store", "n", f"r{n}", History(register_ops(n)), seed=n)
    put_run(tmp_path / "store", "n", "hard", numbered(hopeless(40)))
    return ingested(tmp_path / "store", tmp_path / "lake")


def opened(uri, **asked):
    from results.spark.session import get_spark

    lake = Lake.open(str(uri))
    return SparkLake(get_spark("local[2]"), lake, lake.snapshot(), budgets=BUDGETS, **asked)


def unsettled(work, checked):
    told, _ = work.ask(checked)
    return told.results_unsettled


def lacking(work):
    """Return (run, number of missing results, number of retried ones) for each run that lacks
    results.
    """
    told = work._tell(work._asking()._replace(settled=True))
    return [(one.run.partition("@")[0], one.results, one.again) for one in told.account.lacking]


@spark_test
def test_results_cut_short_by_a_budget_are_retried_once_and_with_again(uri):
    work = opened(uri)
    first = work.check()
    assert unsettled(work, first) == 1
    assert len(results_in(uri)) == (EASY + 1) * WANTED + 1  # one check has a result for each budget
    work = opened(uri)
    second = work.check()
    assert (second.results_new, second.units, unsettled(work, second)) == (0, 0, 1)
    work = opened(uri, again=True)
    assert lacking(work) == [("n/hard", 1, 0)]
    third = work.check()
    assert (third.results_new, unsettled(work, third)) == (1, 1)
    lake = Lake.open(str(uri))
    with contextlib.closing(ReportRuns(lake.snapshot(), budgets=BUDGETS)) as source:
        result = check(source, executor="inline")
        assert (result.results_new, result.results_unsettled) == (0, 1)
        with contextlib.closing(DuckEngine()) as engine:
            register(engine, result)
            rows = engine.sql("SELECT run, checker FROM verdicts").to_pylist()
        verdicts = {(row["run"], row["checker"]) for row in rows}
        assert len(rows) == len(verdicts) == (EASY + 1) * (WANTED - 1)


def have_tasks_of_one_run(monkeypatch):
    """Give each run, however cheap, a separate task, in this process and in workers."""

    def tell_whole(batches, *, asking):
        from results.spark import range_answers, task_plan

        before = task_plan.COST_MIN, task_plan.COST_MAX
        task_plan.COST_MIN, task_plan.COST_MAX = 4, 1
        try:
            parts = range_answers.tell_parts(batches, asking=asking)
            yield from range_answers.add_up(parts, asking=asking)
        finally:
            task_plan.COST_MIN, task_plan.COST_MAX = before

    monkeypatch.setattr(range_answers, "tell_whole", tell_whole)
    monkeypatch.setattr(task_plan, "COST_MIN", 4)
    monkeypatch.setattr(task_plan, "COST_MAX", 1)


def submissions(monkeypatch, submit=driver.SparkLake._submit):
    """Record the submitted tasks, as first run and number of runs."""
    seen = []

    def noting(self, todo, above, progress):
        seen.append([(task.between.first[0].partition("@")[0], task.runs) for task in todo.tasks])
        return submit(self, todo, above, progress)

    monkeypatch.setattr(driver.SparkLake, "_submit", noting)
    return seen


@spark_test
def test_giants_and_truncated_runs_get_separate_tasks(uri, monkeypatch):
    have_tasks_of_one_run(monkeypatch)
    submitted, told = submissions(monkeypatch), []
    monkeypatch.setattr("results.spark.job_progress.EVERY_S", 0.05)
    opened(uri).check(told.append)
    assert submitted[0][0] == ("n/hard", 1)
    assert sorted(submitted[0]) == [("n/hard", 1), *((f"n/r{n}", 1) for n in range(EASY))]
    assert submitted[1:] == [[("n/hard", 1)]]
    shown = [one.time_part for one in told if one.stage == "check"]
    assert shown == sorted(shown)
    assert all(0 <= one.cost_done <= one.cost for one in told)


@spark_test
def test_a_lost_job_is_resubmitted_without_appended_results(uri, monkeypatch):
    have_tasks_of_one_run(monkeypatch)
    submit = driver.SparkLake._submit

    def losing(self, todo, above, progress):
        if len(submitted) > 1:
            return submit(self, todo, above, progress)
        submit(self, todo._replace(tasks=todo.tasks[-1:]), above, progress)  # judges an easy run
        raise RuntimeError("the executors are gone")

    submitted = submissions(monkeypatch, losing)
    work = opened(uri)
    checked = work.check()
    assert not work.problems.total
    assert [len(tasks) for tasks in submitted] == [EASY + 1, EASY, 1]
    found = results_in(uri)
    assert len(found) == len(set(found)) == (EASY + 1) * WANTED + 1
    assert checked.results_new == (EASY + 1) * WANTED


@spark_test
def test_complete_results_are_not_resubmitted(tmp_path, monkeypatch):
    put_run(tmp_path / "store", "n", "r0", History(register_ops(0)))
    submitted = submissions(monkeypatch)
    assert opened(ingested(tmp_path / "store", tmp_path / "lake")).check().results_new == WANTED
    assert submitted == [[("n/r0", 1)]]


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
    from tests.results.lake.test_check_results import lose_rows

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
    with contextlib.closing(ReportRuns(lake.snapshot(), budgets=BUDGETS)) as source:
        local = check(source, executor="inline")
    assert told.runs_unjudged == local.runs_unjudged == 1
