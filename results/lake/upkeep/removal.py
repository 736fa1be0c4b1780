"""Removes runs from a lake: rewrites the files that hold these runs without their rows.

The files of `runs` are rewritten first, by exact commits. From then on, the rows of removed runs in
other tables join with no row of `runs`, so no reader sees a part of a run. A run is named together
with its batch, because the same run may be appended again under another batch. A batch that loses
its last run is fenced, so that its writer cannot commit it again.

A process that is killed during a removal leaves rows of removed runs in other tables. Repeating the
same removal completes it.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator

from results.lake.log.files import BATCH, KEY, MAIN, FileRef
from results.lake.log.lake import Lake
from results.lake.log.storage_errors import AgainError, troubles
from results.lake.upkeep.compaction import rewrite

Pair = tuple[str, str]


def pairs_of(lake: Lake, runs: Collection[str]) -> list[Pair]:
    """Return the given runs that the lake has, each with its batch."""

    def read() -> list[Pair]:
        batches = lake.index.of([*lake.main.refresh().files.values()])
        return [(run, batches[run]) for run in runs if run in batches]

    return lake.patience.call(f"read {lake.main.uri}", read)


def remove(lake: Lake, pairs: Collection[Pair]) -> None:
    """Remove runs from every table; raises `InfrastructureError`."""
    if not pairs:
        return
    for table in reversed(lake.tables):
        lake.patience.call(
            f"remove runs from {lake.logs[table].uri}",
            functools.partial(_remove, lake, table, frozenset(pairs)),
        )


def _remove(lake: Lake, table: str, pairs: frozenset[Pair]) -> None:
    first, last = min(pairs)[0], max(pairs)[0]
    version = lake.main.refresh().version
    for file in [*lake.logs[table].refresh().files.values()]:
        if file.first_run > last or file.last_run < first:
            continue
        doomed = pairs & {*_pairs_in(lake, file)}
        if not doomed:
            continue
        done = rewrite(
            lake, version, table, [file],
            without=[f"{run}|{batch}" for run, batch in doomed],
            fence=_emptied(lake, doomed) if table == MAIN else (),
        )  # fmt: skip
        if not done:
            raise AgainError("another process merged the files meanwhile")


def _pairs_in(lake: Lake, file: FileRef) -> Iterator[Pair]:
    with troubles(file.uri):
        rows = lake.place.read(file.table, file.name, [KEY, BATCH])
    unique = rows.group_by([KEY, BATCH]).aggregate([])
    return zip(unique[KEY].to_pylist(), unique[BATCH].to_pylist(), strict=True)


def _emptied(lake: Lake, gone: Collection[Pair]) -> list[str]:
    batches = lake.index.of([*lake.main.refresh().files.values()])
    left = {batch for run, batch in batches.items() if (run, batch) not in gone}
    return sorted({batch for _, batch in gone} - left)
