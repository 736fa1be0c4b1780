"""Ranges of runs, about equally large, for tasks that each read all tables of their runs.

A run's rows are adjacent in every table, in the order of keys: a task reads its range from the
files that hold it, and nothing is moved. The cuts come from the logs and, of files that are larger
than a task should be, from the least key of each group of rows: no row of a run is read.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from results.judging.budgets import Budget
from results.judging.report_runs import ReportRuns
from results.judging.required_results import Kind, Wants
from results.lake.log.files import KEY
from results.lake.log.location import Place
from results.lake.log.snapshot import Snapshot
from results.lake.log.storage_errors import troubles
from results.questions.engines import Extent

if TYPE_CHECKING:
    from results.lake.log.files import FileRef

Range = tuple[str, str | None]
"""The first run, and the first run of the next range; `None`: the last range."""
ROWS_MAX: Final = 16_000_000
"""Of the largest table, in a range: some fifty thousand runs."""
ROWS_MIN: Final = 1_000_000
"""With fewer rows, another task costs more than it gains."""
_GIVEN: Final = "HARNESS_GIVEN_"  # with a setting's name: set by a driver, which may replace it


class Files(NamedTuple):
    """A snapshot without the parts that only work in one process."""

    uri: str
    version: int
    tables: Mapping[str, Sequence[FileRef]]
    schemas: Mapping[str, pa.Schema]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Files:
        """The files of a snapshot."""
        return cls(snapshot.place.uri, snapshot.version, snapshot.tables, snapshot.schemas)

    def snapshot(self, options: Mapping[str, str]) -> Snapshot:
        """The same snapshot in this process; `options` adds to its own settings of the store."""
        tables = {name: tuple(files) for name, files in self.tables.items()}
        return Snapshot(self.version, tables, self.schemas, Place(self.uri, options))


class Asking(NamedTuple):
    """The parts of a question that all tasks share; each task gets a copy."""

    lake: Files
    results: Files
    options: Mapping[str, str]  # of the object store, where the executor has none of its own
    budgets: Sequence[Budget]
    wants: Mapping[Kind, Wants]
    label: str | None
    since: str  # unsettled results from before do not count; empty: all do
    extent: Extent
    settled: bool = False  # answers are wanted only if nothing is left to do
    above: int = 0  # the level of budget over which results are to be made
    slots: int = 1  # tasks that run at once
    ranges: Sequence[Range] = (("", None),)  # a task has the one of its number


def cut(snapshot: Snapshot, *, slots: int) -> list[Range]:
    """Cut all runs into ranges for tasks, of which `slots` run at once.

    Ranges are about equally large in the table that has the most rows.
    """
    files = max(snapshot.tables.values(), key=_rows)
    rows = _rows(files)
    ranges = max(-(-rows // ROWS_MAX), min(slots, rows // ROWS_MIN), 1)
    if ranges == 1:
        return [("", None)]
    starts = sorted(start for file in files for start in _starts(snapshot, file, rows // ranges))
    bounds, size = [""], 0
    for first, count in starts:
        if size >= rows // ranges and first > bounds[-1]:
            bounds.append(first)
            size = 0
        size += count
    return list(zip(bounds, [*bounds[1:], None], strict=True))


def _rows(files: Sequence[FileRef]) -> int:
    return sum(file.rows for file in files)


def _starts(snapshot: Snapshot, file: FileRef, rows: int) -> Iterator[tuple[str, int]]:
    """Keys with the rows that begin there, of a file in pieces of at most about `rows`."""
    if file.rows <= rows // 2:
        yield file.first_run, file.rows
        return
    path = f"{file.table}/{file.name}"
    with troubles(file.uri), snapshot.place.files.open_input_file(path) as source:
        footer = pq.ParquetFile(source).metadata
    column = next(i for i in range(footer.num_columns) if footer.schema.column(i).path == KEY)
    for number in range(footer.num_row_groups):
        group: Any = footer.row_group(number)
        stats = group.column(column).statistics
        least = stats.min if stats is not None and stats.has_min_max else file.first_run
        yield least, group.num_rows


def in_ranges(spark: Any, asking: Asking, *, slots: int) -> tuple[Any, Asking]:
    """The numbers of ranges with all runs, and what all tasks share from now on."""
    largest = asking.results if any(asking.results.tables.values()) else asking.lake
    ranges = tuple(cut(largest.snapshot(asking.options), slots=slots))
    return numbers(spark, ranges), asking._replace(ranges=ranges, slots=slots)


def numbers(spark: Any, ranges: Sequence[Range]) -> Any:
    """The number of each range, in a task of its own; tasks start in their order.

    Numbers that Spark counts itself cost the driver no table, and no shuffle.
    """
    return spark.range(0, len(ranges), 1, len(ranges))


# In executors ------------------------------------------------------------------------------------


def ranges_of(
    batches: Iterable[pa.RecordBatch], asking: Asking
) -> Iterator[tuple[int, Snapshot, Snapshot]]:
    """The number of each range, and the snapshots of it: of the lake, and of its results."""
    use(asking.options)
    lake, results = asking.lake.snapshot({}), asking.results.snapshot({})
    for batch in batches:
        for number in batch.column("id").to_pylist():
            between = asking.ranges[number]
            yield number, lake.cut(*between), results.cut(*between)


def sources(
    batches: Iterable[pa.RecordBatch], asking: Asking
) -> Iterator[tuple[int, Snapshot, ReportRuns]]:
    """The number of each range, the lake's snapshot of it, and its runs with their results."""
    for part, lake, results in ranges_of(batches, asking):
        source = ReportRuns(
            lake,
            budgets=asking.budgets,
            label=asking.label,
            wanted=lambda kind: asking.wants[kind],
            results=results,
        )
        with contextlib.closing(source):
            if asking.since:
                source.forget_unsettled(asking.since)
            source.read_known()
            yield part, lake, source


def given_options(place: Place) -> dict[str, str]:
    """Of a place, what an executor is given to reach its object store."""
    return {name: value for name, value in place.options.items() if name[:4] == "aws_"}


def use(options: Mapping[str, str]) -> None:
    """Have this process reach the object store: its own settings win over the driver's."""
    for name, value in options.items():
        key = name.upper()
        if key not in os.environ or os.environ.get(f"{_GIVEN}{key}") == os.environ[key]:
            os.environ[key] = os.environ[f"{_GIVEN}{key}"] = value
