"""Checks that a lake is sound: files are whole, and each run occurs once, in one file per table.

There are two kinds of findings. *Damage* is lost, doubled or misordered rows, or a run split over
two files. *Leftovers* are batches of dead writers and uploads without a commit. Readers do not see
leftovers, and `vacuum` removes them.

In a result lake (`results.judging.result_lake`) a run may be in several batches, once in each.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from harness.errors import HarnessError, counted, listed
from results.lake.log.files import BATCH, KEY, LOG_FOLDER, MAIN, FileRef, Partition
from results.lake.log.lake import Lake
from results.lake.log.refusals import RefusedError
from results.lake.log.run_streams import spans_of
from results.lake.log.snapshot import Snapshot
from results.lake.log.storage_errors import AgainError, troubles

SHOWN_MAX: Final = 3
OUT_OF_ORDER: Final = (
    "runs out of their order, so a report may miss some (older releases wrote such files): export "
    "the runs with `harness lake export`, and ingest them into a new lake"
)
Run = tuple[Partition, str, str | None]
"""The partition and the key of a run. In a result lake also the batch, else `None`."""


class Finding(NamedTuple):
    """One finding about a table of a lake: damage, or a leftover if `damaged` is false."""

    table: str
    damaged: bool
    text: str


class _GoneError(HarnessError):
    """A file in the log of a table no longer exists in the store."""


def check(lake: Lake) -> list[Finding]:
    """Check the run and batch of every visible row. Findings of damage come first.

    If another process removes files that it replaced, the check starts again.
    """
    return lake.patience.call(f"check {lake.place.uri}", functools.partial(_check, lake))


def _check(lake: Lake) -> list[Finding]:
    snapshot = lake.snapshot()
    findings: list[Finding] = []
    batches: dict[Run, str] = {}
    for table in reversed(lake.tables):
        files, more = _files(lake, snapshot, table)
        findings += more
        findings += _runs(lake, files, batches)
    return sorted(findings, key=lambda finding: not finding.damaged)


def _files(lake: Lake, snapshot: Snapshot, table: str) -> tuple[list[FileRef], list[Finding]]:
    """Return the existing files of a table, and findings if its log and the store differ."""
    call, uri = lake.patience.call, lake.place.uri_of(table)
    listing = call(f"list {uri}", functools.partial(lake.place.listed, table))
    stored = {file.name: file.size_bytes for file in listing}
    files = snapshot.files(table)
    state = call(f"read {uri}", lake.logs[table].refresh)
    findings = []
    lost = [file.name for file in files if file.name not in stored]
    if any(name not in state.files for name in lost):
        raise AgainError(f"files of {table} were replaced and removed meanwhile")
    if lost:
        findings.append(Finding(table, True, f"{counted(len(lost), 'file')} lost: {named(lost)}"))
    commits = call(f"list {uri}", functools.partial(lake.place.listed, f"{table}/{LOG_FOLDER}"))
    empty = [commit.name for commit in commits if not commit.size_bytes and _is_commit(commit.name)]
    if empty:  # a reader takes an empty file for a commit without changes, and misses its rows
        text = f"{counted(len(empty), 'commit')} empty, as a power cut leaves them: {named(empty)}"
        findings.append(Finding(table, True, text))
    there = [file for file in files if file.name in stored]
    torn = [file.name for file in there if stored[file.name] != file.size_bytes]
    if torn:
        text = f"{counted(len(torn), 'file')} of another size than written: {named(torn)}"
        findings.append(Finding(table, True, text))
    visible = {file.name for file in files}
    unseen = [name for name in state.files if name not in visible]
    beside = [name for name in stored if name not in state.files]
    if unseen or beside:
        text = (
            f"{counted(len(unseen), 'file')} of batches that are not visible, "
            f"{counted(len(beside), 'file')} that the log does not have (yet, or any more)"
        )
        findings.append(Finding(table, False, text))
    return [file for file in there if file.name not in torn], findings


def _runs(lake: Lake, files: Sequence[FileRef], batches: dict[Run, str]) -> Iterator[Finding]:
    seen: set[Run] = set()
    doubled: list[str] = []
    strangers: list[str] = []
    for file in files:
        try:
            read = lake.patience.call(f"read {file.uri}", functools.partial(_read, lake, file))
        except _GoneError as error:
            raise AgainError(str(error)) from error
        except RefusedError:
            raise  # a file without permission to read it may still be sound
        except HarnessError as error:
            yield Finding(file.table, True, f"{file.name} cannot be read: {error}")
            continue
        if read.rows != file.rows:
            text = f"{file.name} has {counted(read.rows, 'row')}; the log says {file.rows}"
            yield Finding(file.table, True, text)
        if file.table == MAIN and len(read.runs) != read.rows:
            yield Finding(MAIN, True, f"{file.name} has a run twice")
        if not read.in_order:
            yield Finding(file.table, True, f"{file.name} has {OUT_OF_ORDER}")
        outside = [run for run, _ in read.runs if not file.first_run <= run <= file.last_run]
        if outside:
            text = f"{file.name} has {counted(len(outside), 'run')} outside its range in the log"
            yield Finding(file.table, True, f"{text}: {named(outside)}")
        for run, batch in read.runs:
            at = (file.partition, run, None if lake.runs_once else batch)
            if at in seen:
                doubled.append(run)
            seen.add(at)
            if file.table == MAIN:
                batches[at] = batch
            elif batches.get(at) != batch:
                strangers.append(run)
    if doubled:
        text = f"{counted(len(doubled), 'run')} in two files or batches: {named(doubled)}"
        yield Finding(files[0].table, True, text)
    if strangers:
        text = (
            f"{counted(len(strangers), 'run')} that `runs` lacks, or has of another batch: "
            f"{named(strangers)}"
        )
        yield Finding(files[0].table, True, text)


class _Read(NamedTuple):
    """The contents of a file: the number of rows, and the distinct runs with their batches."""

    rows: int
    runs: list[tuple[str, str]]
    in_order: bool


def _read(lake: Lake, file: FileRef) -> _Read:
    with troubles(file.uri):
        try:
            table = lake.place.read(file.table, file.name, [KEY, BATCH])
        except FileNotFoundError as error:
            raise _GoneError(f"{file.name} is gone") from error
    unique = table.group_by([KEY, BATCH]).aggregate([])
    runs = zip(unique[KEY].to_pylist(), unique[BATCH].to_pylist(), strict=True)
    spans = itertools.pairwise(run for run, _, _ in spans_of(table[KEY]))
    return _Read(table.num_rows, list(runs), all(run <= after for run, after in spans))


def _is_commit(name: str) -> bool:
    return name.endswith(".json") and name.removesuffix(".json").isdigit()


def named(names: Sequence[str]) -> str:
    """Write the first few names, and how many more there are."""
    return listed(sorted(names), limit=SHOWN_MAX)
