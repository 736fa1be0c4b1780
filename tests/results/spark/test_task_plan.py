"""Runs that lack results are split into ranges, which are joined into tasks."""

import random
import shutil

import pytest

from results.judging import pending_results
from results.judging.result_lake import ResultLake
from results.spark import task_plan
from results.spark.ranges import sources
from results.spark.task_plan import COST_MIN, Between, Lacking, range_cost, task_cost, todo_of
from tests.results.spark.test_range_answers import asked, in_parts
from tests.results.spark.test_report import on_duckdb
from tests.support.repeated import for_each

pytestmark = pytest.mark.lake


def drawn(rng):
    costs = [rng.choice((5, 10, 1_000, 50_000)) for _ in range(rng.choice((1, 7, 40)))]
    return [
        Lacking(f"r{number // 2:02}", number % 2 - 1, 3, 9, rng.choice((0, 0, 0, 1)), cost)
        for number, cost in enumerate(costs)
    ]


@for_each("seed", range(30))
def test_tasks_have_all_ranges_once_and_are_no_larger_than_asked_for(seed, monkeypatch):
    rng = random.Random(seed)
    ranges, size = drawn(rng), rng.choice((1, 20, 2_000, 10**9))
    monkeypatch.setattr(task_plan, "task_cost", lambda total, slots: size)
    todo = todo_of(ranges, 2)

    assert [task.cost for task in todo.tasks] == sorted(
        (task.cost for task in todo.tasks), reverse=True
    )
    by_key = sorted(task.between for task in todo.tasks)
    assert by_key[0][0] == ranges[0].first
    assert [end for _, end in by_key] == [*(first for first, _ in by_key[1:]), None]
    for task in todo.tasks:
        first, end = task.between
        own = [one for one in ranges if first <= one.first and (end is None or one.first < end)]
        assert (task.runs, task.cost) == (sum(r.runs for r in own), sum(r.cost for r in own))
        assert len(own) == 1 or (task.cost <= size and not any(one.again for one in own))
    assert sum(task.cost for task in todo.tasks) == todo.cost
    assert todo.runs == sum(one.runs for one in ranges)
    assert todo.results == 9 * len(ranges)
    assert not todo.is_again


def lacking_in(what, size, *starts):
    """Return the missing results of each part, in ranges of this size."""
    rows, what = in_parts(what, *starts)
    return [
        Lacking(*row)
        for _, _, source in sources(rows, what)
        for row in source.ranges(what.above, lambda _: size)
    ]


@pytest.fixture
def new(lake, tmp_path):
    """Build an unjudged lake."""
    there = shutil.copytree(lake, tmp_path / "lake")
    ResultLake.beside(str(there), {}, create=True)
    return there


def test_ranges_name_missing_results_of_all_runs(new):
    what = asked(new)
    each = lacking_in(what, 1)
    runs = sorted(what.lake.snapshot({}).dataset("runs").to_table(["run"])["run"].to_pylist())
    assert [one.run for one in each] == runs
    assert all((one.keys, one.runs, one.again) == (-1, 1, 0) for one in each)
    (whole,) = lacking_in(what, 10**18)
    assert whole == Lacking(
        runs[0], -1, len(runs), sum(r.results for r in each), 0, sum(r.cost for r in each)
    )
    assert lacking_in(what, 1, runs[3], runs[5]) == each
    assert not lacking_in(what._replace(above=1), 1)

    on_duckdb(new)
    assert not lacking_in(asked(new), 1)
    newer = {
        kind: own._replace(
            checks=tuple(
                (name, tuple(f"new-{one}" for one in ids) if name == "stats" else ids)
                for name, ids in own.checks
            )
        )
        for kind, own in what.wants.items()
    }
    assert {one.results for one in lacking_in(asked(new, wants=newer), 1)} == {1}


def test_a_run_that_costs_more_is_a_range_between_the_others(new):
    what = asked(new)
    each = lacking_in(what, 1)
    giant = max(each, key=lambda one: one.cost)
    others = [one for one in each if one.cost < giant.cost]
    found = lacking_in(what, giant.cost)
    assert giant in found
    assert sum(one.runs for one in found) == len(each)
    assert sum(one.cost for one in found) == giant.cost + sum(one.cost for one in others)
    assert giant.cost == giant.cost // pending_results.NS_A_LINE * pending_results.NS_A_LINE


def test_a_task_that_begins_or_ends_within_a_run_has_that_run():
    assert Between(("a", -1), None).runs == ("a", None)
    assert Between(("a", 3), ("b", -1)).runs == ("a", "b")
    first, end = Between(("a", -1), ("b", 2)).runs
    assert (first, sorted(["b", end, "b0", "b-"])) == ("a", ["b", end, "b-", "b0"])


@pytest.mark.parametrize(
    ("total", "slots", "tasks"),
    [
        (COST_MIN // 8, 2, 1),  # too little work for two tasks
        (COST_MIN, 2, 2),
        (5 * COST_MIN, 2, 4),  # two tasks for each slot rather than five
        (100 * COST_MIN, 2, 24),
        (10_000 * COST_MIN, 2, 10_000 * COST_MIN // task_plan.COST_MAX + 1),
    ],
)
def test_slots_get_equally_many_tasks(total, slots, tasks):
    assert -(-total // task_cost(total, slots)) == tasks
    assert range_cost(total, slots) <= task_cost(total, slots)
