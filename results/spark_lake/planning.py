"""What of a lake is not judged yet, as a DataFrame with a task for every run.

What is known falls out by an anti-join of what the runs want with the results that are there, at
the grain of runs: the ids of each stand in one cell, on both sides, which is a tenth of the rows
and no less exact. The rest, one narrow row a run, is cut into tasks of about equal cost in the
order of partitions and runs, in which their rows lie in the files; a run that costs more than that,
or that a budget cut short before, is a task of its own. Tasks are numbered by descending cost, so
that the longest start first. The driver sees a few numbers of all this, and a row a task.

Only these rows are ever moved between executors: no history is.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from results.lake.files import PARTITION
from results.stored import LIMITED

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FACTS", "Missing", "Share", "Todo", "Wish", "missing_of", "plan_tasks", "task_cost"]

FACTS: Final = ""
"""Stands for the facts of a run where else the name of a checker stands."""
TASKS_A_SLOT: Final = 12
"""Many more than slots: a lost task costs little, and progress shows early how long it takes."""
COST_MIN: Final = 8_000_000_000
"""Of a task: a smaller one costs more to start, and to commit, than it gains; where there is no
more than that for every slot, a quarter of it."""
COST_MAX: Final = 60_000_000_000
"""Of a task, unless a single run costs more."""
TASKS_MAX: Final = 100_000
NS_A_LINE: Final = 16_000
"""Of CPU, for each line and result: measured on runs of 1,500 operations and 13 checkers."""
AGAIN_FACTOR: Final = 4  # what a budget cut short once costs more


class Wish(NamedTuple):
    """One result that the runs of a kind want, at one level of budget.

    At a level above 1 it is wanted where that of the level below, `before`, is there and limited.
    """

    kind: str
    checker: str  # or FACTS
    level: int
    result_id: str
    before: str | None = None


class Share(NamedTuple):
    """What a task has of one partition: runs between two, their number and cost."""

    task: int
    partition: tuple[Any, ...]
    first_run: str
    last_run: str
    runs: int
    cost: int  # estimated CPU ns


class Missing(NamedTuple):
    """One result that a run misses."""

    level: int
    checker: str  # or FACTS
    result_id: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Todo:
    """What has to be done.

    `frame` has a row a run: task, target, label, day, run, batch, lines, cost, and `missing`,
    which `missing_of` reads.
    """

    frame: Any
    tasks: int
    shares: tuple[Share, ...]  # of the tasks, in their order
    runs: int
    results: int
    again: int  # of these results, those with a larger budget than before
    cost: int  # estimated CPU ns
    listed: int  # results that the lake has, wanted or not
    there: int  # of those that are wanted, by run and checker
    unsettled: int  # of those listed
    close: Callable[[], None]

    @property
    def is_again(self) -> bool:
        """Whether all of it is tried once more."""
        return self.again == self.results


def plan_tasks(
    spark: Any,
    runs: Any,
    known: Any,
    wishes: Sequence[Wish],
    *,
    slots: Callable[[], int],
    since: str = "",
) -> Todo:
    """Who does what is missing, where `slots()` tasks run at once; it is asked if there is work.

    `runs` has the columns target, label, day, run, batch, lines and kind; `known` is the table
    `runs` of a lake's results, of which unsettled ones from before `since` (a time; empty: none)
    do not count. The rows stay in executors' memory until they are closed.
    """
    mark = uuid.uuid4().hex[:8]
    views = {
        name: f"harness_{name}_{mark}" for name in ("runs", "known", "wishes", "missing", "tasks")
    }
    kept: list[Any] = []

    def close() -> None:
        for frame in kept:
            frame.unpersist()
        for name in views.values():
            spark.catalog.dropTempView(name)

    runs.createOrReplaceTempView(views["runs"])
    known.createOrReplaceTempView(views["known"])
    spark.createDataFrame(wishes_table(wishes)).createOrReplaceTempView(views["wishes"])
    counts = COUNTS.format(since=since or EVER)
    text = MISSING.format(limited=LIMITED, ns=NS_A_LINE, again=AGAIN_FACTOR, counts=counts, **views)
    frame = spark.sql(text)
    frame.createOrReplaceTempView(views["missing"])
    found = spark.sql(TOTALS.format(**views)).toArrow().to_pylist()[0]
    if not found["runs"]:
        return Todo(frame=frame, tasks=0, shares=(), close=close, **found)
    size = task_cost(found["cost"], slots())
    kept.append(spark.sql(TASKS.format(size=size, **views)).cache())
    kept[0].createOrReplaceTempView(views["tasks"])
    rows = spark.sql(SHARES.format(**views)).toArrow().to_pylist()
    shares = tuple(
        Share(row["task"], tuple(row[name] for name in PARTITION), row["first_run"],
              row["last_run"], row["runs"], row["cost"])
        for row in sorted(rows, key=lambda row: (row["task"], row["first_run"]))
    )  # fmt: skip
    tasks = shares[-1].task + 1
    return Todo(frame=kept[0], shares=shares, tasks=tasks, close=close, **found)


def task_cost(total: int, slots: int) -> int:
    """How much a task should cost, so that all slots get equally many."""
    waves = max(1, min(TASKS_A_SLOT, total // (slots * COST_MIN)))
    even = -(-total // (slots * waves))
    return max(COST_MIN // 4, 1, min(COST_MAX, even), -(-total // TASKS_MAX))


def wishes_table(wishes: Sequence[Wish]) -> pa.Table:
    import pyarrow as pa

    kinds = {"level": pa.int32()}
    return pa.table(
        {
            name: pa.array([getattr(wish, name) for wish in wishes], kinds.get(name, pa.string()))
            for name in Wish._fields
        }
    )


def missing_of(text: str) -> list[Missing]:
    """A cell of `missing`."""
    found = []
    for line in text.split("\n"):
        level, _, rest = line.partition(" ")
        checker, _, result_id = rest.rpartition(" ")
        found.append(Missing(int(level), checker, result_id))
    return found


EVER: Final = "1970-01-01"
COUNTS: Final = "x.marks = '' OR judged_at >= TIMESTAMP '{since}'"
MISSING: Final = """
WITH wanted AS (
    SELECT kind, COLLECT_LIST(STRUCT(level, checker, result_id, before)) AS wishes
    FROM {wishes}
    GROUP BY kind
),
known AS (
    SELECT run, run_batch,
           FLATTEN(COLLECT_LIST(FILTER(ARRAYS_ZIP(results, marks), x -> {counts}))) AS found
    FROM {known}
    GROUP BY run, run_batch
),
compared AS (
    SELECT r.target, r.label, r.day, r.run, r.batch, GREATEST(r.lines, 1) AS lines,
           FILTER(w.wishes, x ->
               NOT COALESCE(EXISTS(k.found, y -> y.results = x.result_id), FALSE)
               AND (x.before IS NULL OR COALESCE(
                   EXISTS(k.found, y -> y.results = x.before)
                   AND FORALL(k.found, y -> y.results <> x.before OR y.marks = '{limited}'),
                   FALSE))) AS missing,
           SIZE(ARRAY_DISTINCT(TRANSFORM(
               FILTER(w.wishes, x -> EXISTS(k.found, y -> y.results = x.result_id)),
               x -> x.checker))) AS there,
           SIZE(FILTER(k.found, y -> y.marks <> '')) AS unsettled
    FROM {runs} r
    JOIN wanted w ON w.kind = r.kind
    LEFT JOIN known k ON k.run = r.run AND k.run_batch = r.batch
),
counted AS (
    SELECT *, CAST(SIZE(missing) AS BIGINT) AS results,
           CAST(SIZE(FILTER(missing, x -> x.level > 1)) AS BIGINT) AS again
    FROM compared
)
SELECT target, label, day, run, batch, lines, results, again, there, unsettled,
       ARRAY_JOIN(ARRAY_SORT(TRANSFORM(
           missing,
           x -> CONCAT_WS(' ', STRING(x.level), x.checker, x.result_id))), '\n') AS missing,
       CASE WHEN results > 0 THEN lines * (1 + results + {again} * again) * {ns} ELSE 0 END AS cost
FROM counted
"""
TOTALS: Final = """
SELECT COUNT_IF(results > 0) AS runs,
       CAST(COALESCE(SUM(results), 0) AS BIGINT) AS results,
       CAST(COALESCE(SUM(again), 0) AS BIGINT) AS again,
       CAST(COALESCE(SUM(cost), 0) AS BIGINT) AS cost,
       CAST(COALESCE(SUM(GREATEST(there, 0)), 0) AS BIGINT) AS there,
       CAST(COALESCE(SUM(GREATEST(unsettled, 0)), 0) AS BIGINT) AS unsettled,
       CAST(COALESCE((SELECT SUM(SIZE(results)) FROM {known}), 0) AS BIGINT) AS listed
FROM {missing}
"""
TASKS: Final = """
WITH placed AS (
    SELECT *,
           CASE WHEN cost < {size} AND again = 0 THEN '' ELSE run END AS alone,
           SUM(CASE WHEN cost < {size} THEN cost ELSE 0 END) OVER (
               ORDER BY target, label, day, run ROWS UNBOUNDED PRECEDING
           ) DIV {size} AS slice
    FROM {missing}
    WHERE results > 0
),
numbered AS (
    SELECT slice, alone, ROW_NUMBER() OVER (ORDER BY SUM(cost) DESC, slice, alone) - 1 AS task
    FROM placed
    GROUP BY slice, alone
)
SELECT CAST(n.task AS INT) AS task, p.target, p.label, p.day, p.run, p.batch, p.lines, p.cost,
       p.missing
FROM placed p
JOIN numbered n ON n.slice = p.slice AND n.alone = p.alone
"""
SHARES: Final = """
SELECT task, target, label, day, MIN(run) AS first_run, MAX(run) AS last_run, COUNT(*) AS runs,
       SUM(cost) AS cost
FROM {tasks}
GROUP BY task, target, label, day
"""
