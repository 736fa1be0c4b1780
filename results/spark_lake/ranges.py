"""Ranges of runs that are about as large, for tasks that each look at all tables of their runs.

A run's rows stand together in every table, in the order of keys: so a range of keys is read from
whichever files hold it, and nothing is moved. Where to cut is told by the logs and, of files that
are larger than a task should be, by the least key of each group of rows: nothing a run is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from results.lake.files import KEY
from results.lake.trouble import troubles

if TYPE_CHECKING:
    from results.lake.files import FileRef
    from results.lake.snapshot import Snapshot

__all__ = ["Range", "cut"]

Range = tuple[str, str | None]
"""The first run, and the one that it ends before; `None`: the last range."""
ROWS_MAX: Final = 16_000_000
"""Of the largest table, in a range: some fifty thousand runs."""
ROWS_MIN: Final = 1_000_000
"""With fewer rows a task more costs more than it gains."""


def cut(snapshot: Snapshot, *, slots: int) -> list[Range]:
    """Ranges for tasks, of which `slots` run at once, that have all runs between them.

    They are about as large in the one of the tables that has the most rows.
    """
    files = max(snapshot.tables.values(), key=_rows)
    rows = _rows(files)
    ranges = max(-(-rows // ROWS_MAX), min(slots, rows // ROWS_MIN), 1)
    if ranges == 1:
        return [("", None)]
    starts = sorted(start for file in files for start in _starts(snapshot, file, rows // ranges))
    found, size = [""], 0
    for first, count in starts:
        if size >= rows // ranges and first > found[-1]:
            found.append(first)
            size = 0
        size += count
    return list(zip(found, [*found[1:], None], strict=True))


def _rows(files: Sequence[FileRef]) -> int:
    return sum(file.rows for file in files)


def _starts(snapshot: Snapshot, file: FileRef, rows: int) -> Iterator[tuple[str, int]]:
    """Keys with the rows that begin there, of a file in pieces of at most about `rows`."""
    import pyarrow.parquet as pq

    if file.rows <= rows // 2:
        yield file.first_run, file.rows
        return
    path = f"{file.table}/{file.name}"
    with troubles(file.uri), snapshot.place.files.open_input_file(path) as source:
        footer = pq.ParquetFile(source).metadata
    column = next(i for i in range(footer.num_columns) if footer.schema.column(i).path == KEY)
    for number in range(footer.num_row_groups):
        group: Any = footer.row_group(number)
        known = group.column(column).statistics
        least = known.min if known is not None and known.has_min_max else file.first_run
        yield least, group.num_rows
