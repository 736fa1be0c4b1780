"""Merges small files of a lake into large files, without changing any row.

A merge takes whole files of one partition whose runs are neighbours, so each run is still in a
single file. Rows pass through memory in parts of bounded size, in the order of their runs. A merge
commits only if all its inputs are still in the table (see `results.lake.log.lake`), so concurrent
writers and readers are harmless. If two compactions merge the same files, one of them is abandoned,
and `vacuum` removes its output.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import InternalError
from results.lake.log.files import BATCH, KEY, FileRef, Partition, merged_name
from results.lake.log.lake import Lake
from results.lake.log.row_files import new_id, write_parts
from results.lake.log.run_streams import batches_of

MIB: Final = 1024 * 1024
SMALL_BYTES: Final = 32 * MIB
"""Files below this size are merged."""
TARGET_BYTES: Final = 96 * MIB
"""The maximum size of the input of one merge. Its output stays below 128 MB."""
PART_BYTES: Final = 64 * MIB  # the maximum memory for the rows of one part of a merge


class Compacted(NamedTuple):
    """The outcome for one table. Merges are `abandoned` if other processes changed the files."""

    table: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    abandoned: int


def compact(
    lake: Lake,
    *,
    small_bytes: int = SMALL_BYTES,
    target_bytes: int = TARGET_BYTES,
    partitions: Collection[Partition] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Compacted]:
    """Merge the small files of every table, `runs` last. Raises `InfrastructureError`.

    With `partitions`, merge only files of these partitions.
    """
    done = []
    for table in lake.tables:
        snapshot = lake.snapshot()
        before = snapshot.files(table)
        abandoned = 0
        looked = [file for file in before if partitions is None or file.partition in partitions]
        for group in planned(looked, small_bytes, target_bytes):
            progress(f"{table}: {len(group)} files into one")
            if not rewrite(lake, snapshot.version, table, group):
                abandoned += 1
        after = lake.snapshot().files(table)
        done.append(
            Compacted(
                table,
                len(before),
                len(after),
                sum(file.size_bytes for file in before),
                sum(file.size_bytes for file in after),
                abandoned,
            )
        )
    return done


def planned(
    files: Sequence[FileRef], small_bytes: int, target_bytes: int
) -> Iterator[list[FileRef]]:
    """Yield groups of files to merge: two or more small files of one partition, ordered by run.

    The files of a group have at most `target_bytes` together.
    """
    groups: dict[Partition, list[FileRef]] = {}
    for file in sorted(files, key=lambda file: (file.first_run, file.name)):
        if file.size_bytes < small_bytes:
            groups.setdefault(file.partition, []).append(file)
    for _, small in sorted(groups.items(), key=lambda item: repr(item[0])):
        group: list[FileRef] = []
        total = 0
        for file in small:
            if group and total + file.size_bytes > target_bytes:
                if len(group) > 1:
                    yield group
                group, total = [], 0
            group.append(file)
            total += file.size_bytes
        if len(group) > 1:
            yield group


def rewrite(
    lake: Lake,
    version: int,
    table: str,
    group: Sequence[FileRef],
    *,
    without: Collection[str] = (),
    fence: Sequence[str] = (),
) -> bool:
    """Replace a group of files by one file, or by none if no rows remain.

    All rows of the group must be visible at this `version` of `runs`. Rows whose `run_and_batch` is
    in `without` are left out. The same commit fences the batches in `fence`. Returns `False` if
    another process changed the files in the meantime.
    """
    log = lake.logs[table]
    schema = lake.schemas[table]

    def write_and_commit() -> bool:
        if not _there(group, log.refresh().files):
            return False
        merge = new_id()
        name = merged_name(version, merge)
        additions = []
        parts = _parts(lake, group, without)
        first = next(parts, None)
        if first is not None:
            parts = itertools.chain([first], parts)
            additions = [write_parts(lake.place, table, name, schema, parts, group[0].partition)]
        rows, before = sum(item.rows for item in additions), sum(file.rows for file in group)
        if rows > before or (rows < before and not without):
            raise InternalError(f"{table}: merged {rows} rows of {[file.name for file in group]}")

        def commit() -> bool:
            files = log.refresh().files
            if name in files:
                return True  # an earlier attempt succeeded, but its answer was lost
            if log.fenced(merge) or not _there(group, files):
                return False
            log.commit(
                schema,
                add=additions,
                remove=group,
                fence=fence,
                exact=True,
                rearranged=not without,
            )
            return True

        return lake.patience.call(f"commit to {log.uri}", commit)

    return lake.patience.call(f"merge files of {log.uri}", write_and_commit)


def run_and_batch(rows: pa.Table) -> pa.ChunkedArray:
    """Return the run and the batch of each row, joined to one text."""
    return pc.binary_join_element_wise(rows[KEY], rows[BATCH], "|")


def _there(group: Sequence[FileRef], files: Mapping[str, FileRef]) -> bool:
    return all(file.name in files for file in group)


def _parts(lake: Lake, group: Sequence[FileRef], without: Collection[str]) -> Iterator[pa.Table]:
    """Yield the rows of these files in parts, in the order of runs, with the current columns.

    Readers depend on this order, within parts and across parts (`results.lake.log.run_streams`).
    """
    left_out = pa.array(without, pa.string())
    parts: list[pa.Table] = []
    size = 0
    for rows in merged_rows(lake, group):
        left = rows.filter(pc.invert(pc.is_in(run_and_batch(rows), left_out))) if without else rows
        if not len(left):
            continue
        parts.append(left)
        size += left.nbytes
        if size >= PART_BYTES:
            yield pa.concat_tables(parts).combine_chunks()
            parts, size = [], 0
    if parts:
        yield pa.concat_tables(parts).combine_chunks()


def merged_rows(lake: Lake, group: Sequence[FileRef]) -> Iterator[pa.Table]:
    """Yield the rows of these files, ordered by run. Within a run, rows stay in the order of files.

    A file is opened at its first run, so few files are usually open at once.
    """
    ahead = collections.deque(sorted(group, key=lambda file: (file.first_run, file.name)))
    opened: list[_Rows] = []
    while ahead or opened:
        # The open files have all their rows of runs below `bound` in memory. Before such rows are
        # merged, every file that begins below `bound` must be open.
        bound = min((rows.last for rows in opened if rows.last is not None), default=None)
        if ahead and (not opened or bound is None or ahead[0].first_run < bound):
            opened.append(_Rows(lake, ahead.popleft()))
            continue
        taken = [part for part in (rows.take(bound) for rows in opened) if part]
        opened = [rows for rows in opened if not rows.ended]
        if taken:
            merged = pa.concat_tables([rows for part in taken for rows in part])
            yield merged.sort_by(KEY) if len(taken) > 1 else merged


class _Rows:
    """A partly read file, with its next rows in memory. Its last run may go on in the file."""

    def __init__(self, lake: Lake, file: FileRef) -> None:
        self._batches = batches_of(
            lake.place, file.table, file.name, lake.schemas[file.table], "", file.last_run
        )
        self._parts: list[pa.Table] = []
        self.last: str | None = ""
        """The run that may have more rows in the file; `None` if the whole file was read."""
        self._read()

    @property
    def ended(self) -> bool:
        return self.last is None and not self._parts

    def take(self, bound: str | None) -> list[pa.Table]:
        """Remove from memory, and return, the rows of runs below `bound` (all rows if `None`).

        If `bound` is the last run in memory, read the next rows of the file.
        """
        taken, left = [], []
        for rows in self._parts:
            # Rows are ordered by run, so rows of runs below the bound come first.
            count = len(rows)
            if bound is not None:
                runs = rows[KEY]
                count = pc.sum(pc.less(runs, bound)).as_py() if runs[0].as_py() < bound else 0
            taken += [rows.slice(0, count)] if count else []
            left += [rows.slice(count)] if count < len(rows) else []
        self._parts = left
        if bound is not None and self.last == bound:
            self._read()
        return taken

    def _read(self) -> None:
        more = next(self._batches, None)
        if more is None:
            self.last = None
        else:
            self._parts.append(more)
            self.last = more[KEY][-1].as_py()
