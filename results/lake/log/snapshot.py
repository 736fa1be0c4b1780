"""One consistent version of a lake, in which every table has the same runs, all of them whole."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from results.lake.log.files import BATCH, KEY, MAIN, PARTITION, FileRef, Partition
from results.lake.log.location import Place
from results.lake.log.storage_errors import troubles


class RunIndex:
    """A cache of the runs in each file of `runs`, with their batches. A file is read only once."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._read: dict[str, Mapping[str, str]] = {}
        self._batches: dict[str, frozenset[str]] = {}

    def of(self, files: Sequence[FileRef]) -> dict[str, str]:
        batches: dict[str, str] = {}
        for file in files:
            if file.name not in self._read:
                self._read[file.name] = self._runs(file)
            batches |= self._read[file.name]
        return batches

    def batches(self, files: Sequence[FileRef]) -> set[str]:
        batches: set[str] = set()
        for file in files:
            if file.name not in self._batches:
                column = self._columns(file, [BATCH])[BATCH]
                self._batches[file.name] = frozenset(pc.unique(column).to_pylist())
            batches |= self._batches[file.name]
        return batches

    def forget_all_but(self, files: Mapping[str, FileRef]) -> None:
        for read in (self._read, self._batches):
            for name in [name for name in read if name not in files]:
                del read[name]

    def _runs(self, file: FileRef) -> Mapping[str, str]:
        table = self._columns(file, [KEY, BATCH])
        return dict(zip(table[KEY].to_pylist(), table[BATCH].to_pylist(), strict=True))

    def _columns(self, file: FileRef, names: list[str]) -> pa.Table:
        with troubles(file.uri):
            return self._place.read(MAIN, file.name, names)


@dataclass(frozen=True)
class Snapshot:
    """The visible files of every table at one version of `runs`."""

    version: int
    tables: Mapping[str, tuple[FileRef, ...]]
    schemas: Mapping[str, pa.Schema]
    place: Place
    between: tuple[str, str | None] | None = None
    """The range of keys: start, exclusive end (`None`: no end). Without a range, all runs count."""

    def cut(self, first: str, end: str | None) -> Snapshot:
        """Limit the snapshot to files that may hold runs from `first` to `end` (exclusive).

        The files may also hold other runs; use `within` to filter out their rows.
        """
        tables = {
            name: tuple(
                file
                for file in files
                if file.last_run >= first and (end is None or file.first_run < end)
            )
            for name, files in self.tables.items()
        }
        return dataclasses.replace(self, tables=tables, between=(first, end))

    def of_label(self, label: str | None) -> Snapshot:
        """Limit the snapshot to the files of a label; `None` sets no limit."""
        if label is None:
            return self
        tables = {
            name: tuple(file for file in files if file.partition[1] == label)
            for name, files in self.tables.items()
        }
        return dataclasses.replace(self, tables=tables)

    def within(self, column: str) -> str:
        """Return an SQL condition for runs in the range. `column` is the column with the run."""
        if self.between is None:
            return "true"
        first, end = (None if run is None else run.replace("'", "''") for run in self.between)
        return f"{column} >= '{first}'" + ("" if end is None else f" AND {column} < '{end}'")

    def in_range(self) -> ds.Expression | None:
        """Return an Arrow filter for runs in the range. Arrow skips row groups of other runs."""
        if self.between is None:
            return None
        first, end = self.between
        begun = ds.field(KEY) >= first
        return begun if end is None else begun & (ds.field(KEY) < end)

    def files(self, table: str) -> list[FileRef]:
        """Return a table's files that have visible rows, in the order of their names."""
        return list(self.tables[table])

    def dataset(self, table: str) -> ds.Dataset:
        """Return a table's visible rows, read on demand. Filters by partition or run skip files.

        After `cut`, the files also hold rows of runs outside of the range.
        """
        form = ds.ParquetFileFormat()
        fragments = [
            form.make_fragment(
                f"{table}/{file.name}",
                filesystem=self.place.files,
                partition_expression=_bounds(file),
            )
            for file in self.tables[table]
        ]
        return ds.FileSystemDataset(fragments, self.schemas[table], form, self.place.files)

    def known(self, partition: Mapping[str, Any] | None = None) -> set[str]:
        """Return the keys of all runs. With `partition`, only of runs with these values."""
        files = [
            file for file in self.tables[MAIN] if partition is None or _within(file, partition)
        ]
        return set(RunIndex(self.place).of(files))


def _within(file: FileRef, partition: Mapping[str, Any]) -> bool:
    values = dict(zip(PARTITION, file.partition, strict=True))
    return all(values[name] == value for name, value in partition.items())


def _bounds(file: FileRef) -> ds.Expression:
    """Return a condition that all rows of a file meet, so Arrow can skip files without a match."""
    partition: Partition = file.partition
    conditions = [
        ds.field(name).is_null() if value is None else ds.field(name) == value
        for name, value in zip(PARTITION, partition, strict=True)
    ]
    conditions += [ds.field(KEY) >= file.first_run, ds.field(KEY) <= file.last_run]
    return functools.reduce(lambda left, right: left & right, conditions)
