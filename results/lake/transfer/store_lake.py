"""The lake inside a store, in the folder `STORE/.lake`. It is updated whenever the store is read.

An update appends new runs, replaces changed runs, and removes runs without a folder. Unchanged
folders are not read again (`results.lake.transfer.folder_memo`). Only one process at a time updates
a store's lake.

The lake can be rebuilt from its store at any time. So it is rebuilt if it has an older schema, and
it keeps no copies of run folders.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from harness.cli.output import note
from harness.errors import HarnessError, InfrastructureError, UsageError, listed
from harness.exact import whole_number
from harness.support.cache_dir import cache_folder
from results.facts.problems import Problems
from results.lake.log.delta import Log
from results.lake.log.files import LOG_FOLDER, MAIN
from results.lake.log.lake import SCHEMA, Lake
from results.lake.log.location import Place
from results.lake.log.refusals import RefusedError, failure_of, is_seen, require_writable
from results.lake.log.storage_errors import NoSpaceError, Patience, require
from results.lake.tables.schema import SCHEMA_VERSION
from results.lake.transfer.folder_memo import (
    Entry,
    content_of,
    read_memo,
    stamp_of,
    write_memo,
)
from results.lake.transfer.ingest import Ingested, ingest_folders
from results.lake.transfer.run_folders import run_folders
from results.lake.upkeep.compaction import SMALL_BYTES, compact
from results.lake.upkeep.removal import pairs_of, remove
from results.lake.upkeep.vacuum import vacuum

LAKE_FOLDER: Final = ".lake"
CACHED: Final = "lakes"
"""The subfolder of the user's cache for lakes of read-only stores."""
SMALL_FILES_MAX: Final = 16
"""The maximum number of small files of `runs` in a partition. Above it, an update merges them."""
PATIENCE_S: Final = 20.0


class StoreLake(NamedTuple):
    """A store's lake, and the runs of the store that the lake lacks."""

    uri: str
    """`STORE/.lake`, or a folder in the user's cache if the store is read-only."""
    store: Path
    problems: Problems
    """Runs that are not in the lake, each with the reason."""


def lake_of_store(
    store: Path,
    *,
    may_be_empty: bool = False,
    progress: Callable[[Ingested], None] = lambda _: None,
) -> StoreLake:
    """Update the lake of a store, and return it.

    Raises `UsageError` if there is no store, and `HarnessError` for a damaged lake.
    """
    if not store.is_dir():
        raise UsageError(f"{str(store)!r} is not a folder; give the --store of `harness run`")
    require("deltalake")
    _require_store(store, may_be_empty=may_be_empty)
    problems = Problems()
    with _alone(store):
        folder = _folder_for(store)
        try:
            _Update(store, folder, problems, progress).run()
        except (RefusedError, NoSpaceError):
            raise
        except (UsageError, InfrastructureError) as error:
            raise type(error)(
                f"{error} (or remove {folder}, which is rebuilt from the store)"
            ) from error
    return StoreLake(str(folder), store, problems)


def _require_store(store: Path, *, may_be_empty: bool) -> None:
    """Raise `UsageError` for a folder that is not a store, before a lake is created in it."""
    if is_seen(store / LAKE_FOLDER):  # an earlier update accepted this store
        return
    problems = Problems()
    if next(run_folders(store, problems), None) is not None or problems.total:
        return
    files = sorted(
        path.name for path in store.iterdir() if path.name == LOG_FOLDER or path.is_file()
    )
    if files:
        raise UsageError(
            f"{str(store)!r} holds {listed(files, limit=3)} and neither runs nor the tables of a "
            "lake; name the folder of --store, or the URI of --lake"
        )
    if not may_be_empty:
        raise UsageError(f"{str(store)!r} holds no run; give the --store of finished runs")


@contextlib.contextmanager
def _alone(store: Path) -> Iterator[None]:
    """Exclude other processes from updating the lake of this store."""
    try:
        descriptor = os.open(store, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise failure_of(error, f"{str(store)!r} cannot be opened: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note(f"waiting for another process that updates the lake of {store}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:  # this file system has no locks; the lake's protocol still keeps runs whole
            pass
        yield
    finally:
        os.close(descriptor)


def _folder_for(store: Path) -> Path:
    folder = store.resolve() / LAKE_FOLDER
    repair = "free some space, or choose another folder for the store"
    try:
        require_writable(folder, repair)
        Place(str(folder))  # raises for a path that Delta and Arrow interpret differently
    except UsageError:
        key = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
        try:
            folder = cache_folder() / CACHED / key
            require_writable(folder, "set XDG_CACHE_HOME to a folder that can be written")
        except OSError as error:
            raise failure_of(
                error, f"neither {store} nor the user's cache can be written: {error.strerror}"
            ) from error
    except FileExistsError as error:
        raise UsageError(f"{str(folder)!r} is not a folder; remove it") from error
    except OSError as error:
        raise InfrastructureError(
            f"{folder} cannot be created: {error.strerror}; {repair}"
        ) from error
    return folder


def _opened(folder: Path) -> Lake:
    """Open the lake. Create it if it is missing, or rebuild it if it has an older schema."""
    uri = str(folder)

    def lake() -> Lake:
        return Lake.open(uri, patience=Patience(total_s=PATIENCE_S), create=True)

    try:
        return lake()
    except UsageError:
        log = Log(Place(uri), MAIN)
        version = log.settings().get(SCHEMA, "") if log.exists() else ""
        number = whole_number(version)
        if number is None or number >= SCHEMA_VERSION:
            raise
        note(f"{folder} is from an older release, and is rebuilt from the store")
        shutil.rmtree(folder)
        return lake()


class _Update:
    def __init__(
        self,
        store: Path,
        folder: Path,
        problems: Problems,
        progress: Callable[[Ingested], None],
    ) -> None:
        self._folder = folder
        self._problems = problems
        self._progress = progress
        self._lake = _opened(folder)
        self._memo = read_memo(folder)
        self._found = [*run_folders(store, problems)]
        self._entries: dict[str, Entry] = {}
        self._stamps: dict[str, str] = {}

    def run(self) -> None:
        """Replace changed runs, append new ones, remove runs without a folder."""
        before = self._memo.runs
        if self._memo.removing:
            self._remove()
        stored = self._lake.known()
        changed, new = self._compare(stored)
        self._remove(changed)
        if new:
            paths = {f"{name}/{run}": folder for name, run, folder in new}

            def taken(place: str, key: str) -> None:
                self._entries[place] = self._entry(paths[place], key, self._stamps[place])

            ingest_folders(
                iter(new), self._lake, None,
                problems=self._problems, unfinished=True, progress=self._progress, taken=taken,
            )  # fmt: skip
        gone = stored - changed - {entry.key for entry in self._entries.values()}
        self._remove(gone)
        self._memo.runs = self._entries
        if self._entries != before:
            write_memo(self._folder, self._memo)
        if new or gone or changed:
            self._tidy(removed=bool(gone or changed))

    def _compare(self, known: set[str]) -> tuple[set[str], list[tuple[str, str, Path]]]:
        changed = set()
        new = []
        for name, run, folder in self._found:
            place = f"{name}/{run}"
            entry = self._memo.runs.get(place)
            stamp = stamp_of(folder)
            if entry is not None and entry.key in known:
                if entry.stamp != stamp:
                    entry = self._same(folder, entry, stamp)
                if entry is not None:
                    self._entries[place] = entry
                    continue
                changed.add(self._memo.runs[place].key)
            self._stamps[place] = stamp
            new.append((name, run, folder))
        return changed, new

    def _same(self, folder: Path, entry: Entry, stamp: str) -> Entry | None:
        again = self._entry(folder, entry.key, stamp)
        return again if again.content and again.content == entry.content else None

    def _entry(self, folder: Path, key: str, stamp: str) -> Entry:
        """Make the entry of a folder. `stamp` is its stamp from before it was read."""
        try:
            content = content_of(folder)
        except OSError:
            content = ""
        # If the folder changed while it was read, an empty stamp makes the next update reread it.
        return Entry(key, stamp if stamp_of(folder) == stamp else "", content)

    def _remove(self, runs: set[str] | frozenset[str] = frozenset()) -> None:
        """Remove these runs from the lake. Without runs, only complete an interrupted removal."""
        if runs:
            self._memo.removing = pairs_of(self._lake, runs)
            write_memo(self._folder, self._memo)
        if self._memo.removing:
            remove(self._lake, self._memo.removing)
            self._memo.removing = []
            write_memo(self._folder, self._memo)

    def _tidy(self, *, removed: bool) -> None:
        small = collections.Counter(
            file.partition for file in self._lake.files(MAIN) if file.size_bytes < SMALL_BYTES
        )
        crowded = [partition for partition, n in small.items() if n > SMALL_FILES_MAX]
        with contextlib.suppress(HarnessError):
            if crowded:
                compact(self._lake, partitions=crowded)
            if crowded or removed:
                vacuum(self._lake)
