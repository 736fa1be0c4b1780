"""Ingests a store into a lake: appends the runs that the lake lacks, many at a time.

Each folder is read once. Its run then waits in memory with other runs of its partition, already
encoded as a Parquet file (`results.lake.log.append_buffer`). A partition is appended when its
largest file reaches `APPEND_BYTES`. When all waiting runs take `HELD_BYTES_MAX` of memory, the
largest partition is appended.

An append is visible as a whole or not at all, so an ingest that was stopped can simply be repeated.
Unreadable runs are reported and left out.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa

from harness.errors import HarnessError, HistoryError, UsageError
from harness.store import is_being_written
from results.facts.problems import RUNNING, Problem, Problems
from results.lake.log.append_buffer import AppendBuffer
from results.lake.tables.row_tables import tables_of
from results.lake.tables.schema import schemas
from results.lake.tables.sealed_run import (
    FINISHED,
    TORN,
    About,
    Source,
    read_about,
    read_source,
    run_key,
)
from results.lake.transfer.folders import files_of, folder_of
from results.lake.transfer.run_folders import run_folders

APPEND_BYTES: Final = 64 << 20
"""An append starts when its largest file has this size. Compaction leaves such files alone."""
HELD_BYTES_MAX: Final = 512 << 20
RUNS_AT_ONCE: Final = 256
LINES_AT_ONCE: Final = 1 << 17
BYTES_AT_ONCE: Final = 32 << 20

Partition = tuple[str, str | None, Any]


class Sink(Protocol):
    """The operations on a lake that an ingest uses."""

    def known(self) -> set[str]:
        """Return the keys of the runs that the lake has."""
        ...

    def append(self, rows: AppendBuffer) -> list[str]:
        """Append whole runs. Runs that the lake already has are left out and returned."""
        ...


class Ingested(msgspec.Struct, kw_only=True):
    """Progress of an ingest: folders in total and read (`looked`), runs by outcome, appends."""

    total: int
    looked: int = 0
    appended: int = 0
    present: int = 0
    unfinished: int = 0
    appends: int = 0


class _Group:
    """Runs that wait for the next append of one partition."""

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self.lines = self.bytes = 0
        self.gathered = AppendBuffer(schemas())
        self.gathered_bytes = 0

    @property
    def held_bytes(self) -> int:
        return self.gathered_bytes + self.bytes


def ingest(
    store: Path,
    lake: Sink,
    write: Callable[[str, Mapping[str, bytes]], None] | None,
    *,
    unfinished: bool = False,
    append_bytes: int = APPEND_BYTES,
    progress: Callable[[Ingested], None] = lambda _: None,
) -> tuple[Ingested, Problems]:
    """Append the runs that `lake` lacks. `write` stores folders of runs that are not valid.

    Without `write`, the lake keeps no folders. With `unfinished`, runs that are not finished are
    also appended, except runs that a live process is still writing. Raises `UsageError` if there is
    no store, and the errors of the lake.
    """
    if not store.is_dir():
        raise UsageError(f"{str(store)!r} is not a folder; give the --store of `harness run`")
    problems = Problems()
    ingested = ingest_folders(
        run_folders(store, problems), lake, write,
        problems=problems, unfinished=unfinished, append_bytes=append_bytes, progress=progress,
    )  # fmt: skip
    return ingested, problems


def ingest_folders(
    folders: Iterator[tuple[str, str, Path]],
    lake: Sink,
    write: Callable[[str, Mapping[str, bytes]], None] | None,
    *,
    problems: Problems,
    unfinished: bool = False,
    append_bytes: int = APPEND_BYTES,
    progress: Callable[[Ingested], None] = lambda _: None,
    taken: Callable[[str, str], None] = lambda _, __: None,
) -> Ingested:
    """Ingest these folders, each with the name and the id of its run.

    `taken` is called with the `NAME/ID` and the key of each run that the lake has or will get.
    """
    # Read runs in the order of keys, because this is their order in the lake's files.
    ordered = sorted(folders, key=lambda each: f"{each[0]}/{each[1]}@")
    ingested = Ingested(total=len(ordered))
    stored = lake.known()
    work = _Work(lake, ingested, problems, append_bytes)
    with _no_cycles():
        for name, run, folder in ordered:
            ingested.looked += 1
            progress(ingested)
            place = f"{name}/{run}"
            try:
                key, source = _read(folder, name, stored, unfinished=unfinished)
                files = None
                if source is not None and write is not None and not _holds(source.about):
                    files = files_of(folder)
            except _NotTakenError as error:
                if error.kind in {TORN, RUNNING} and not unfinished:
                    ingested.unfinished += 1
                else:
                    problems.add(Problem(place, error.kind, str(error)))
                continue
            except (HarnessError, OSError) as error:
                problems.add(Problem(place, "history", str(error)))
                continue
            taken(place, key)
            if source is None:
                ingested.present += 1
                continue
            if write is not None and files is not None:
                kept = folder_of(key)
                source = msgspec.structs.replace(source, folder=kept)
                write(kept, files)
            stored.add(key)  # skip the same run in another folder of the store
            work.add(source)
        work.finish()
    progress(ingested)
    return ingested


class _NotTakenError(HarnessError):
    """A problem of this `kind` makes the ingest leave out a folder's run."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def _read(
    folder: Path, name: str, known: set[str], *, unfinished: bool
) -> tuple[str, Source | None]:
    """Return the key of the run in a folder, and the run unless the lake already has it.

    Reading the record is usually enough if the lake has the run.
    """
    if not (folder / "case.json").is_file():
        raise _NotTakenError("case", "holds no case.json, so this folder is not a run; move it")
    if not (folder / "run.json").exists() and is_being_written(folder):
        raise _NotTakenError(RUNNING, "is still running, and is read when it has ended")
    try:
        about = read_about(folder, name)
    except HarnessError as error:
        kind = "history" if isinstance(error, HistoryError) else "case"
        raise _NotTakenError(kind, str(error)) from error
    if about.record is not None and (key := run_key(about, about.record.digest)) in known:
        return key, None
    source = None
    if about.state == FINISHED or unfinished:
        source = read_source(folder, about)
        about = source.about
    if source is None or (about.state != FINISHED and not unfinished):
        raise _NotTakenError(TORN if about.state == TORN else "record", about.trouble)
    return source.key, None if source.key in known else source


def _holds(about: About) -> bool:
    return about.state == FINISHED and about.record is not None and about.record.verdict.holds


@contextlib.contextmanager
def _no_cycles() -> Iterator[None]:
    """Turn off the garbage collector, since rows are millions of objects without cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _partition(about: About) -> Partition:
    return about.case.system, about.label, about.day


class _Work:
    def __init__(
        self,
        lake: Sink,
        found: Ingested,
        problems: Problems,
        append_bytes: int,
    ) -> None:
        self._lake = lake
        self._found = found
        self._problems = problems
        self._append_bytes = append_bytes
        self._held_max = HELD_BYTES_MAX
        self._groups: dict[Partition, _Group] = {}

    def add(self, source: Source) -> None:
        partition = _partition(source.about)
        group = self._groups.get(partition)
        if group is None:
            group = self._groups[partition] = _Group()
        group.sources.append(source)
        group.lines += len(source.table)
        group.bytes += source.size_bytes
        if (
            len(group.sources) >= RUNS_AT_ONCE
            or group.lines >= LINES_AT_ONCE
            or group.bytes >= BYTES_AT_ONCE
        ):
            self._convert(group)
            if group.gathered.size_bytes >= self._append_bytes:
                self._append(group)
        if sum(each.held_bytes for each in self._groups.values()) > self._held_max:
            self._append(max(self._groups.values(), key=lambda each: each.held_bytes))

    def finish(self) -> None:
        for group in self._groups.values():
            self._append(group)

    def _convert(self, group: _Group) -> None:
        sources, group.sources = group.sources, []
        group.lines = group.bytes = 0
        if not sources:
            return
        for tables in self._tables(sources):
            first = min(tables["runs"]["run"].to_pylist())
            if first < (group.gathered.last or ""):
                self._write(group)
            group.gathered.add(tables)
        group.gathered_bytes = group.gathered.held_bytes

    def _tables(self, sources: list[Source]) -> list[dict[str, pa.Table]]:
        try:
            return [tables_of(sources)]
        except HarnessError:
            runs = []
            for source in sources:
                try:
                    runs.append(tables_of([source]))
                except HarnessError as error:
                    name = f"{source.about.name}/{source.about.id}"
                    self._problems.add(Problem(name, "history", str(error)))
            return runs

    def _append(self, group: _Group) -> None:
        self._convert(group)
        self._write(group)

    def _write(self, group: _Group) -> None:
        gathered, group.gathered = group.gathered, AppendBuffer(schemas())
        group.gathered_bytes = 0
        if len(gathered):
            skipped = self._lake.append(gathered)
            self._found.appends += 1
            self._found.present += len(skipped)
            self._found.appended += len(gathered) - len(skipped)
