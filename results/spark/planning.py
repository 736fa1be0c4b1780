"""What of a lake is not judged yet, as a DataFrame with a task for every run.

What is known falls out where it is read: each task joins what a range of runs wants with the
results that are there (`results.judging.ledger`). The rest, one narrow row a run, comes together in
one task, which cuts it into tasks of about equal cost in the order of partitions and runs, in which
their rows lie in the files; a run that costs more than that, or that a budget cut short before, is
a task of its own. Tasks are numbered by descending cost, so that the longest start first. The
driver sees a few numbers of all this, and a row a task.

Only these rows are ever moved between executors: no history is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from results.lake.log.files import PARTITION
from results.questions.engines import DuckEngine
from results.spark.ranges import in_ranges, sources

if TYPE_CHECKING:
    import pyarrow as pa

    from results.spark.ranges import Asking

__all__ = ["FACTS", "Missing", "Share", "Todo", "missing_of", "plan_tasks", "task_cost"]

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
BATCH_ROWS: Final = 1 << 14


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

    `frame` has a row a run, the columns of `DDL`; `missing_of` reads `missing`. Its rows stay in
    executors' memory until it is closed.
    """

    frame: Any
    shares: tuple[Share, ...]  # of the tasks, in their order
    results: int
    again: int  # of these results, those with a larger budget than before

    @property
    def tasks(self) -> int:
        """How many there are."""
        return self.shares[-1].task + 1 if self.shares else 0

    @property
    def runs(self) -> int:
        """How many have something to do."""
        return sum(share.runs for share in self.shares)

    @property
    def cost(self) -> int:
        """Estimated, in CPU ns."""
        return sum(share.cost for share in self.shares)

    @property
    def is_again(self) -> bool:
        """Whether all of it is tried once more."""
        return self.again == self.results

    def close(self) -> None:
        """Let go of the rows."""
        self.frame.unpersist()


def plan_tasks(spark: Any, asking: Asking, *, slots: int, above: int = 0) -> Todo:
    """Who does what is missing over a level of budget, where `slots` tasks run at once."""
    frame, asking = in_ranges(spark, asking, slots=slots)
    rows = frame.mapInArrow(
        functools.partial(missing_in_parts, asking=asking, above=above), MISSING_DDL
    )
    if len(asking.ranges) > 1:
        rows = rows.repartition(1)
    placed = rows.mapInArrow(functools.partial(place, size_of=task_cost, slots=slots), DDL).cache()
    told = placed.mapInArrow(share_out, SHARES_DDL).toArrow().to_pylist()
    shares = tuple(
        Share(row["task"], tuple(row[name] for name in PARTITION), row["first_run"],
              row["last_run"], row["runs"], row["cost"])
        for row in told
    )  # fmt: skip
    return Todo(
        frame=placed,
        shares=shares,
        results=sum(row["results"] for row in told),
        again=sum(row["again"] for row in told),
    )


def task_cost(total: int, slots: int) -> int:
    """How much a task should cost, so that all slots get equally many."""
    waves = max(1, min(TASKS_A_SLOT, total // (slots * COST_MIN)))
    even = -(-total // (slots * waves))
    return max(COST_MIN // 4, 1, min(COST_MAX, even), -(-total // TASKS_MAX))


def missing_of(text: str) -> list[Missing]:
    """A cell of `missing`."""
    found = []
    for line in text.split("\n"):
        level, _, rest = line.partition(" ")
        checker, _, result_id = rest.rpartition(" ")
        found.append(Missing(int(level), checker, result_id))
    return found


# In executors ------------------------------------------------------------------------------------


def missing_in_parts(
    batches: Iterable[pa.RecordBatch], *, asking: Asking, above: int
) -> Iterator[pa.RecordBatch]:
    """A row a run of the ranges of a task that misses something."""
    for _, _, source in sources(batches, asking):
        rows = source.missing(above)
        with contextlib.closing(DuckEngine(threads=1)) as engine:
            engine.take("missing", rows)
            yield from _typed(engine.sql(COSTS), MISSING)


def place(
    batches: Iterable[pa.RecordBatch], *, size_of: Callable[[int, int], int], slots: int
) -> Iterator[pa.RecordBatch]:
    """The rows of all parts with their tasks, of about the size that costs and slots ask for."""
    with _engine(batches, MISSING) as engine:
        (total,) = engine.sql("SELECT CAST(sum(cost) AS BIGINT) AS cost FROM given")["cost"]
        if total.as_py():
            size = size_of(total.as_py(), slots)
            yield from _typed(engine.sql(TASKS.format(size=size)), {"task": "int32", **MISSING})


def share_out(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What each task has of each partition."""
    with _engine(batches, {"task": "int32", **MISSING}) as engine:
        yield from _typed(engine.sql(SHARES), SHARED)


@contextlib.contextmanager
def _engine(batches: Iterable[pa.RecordBatch], columns: dict[str, str]) -> Iterator[DuckEngine]:
    """DuckDB with the rows as its table `given`; what does not fit into memory goes to the disk."""
    import pyarrow as pa

    with (
        tempfile.TemporaryDirectory(prefix="harness-report-") as scratch,
        contextlib.closing(DuckEngine(Path(scratch), threads=1)) as engine,
    ):
        engine.take("batch", _schema(columns).empty_table())
        engine.run("CREATE TABLE given AS SELECT * FROM batch")
        for batch in batches:
            engine.take("batch", pa.Table.from_batches([batch]))
            engine.run("INSERT INTO given SELECT * FROM batch")
        yield engine


def _schema(columns: dict[str, str]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(name, getattr(pa, kind)()) for name, kind in columns.items()])


def _typed(rows: pa.Table, columns: dict[str, str]) -> Iterator[pa.RecordBatch]:
    yield from rows.cast(_schema(columns)).to_batches(BATCH_ROWS)


def _ddl(columns: dict[str, str]) -> str:
    """Columns as Spark names them."""
    kinds = {"string": "STRING", "int64": "BIGINT", "int32": "INT", "date32": "DATE"}
    return ", ".join(f"`{name}` {kinds[kind]}" for name, kind in columns.items())


PARTITIONED: Final = {"target": "string", "label": "string", "day": "date32"}
MISSING: Final = {
    **PARTITIONED,
    "run": "string",
    "batch": "string",
    "lines": "int64",
    "results": "int64",
    "again": "int64",
    "missing": "string",
    "cost": "int64",
}
SHARED: Final = {
    "task": "int32",
    **PARTITIONED,
    "first_run": "string",
    "last_run": "string",
    "runs": "int64",
    "cost": "int64",
    "results": "int64",
    "again": "int64",
}
MISSING_DDL: Final = _ddl(MISSING)
DDL: Final = _ddl({"task": "int32", **MISSING})
SHARES_DDL: Final = _ddl(SHARED)
COSTS: Final = f"""
SELECT *, lines * (1 + results + {AGAIN_FACTOR} * again) * {NS_A_LINE} AS cost FROM missing
"""  # noqa: S608
TASKS: Final = """
WITH placed AS (
    SELECT *,
           CASE WHEN cost < {size} AND again = 0 THEN '' ELSE run || missing END AS alone,
           sum(CASE WHEN cost < {size} THEN cost ELSE 0 END) OVER (
               ORDER BY target, label, day, run ROWS UNBOUNDED PRECEDING
           ) // {size} AS slice
    FROM given
),
numbered AS (
    SELECT slice, alone, row_number() OVER (ORDER BY sum(cost) DESC, slice, alone) - 1 AS task
    FROM placed
    GROUP BY slice, alone
)
SELECT n.task, p.* EXCLUDE (slice, alone)
FROM placed p
JOIN numbered n ON n.slice = p.slice AND n.alone = p.alone
ORDER BY n.task, p.target, p.label, p.day, p.run
"""
SHARES: Final = """
SELECT task, target, label, day, min(run) AS first_run, max(run) AS last_run,
       count(DISTINCT run) AS runs,
       sum(cost) AS cost, sum(results) AS results, sum(again) AS again
FROM given
GROUP BY task, target, label, day
ORDER BY task, first_run
"""
