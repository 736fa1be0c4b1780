"""Cuts the runs of a lake into ranges of about equal size, one for each task.

In every table, the rows of a run are adjacent, and runs are in the order of keys. So a task reads
its range in all tables directly from files. A range begins at the first key of a file or, in a file
that is too large for a task, of a row group. So no rows are read to choose the ranges.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from results.judging.budgets import Budget
from results.judging.report_runs import ReportRuns
from results.judging.required_results import Kind, Wants
from results.lake.log.files import KEY, FileRef
from results.lake.log.location import Place
from results.lake.log.snapshot import Snapshot
from results.lake.log.storage_errors import troubles
from results.questions.engines import Extent

Range = tuple[str, str | None]
"""A range of runs: its first run, and the first run of the next range (`None` for the last)."""
ROWS_MAX: Final = 16_000_000
"""The maximum number of rows of a range in the largest table, for about fifty thousand runs."""
ROWS_MIN: Final = 1_000_000
"""The minimum number of rows of a range. For fewer rows, a further task does not pay off."""
_GIVEN: Final = "HARNESS_GIVEN_"  # prefix of variables that mark settings from a driver


class Files(NamedTuple):
    """The picklable parts of a snapshot."""

    uri: str
    version: int
    tables: Mapping[str, Sequence[FileRef]]
    schemas: Mapping[str, pa.Schema]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Files:
        return cls(snapshot.place.uri, snapshot.version, snapshot.tables, snapshot.schemas)

    def snapshot(self, options: Mapping[str, str]) -> Snapshot:
        """Rebuild the snapshot. `options` supplement this process's settings of the store."""
        tables = {name: tuple(files) for name, files in self.tables.items()}
        return Snapshot(self.version, tables, self.schemas, Place(self.uri, options))


class Asking(NamedTuple):
    """A request to all tasks, each of which gets a copy."""

    lake: Files
    results: Files
    options: Mapping[str, str]  # of the object store, for executors without options of their own
    budgets: Sequence[Budget]
    wants: Mapping[Kind, Wants]
    label: str | None
    since: str  # ignore unsettled results from before this time; if empty, use all results
    extent: Extent
    settled: bool = False  # whether ranges with pending results list these instead of answering
    above: int = 0  # the budget level above which pending results are listed
    slots: int = 1  # number of concurrent tasks
    ranges: Sequence[Range] = (("", None),)


def cut(snapshot: Snapshot, *, slots: int) -> list[Range]:
    """Cut all runs into ranges, one per task. `slots` tasks run at once.

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
    """Yield keys at which a range may begin, each with the number of rows up to the next key."""
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
    """Cut runs into ranges; return a frame with a row per range, and the extended request."""
    largest = asking.results if any(asking.results.tables.values()) else asking.lake
    ranges = tuple(cut(largest.snapshot(asking.options), slots=slots))
    return numbers(spark, ranges), asking._replace(ranges=ranges, slots=slots)


def numbers(spark: Any, ranges: Sequence[Range]) -> Any:
    """Return a frame with the number of each range, one per task. Tasks start in order of numbers.

    Spark generates these numbers itself, without a table from the driver and without a shuffle.
    """
    return spark.range(0, len(ranges), 1, len(ranges))


# In executors ------------------------------------------------------------------------------------


def ranges_of(
    batches: Iterable[pa.RecordBatch], asking: Asking
) -> Iterator[tuple[int, Snapshot, Snapshot]]:
    """Yield, for each range of a task, its number, and its snapshots of lake and results."""
    use(asking.options)
    lake, results = asking.lake.snapshot({}), asking.results.snapshot({})
    for batch in batches:
        for number in batch.column("id").to_pylist():
            between = asking.ranges[number]
            yield number, lake.cut(*between), results.cut(*between)


def sources(
    batches: Iterable[pa.RecordBatch], asking: Asking
) -> Iterator[tuple[int, Snapshot, ReportRuns]]:
    """Yield, for each range of a task, its number, its lake snapshot, and its `ReportRuns`."""
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
    """Return the settings of the object store that the driver passes to executors."""
    return {name: value for name, value in place.options.items() if name[:4] == "aws_"}


def use(options: Mapping[str, str]) -> None:
    """Apply the driver's settings of the object store, unless this process has its own."""
    for name, value in options.items():
        key = name.upper()
        if key not in os.environ or os.environ.get(f"{_GIVEN}{key}") == os.environ[key]:
            os.environ[key] = os.environ[f"{_GIVEN}{key}"] = value
