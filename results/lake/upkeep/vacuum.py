"""Removes files that no reader needs: batches of dead writers, and old inputs of compactions.

Vacuum removes files older than the grace period. It first fences batches that never became visible
and uploads of compactions, so that they can never be committed (`results.lake.log.lake`). So a
writer that was suspended for longer than the grace period loses nothing: it starts again under a
new batch.
"""

from __future__ import annotations

import functools
from typing import Final, NamedTuple

from harness.errors import UsageError
from results.lake.log.delta import Log
from results.lake.log.files import MAIN, batch_of, merge_of
from results.lake.log.lake import Lake
from results.lake.upkeep import GRACE_HOURS

MS_AN_HOUR: Final = 3_600_000
FENCES_MAX: Final = 10_000  # per commit; the next vacuum fences the rest


class Vacuumed(NamedTuple):
    """The outcome of a vacuum: batches fenced, files removed from a log, files deleted."""

    fenced: tuple[str, ...]
    removed: tuple[str, ...]
    deleted: tuple[str, ...]


def vacuum(lake: Lake, *, grace_hours: int = GRACE_HOURS, dry_run: bool = False) -> Vacuumed:
    """Fence dead batches, and delete unneeded files. With `dry_run`, only list them."""
    if grace_hours < 0:
        raise UsageError(f"the grace period is {grace_hours} hours; it must be 0 or more")
    return _Vacuum(lake, grace_hours, dry_run).run()


class _Stale(NamedTuple):
    """Files of a table that may be deleted as soon as dead batches and merges are fenced."""

    removable: tuple[str, ...]  # files that are in the log, and have rows of an invisible batch
    obsolete: frozenset[str]  # files that were removed from the log long enough ago
    untracked: tuple[str, ...]  # files that are not in the log, and are old enough


class _Vacuum:
    def __init__(self, lake: Lake, grace_hours: int, dry_run: bool) -> None:
        self.lake = lake
        self.grace_hours = grace_hours
        self.dry_run = dry_run
        self.before_ms = lake.place.now_ms() - grace_hours * MS_AN_HOUR
        self.fenced: set[str] = set()
        self.dead: set[str] = set()

    def run(self) -> Vacuumed:
        lake, call = self.lake, self.lake.patience.call
        logs = [lake.logs[table] for table in lake.tables]
        stale = [call(f"list {log.uri}", functools.partial(self._stale, log)) for log in logs]
        batches = {
            batch
            for files in stale
            for name in (*files.removable, *files.untracked)
            if (batch := batch_of(name)) is not None
        }
        call(f"commit to {lake.main.uri}", functools.partial(self._fence_batches, batches))
        removed: list[str] = []
        deleted: list[str] = []
        for log, files in zip(logs, stale, strict=True):
            removed += call(f"commit to {log.uri}", functools.partial(self._remove, log))
            for name in call(f"commit to {log.uri}", functools.partial(self._fence, log, files)):
                if not self.dry_run:
                    call(
                        f"remove files of {log.uri}",
                        functools.partial(lake.place.delete, log.table, name),
                    )
                deleted.append(f"{log.table}/{name}")
        return Vacuumed(tuple(sorted(self.fenced & self.dead)), tuple(removed), tuple(deleted))

    def _stale(self, log: Log) -> _Stale:
        lake = self.lake
        main = lake.main.refresh()
        state = main if log is lake.main else log.refresh()
        visible = lake.visible_batches(
            main, {file.batch for file in state.files.values() if file.batch}
        )
        removable = [
            name
            for name, file in state.files.items()
            if file.batch is not None
            and file.batch not in visible
            and (file.modified_ms <= self.before_ms or lake.main.fenced(file.batch))
        ]
        obsolete = frozenset(log.obsolete(self.grace_hours, untracked=False))
        untracked = log.obsolete(self.grace_hours, untracked=True)
        return _Stale(tuple(removable), obsolete, tuple(untracked))

    def _fence_batches(self, batches: set[str]) -> None:
        """Fence the invisible batches among these, so that they never become visible."""
        main = self.lake.main.refresh()
        invisible = sorted(batches - self.lake.visible_batches(main, batches))
        new = [batch for batch in invisible if not self.lake.main.fenced(batch)]
        dead = set(invisible) - set(new[FENCES_MAX:])
        new = new[:FENCES_MAX]
        self.fenced |= set(new)  # recorded before the commit, because its answer may be lost
        if new and not self.dry_run:
            self.lake.main.commit(self.lake.schemas[MAIN], fence=new, exact=True)
        self.dead = dead

    def _remove(self, log: Log) -> list[str]:
        files = [file for _, file in sorted(log.refresh().files.items()) if file.batch in self.dead]
        if files and not self.dry_run:
            log.commit(self.lake.schemas[log.table], remove=files, exact=True)
        return [f"{log.table}/{file.name}" for file in files]

    def _fence(self, log: Log, found: _Stale) -> list[str]:
        main = self.lake.main.refresh()
        state = main if log is self.lake.main else log.refresh()
        stored = {file.name for file in self.lake.place.listed(log.table)}
        names = [name for name in found.untracked if name in stored and name not in state.files]
        batches = {batch for name in names if (batch := batch_of(name)) is not None}
        safe = self.dead | self.lake.visible_batches(main, batches)
        merges = [
            merge
            for name in names
            if name not in found.obsolete
            and (merge := merge_of(name)) is not None
            and not log.fenced(merge)
        ]
        late = set(merges[FENCES_MAX:])
        if merges and not self.dry_run:
            log.commit(self.lake.schemas[log.table], fence=merges[:FENCES_MAX], exact=True)
        return [
            name
            for name in names
            if batch_of(name) in safe or (merge_of(name) is not None and merge_of(name) not in late)
        ]
