"""What is planned on the driver is what Spark plans, to the last task."""

import datetime as dt
import random

import msgspec
import pyarrow as pa
import pytest

from results.lake import SCHEMA_VERSION, schemas
from results.lake.files import MAIN
from results.lake.judged import result_schema
from results.lake.lake import Lake
from results.spark_lake import driver, planning, planning_here
from results.spark_lake.driver import SparkLake
from results.spark_lake.planning import COST_MIN, FACTS, Wish, plan_tasks, task_cost
from results.spark_lake.planning_here import KNOWN, kinds_of, narrow_here, plan_here
from results.stored import BROKEN, LIMITED
from tests.results.spark_lake.test_again import BUDGETS
from tests.spark_support import spark_test

pytestmark = [pytest.mark.lake, pytest.mark.xdist_group("spark")]

EARLY, LATE = (dt.datetime(2026, 1, day, tzinfo=dt.UTC) for day in (1, 3))
BETWEEN = "2026-01-02 00:00:00.000000"
KINDS = ("append []", 'ddl ["stats"]')


def wishes_of(kind):
    """Facts, and three checkers of two levels each."""
    found = [Wish(kind, FACTS, 1, "facts")]
    for name in ("crash", "stats", "members"):
        found += [Wish(kind, name, 1, f"{name}-1"), Wish(kind, name, 2, f"{name}-2", f"{name}-1")]
    return found


def drawn(rng):
    """Runs of two labels and days, some giants; and what is known of them, of others, twice."""
    runs, known = [], []
    for number in range(rng.choice((1, 7, 40))):
        run, batch = f"r{number:02}", rng.choice("ab")
        runs.append({
            "target": "kudu", "label": rng.choice((None, "next")),
            "day": dt.date(2026, 1, rng.choice((1, 2))), "run": run, "batch": batch,
            "lines": rng.choice((0, 10, 1_000, 50_000)), "kind": rng.choice(KINDS),
        })  # fmt: skip
        for _ in range(rng.choice((0, 0, 1, 2))):
            often = {1: 0.9, 2: 0.2}
            ids = [one.result_id for one in wishes_of("") if rng.random() < often[one.level]]
            known.append({
                "run": run, "run_batch": rng.choice((batch, batch, "c")),
                "judged_at": rng.choice((EARLY, LATE)), "results": [*ids, "of no use"],
                "marks": [rng.choice(("", "", LIMITED, BROKEN)) for _ in (*ids, "")],
            })  # fmt: skip
    types = {"day": pa.date32(), "lines": pa.int64()}
    layout = pa.schema([(name, types.get(name, pa.string())) for name in runs[0]])
    of_known = pa.schema([result_schema(MAIN).field(name) for name in KNOWN])
    return pa.Table.from_pylist(runs, layout), pa.Table.from_pylist(known, of_known)


def told(todo):
    """All that a plan says, whatever made it."""
    rows = todo.frame.toArrow().to_pylist() if todo.tasks else []
    others = {"frame", "close", "shares"}
    numbers = {name: value for name, value in vars(todo).items() if name not in others}
    return numbers, sorted(todo.shares, key=repr), sorted(rows, key=lambda row: row["run"])


@spark_test
@pytest.mark.parametrize("seed", range(4))
def test_both_plan_the_same(seed, monkeypatch):
    from results.spark import get_spark

    rng = random.Random(seed)
    spark = get_spark("local[2]")
    monkeypatch.setattr(planning, "COST_MIN", rng.choice((1, 500_000_000, COST_MIN)))
    runs, known = drawn(rng)
    wishes = [wish for kind in KINDS[: rng.choice((1, 2, 2))] for wish in wishes_of(kind)]
    asked = {"slots": lambda: 2, "since": rng.choice(("", BETWEEN))}
    frames = (spark.createDataFrame(runs), spark.createDataFrame(known))
    theirs = plan_tasks(spark, *frames, wishes, **asked)
    try:
        assert told(plan_here(spark, runs, known, wishes, **asked)) == told(theirs)
    finally:
        theirs.close()


@spark_test
def test_both_read_the_same_of_a_lake(lake, monkeypatch):
    """Also kinds and what is said of them; nobody judges here."""
    from results.spark import get_spark

    opened = Lake.open(str(lake), schemas=schemas(), version=SCHEMA_VERSION)
    spark, snapshot = get_spark("local[2]"), opened.snapshot()
    found = []
    for most in (planning_here.RUNS_MAX, 0):
        monkeypatch.setattr(planning_here, "RUNS_MAX", most)
        work = SparkLake(spark, opened, snapshot, budgets=BUDGETS)
        todo = work._plan(work._wishes)
        try:
            rows = work._runs.toArrow().to_pylist()
            problems = sorted(map(str, work.problems.kept)), work.problems.total
            found.append((sorted(rows, key=lambda row: row["run"]), problems, told(todo)))
            assert (work._here is None) == (most == 0)
        finally:
            todo.close()
            work.close()
    assert found[0] == found[1]
    assert found[0][0]
    kinds = spark.createDataFrame(narrow_here(snapshot))
    kinds.createOrReplaceTempView("kinds_of_test")
    asked = spark.sql(driver.KINDS.format(runs="kinds_of_test")).toArrow().to_pylist()
    assert kinds_of(narrow_here(snapshot)) == asked
    assert any(row["unfinished"] for row in asked)


@pytest.mark.parametrize(
    ("case", "others"),
    [
        ('{"checkers": ["a", "b"], "seed": 1}', '["a","b"]'),
        ('{"checkers":null}', "[]"),
        ("{}", "[]"),
        (None, "[]"),
        ("torn", "[]"),
    ],
)
def test_the_checkers_of_a_case_are_read_as_spark_reads_them(case, others):
    assert planning_here._others(case) == others
    assert msgspec.json.decode(others, type=list[str]) is not None


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
