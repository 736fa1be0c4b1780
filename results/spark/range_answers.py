"""Answers a report's questions on Spark: each task answers for some runs, and one adds up.

For its range, a task does the same as a report without Spark does for all runs. One task then adds
up the partial answers (`results.questions.partial_answers`). So the driver gets no rows of runs,
except the first few in answers that list runs. Spark transports the partial answers as Arrow
batches in binary cells, which works on `local[N]`, a cluster and Connect.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from results.facts.problems import PROBLEMS_MAX, Problem
from results.judging.report_runs import Gathered, ReportRuns
from results.judging.required_results import Kind
from results.lake.log.duckdb_views import readable, source_of
from results.lake.log.files import MAIN
from results.lake.log.snapshot import Snapshot
from results.questions.engines import DuckEngine, Extent, quoted
from results.questions.partial_answers import Whole, part_of
from results.spark.ranges import Asking, in_ranges, ranges_of, sources
from results.spark.task_plan import Lacking, range_cost

DDL: Final = "`part` INT, `name` STRING, `rows` BINARY"
ACCOUNT: Final = "account"
KINDS: Final = f"""
    SELECT workload, COALESCE(CAST("case"->'$.checkers' AS VARCHAR), '[]') AS others,
           len(key_ranges) AS key_ranges,
           count(*) AS runs, count(*) FILTER (NOT finished) AS unfinished,
           min(run, {PROBLEMS_MAX}) AS first,
           min(run, {PROBLEMS_MAX}) FILTER (NOT finished) AS first_unfinished
    FROM {{source}} WHERE {{where}} GROUP BY ALL
"""  # noqa: S608
CELL_BYTES: Final = 1 << 20
"""Approximate size of the rows of a partial answer that share one binary cell."""
CELLS_A_BATCH: Final = 16
_CELLS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"


class Account(msgspec.Struct, frozen=True):
    """The numbers of pending and of unavailable results of some runs.

    `lost` has only the first few runs with lost results. `lost_total` counts all of them.
    """

    left: int
    lacking: tuple[Lacking, ...]  # runs with pending results, if the request asks for them
    lost: tuple[Problem, ...]
    lost_total: int
    unsettled: int
    unjudged: int


class RunsOfKind(msgspec.Struct, frozen=True):
    """The number of runs that require the same results, and the first few of these runs."""

    kind: Kind
    runs: int
    unfinished: int
    first: tuple[str, ...]
    first_unfinished: tuple[str, ...]


class Told(NamedTuple):
    """The combined answers of all tasks, and their combined account."""

    engine: ToldEngine
    account: Account


class ToldEngine:
    """An engine with the answers that tasks have already computed."""

    def __init__(self, answers: Mapping[str, pa.Table]) -> None:
        self._answers = answers

    def answer(self, name: str, extent: Extent) -> pa.Table | None:
        """Return a stored answer. The tasks have already limited it to the report's extent."""
        del extent
        return self._answers.get(name)


def kinds(spark: Any, asking: Asking, *, slots: int) -> list[RunsOfKind]:
    """Count the runs of each kind (workload, checkers, ranges of keys), in one job."""
    frame, asking = in_ranges(spark, asking, slots=slots)
    work = functools.partial(kinds_of_parts, asking=asking)
    return kinds_in(frame.mapInArrow(work, "`kinds` STRING").toArrow()["kinds"].to_pylist())


def kinds_in(texts: Iterable[str]) -> list[RunsOfKind]:
    """Add up the runs of each kind over all `parts` (JSON), and sort the kinds."""
    kinds: dict[Kind, RunsOfKind] = {}
    for text in texts:
        for part in msgspec.json.decode(text, type=list[RunsOfKind]):
            before = kinds.get(part.kind, RunsOfKind(part.kind, 0, 0, (), ()))
            kinds[part.kind] = RunsOfKind(
                part.kind,
                before.runs + part.runs,
                before.unfinished + part.unfinished,
                _first(before.first, part.first),
                _first(before.first_unfinished, part.first_unfinished),
            )
    return [kinds[kind] for kind in sorted(kinds)]


def _first(some: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted((*some, *more))[:PROBLEMS_MAX])


def tell(spark: Any, asking: Asking, *, slots: int) -> Told:
    """Let tasks answer all questions of a report, in one job."""
    frame, asking = in_ranges(spark, asking, slots=slots)
    before = spark.conf.get(_CELLS)
    spark.conf.set(_CELLS, str(CELLS_A_BATCH))
    try:
        if len(asking.ranges) == 1:
            table = frame.mapInArrow(functools.partial(tell_whole, asking=asking), DDL).toArrow()
        else:
            parts = frame.mapInArrow(functools.partial(tell_parts, asking=asking), DDL)
            whole = functools.partial(add_up, asking=asking)
            table = parts.repartition(1).mapInArrow(whole, DDL).toArrow()
    finally:
        spark.conf.set(_CELLS, before)
    return told_in(table)


def told_in(told: pa.Table) -> Told:
    """Decode answers and account from the rows of the task that added up all parts."""
    answers: dict[str, list[pa.Table]] = {}
    accounts = []
    for name, rows in zip(told["name"], told["rows"], strict=True):
        if name.as_py() == ACCOUNT:
            accounts.append(msgspec.json.decode(rows.as_py(), type=Account))
        else:
            answers.setdefault(name.as_py(), []).append(_table(rows.as_buffer()))
    whole = {name: pa.concat_tables(tables) for name, tables in answers.items()}
    return Told(ToldEngine(whole), _sum(accounts))


# In executors ------------------------------------------------------------------------------------


def tell_whole(batches: Iterable[pa.RecordBatch], *, asking: Asking) -> Iterator[pa.RecordBatch]:
    """In a single task, answer all questions for each range of runs, and add up the answers."""
    yield from add_up(tell_parts(batches, asking=asking), asking=asking)


def tell_parts(batches: Iterable[pa.RecordBatch], *, asking: Asking) -> Iterator[pa.RecordBatch]:
    """Yield, as cells, an account for each range of a task, and the range's answers if wanted."""
    with readable(asking.lake.uri):
        yield from _told(batches, asking)


def _told(batches: Iterable[pa.RecordBatch], asking: Asking) -> Iterator[pa.RecordBatch]:
    for part, lake, source in sources(batches, asking):
        left = source.left()
        account = Account(left, _lacking(source, asking), (), 0, 0, 0)
        if not (asking.settled and left):
            with _gathered(lake, source) as (engine, gathered):
                account = msgspec.structs.replace(
                    account, lost=source.lacking[0], lost_total=source.lacking[1],
                    unsettled=gathered.unsettled, unjudged=gathered.unjudged,
                )  # fmt: skip
                for name, rows in part_of(engine, asking.extent):
                    yield from _cells(part, name, rows)
        yield _batch(part, ACCOUNT, msgspec.json.encode(account))


def _lacking(source: ReportRuns, asking: Asking) -> tuple[Lacking, ...]:
    """Return ranges of runs that lack results above the requested budget level."""
    if not asking.settled:
        return ()
    size_of = functools.partial(range_cost, slots=asking.slots)
    return tuple(Lacking(*row) for row in source.ranges(asking.above, size_of))


def kinds_of_parts(
    batches: Iterable[pa.RecordBatch], *, asking: Asking
) -> Iterator[pa.RecordBatch]:
    """Yield the kinds of runs in each range of a task, as JSON."""
    for _, lake, _ in ranges_of(batches, asking):
        with contextlib.closing(DuckEngine()) as engine, readable(lake.place.uri):
            columns = ("run", "label", "workload", "finished", "case", "key_ranges")
            source = source_of(engine.connection, lake, MAIN, columns)
            where = lake.within("run")
            if asking.label is not None:
                where += f" AND label = {quoted(asking.label)}"
            rows = engine.sql(KINDS.format(source=source, where=where)).to_pylist()
        kinds = [
            RunsOfKind(
                Kind(row["workload"], row["others"], row["key_ranges"]),
                row["runs"], row["unfinished"],
                tuple(row["first"]), tuple(row["first_unfinished"] or ()),
            )
            for row in rows
        ]  # fmt: skip
        yield pa.RecordBatch.from_pydict({"kinds": [msgspec.json.encode(kinds).decode()]})


@contextlib.contextmanager
def _gathered(lake: Snapshot, source: ReportRuns) -> Iterator[tuple[DuckEngine, Gathered]]:
    gathered = source.gather()
    with contextlib.closing(DuckEngine(source.spill(), threads=1)) as engine:
        for name, paths in gathered.tables.items():
            where = f"{lake.within('here.run')} AND {gathered.counting.get(name, 'true')}"
            engine.register(name, paths, where)
        yield engine, gathered


def add_up(batches: Iterable[pa.RecordBatch], *, asking: Asking) -> Iterator[pa.RecordBatch]:
    """Add up the answers and the accounts of all parts."""
    accounts = []
    with (
        tempfile.TemporaryDirectory(prefix="harness-report-") as scratch,
        contextlib.closing(Whole(Path(scratch))) as whole,
    ):
        for batch in batches:
            for part, name, rows in zip(*batch.columns, strict=True):
                if name.as_py() == ACCOUNT:
                    accounts.append(msgspec.json.decode(rows.as_py(), type=Account))
                else:
                    whole.add(part.as_py(), name.as_py(), _table(rows.as_buffer()))
        account = _sum(accounts)
        if not (asking.settled and account.left):
            for name, rows in whole.answers(asking.extent):
                yield from _cells(0, name, rows)
    yield _batch(0, ACCOUNT, msgspec.json.encode(account))


def _sum(accounts: Sequence[Account]) -> Account:
    lost = sorted((entry for each in accounts for entry in each.lost), key=lambda entry: entry.run)
    lacking = sorted(
        (entry for each in accounts for entry in each.lacking), key=lambda entry: entry.first
    )
    return Account(
        left=sum(each.left for each in accounts),
        lacking=tuple(lacking),
        lost=tuple(lost[:PROBLEMS_MAX]),
        lost_total=sum(each.lost_total for each in accounts),
        unsettled=sum(each.unsettled for each in accounts),
        unjudged=sum(each.unjudged for each in accounts),
    )


# Rows as cells -----------------------------------------------------------------------------------


def _cells(part: int, name: str, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield a table as cells of bounded size. An empty table has one cell, for its columns."""
    size = max(1, rows.num_rows * CELL_BYTES // max(rows.nbytes, 1))
    for begin in range(0, max(rows.num_rows, 1), size):
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(sink, rows.schema, options=options) as out:
            out.write_table(rows.slice(begin, size))
        yield _batch(part, name, sink.getvalue().to_pybytes())


def _batch(part: int, name: str, rows: Any) -> pa.RecordBatch:
    columns = [pa.array([part], pa.int32()), pa.array([name]), pa.array([rows], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, ["part", "name", "rows"])


def _table(rows: Any) -> pa.Table:
    return pa.ipc.open_stream(rows).read_all()
