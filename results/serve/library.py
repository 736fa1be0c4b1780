"""The store as the pages see it: rows, numbers and artefacts, cached within bounds.

One scan at a time, and not more often than it pays: the next one comes after `SCAN_REST` times what
the last one took. Numbers of a run hold as long as its history has the same time and size.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from harness.errors import HarnessError, HistoryError
from harness.ops import CheckResult, Verdict
from harness.plugins import Reporter
from harness.registry import load_plugin, plugin_names
from results.run_index import Index, RunRow, ScanCache, is_plain_name, scan
from results.run_numbers import RunNumbers, run_numbers
from results.serve.paths import NotThere, first_link, open_below

__all__ = ["ARTEFACTS", "REPORT_FOLDER", "REPORT_PAGE", "ArtefactFailed", "Brief", "Library"]

SCAN_EVERY_S: Final = 2.0
SCAN_REST: Final = 10.0
NUMBERS_KEPT: Final = 32
"""Whole numbers of runs: up to some MB each, for a run of a day."""
CHECKS_MAX: Final = 1_000
BRIEFS_KEPT: Final = 100_000
ARTEFACTS: Final = {"report.html": "page", "trace.json": "trace"}
"""Files that are made when somebody asks for them, by which reporter."""
REPORT_FOLDER: Final = ".report"
REPORT_PAGE: Final = "report.html"
_WAIT_S: Final = 60.0

T = TypeVar("T")


class ArtefactFailed(Exception):  # noqa: N818 - the answer is a page that says so
    """An artefact cannot be made; the text says why."""


class Brief(msgspec.Struct, frozen=True, gc=False):
    """What trends need of a run; `None` where the history cannot say."""

    ok_per_s: float | None
    p99_ns: int | None


_Stamp = tuple[int, int, int]


class _Kept(Generic[T]):
    """The latest things by run, each as long as its history has the same stamp."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._things: OrderedDict[str, tuple[_Stamp, T]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str, stamp: _Stamp) -> T | None:
        with self._lock:
            found = self._things.get(key)
            if found is None or found[0] != stamp:
                return None
            self._things.move_to_end(key)
            return found[1]

    def put(self, key: str, stamp: _Stamp, thing: T) -> None:
        with self._lock:
            self._things[key] = (stamp, thing)
            while len(self._things) > self._most:
                self._things.popitem(last=False)


class Library:
    """One store. Safe to use from many threads."""

    def __init__(self, store: Path) -> None:
        """Nothing is read before it is asked for."""
        self.store = store
        self._cache = ScanCache()
        self._index: Index | None = None
        self._rows: dict[str, RunRow] = {}
        self._next_scan_s = 0.0
        self._scanning = threading.Lock()
        self._making = threading.Lock()
        self._numbers: _Kept[RunNumbers] = _Kept(NUMBERS_KEPT)
        self._briefs: _Kept[Brief] = _Kept(BRIEFS_KEPT)

    def index(self) -> Index:
        """The rows of all runs, at most a moment old; raises `UsageError` for a lost store."""
        with self._scanning:
            now_s = time.monotonic()
            if self._index is None or now_s >= self._next_scan_s:
                self._index = scan(self.store, self._cache)
                self._rows = {row.key: row for row in self._index.rows}
                took_s = time.monotonic() - now_s
                self._next_scan_s = time.monotonic() + max(SCAN_EVERY_S, took_s * SCAN_REST)
            return self._index

    def row(self, key: str) -> RunRow | None:
        """The run "name/run", if there is such a one."""
        self.index()
        return self._rows.get(key)

    def folder(self, row: RunRow) -> Path:
        """Where a run lies; raises `NotThere` for names that cannot stand in an address."""
        if not (is_plain_name(row.name) and is_plain_name(row.run)):
            raise NotThere
        folder = self.store / row.name / row.run
        if folder.is_symlink() or folder.parent.is_symlink() or not folder.is_dir():
            raise NotThere
        return folder

    # --- numbers -----------------------------------------------------------------------------

    def numbers(self, row: RunRow) -> RunNumbers:
        """The numbers of a run; raises `HistoryError`."""
        stamp = self._stamp(row)
        made = self._numbers.get(row.key, stamp)
        if made is None:
            made = run_numbers(self._sealed(row))
            self._numbers.put(row.key, stamp, made)
            self._briefs.put(row.key, stamp, Brief(made.ok_per_s, made.p99_ns))
        return made

    def briefs(self, rows: Iterable[RunRow], *, time_limit_s: float) -> dict[str, Brief]:
        """Rate and latency of as many of `rows` as can be had within a moment, by key.

        Runs that cannot be read have a brief of nothing. Asking again goes on where this stopped.
        """
        import pyarrow.parquet  # noqa: F401 - the first time takes a second that is not theirs

        deadline_s = time.monotonic() + time_limit_s
        made: dict[str, Brief] = {}
        for row in rows:
            try:
                stamp = self._stamp(row)
            except HistoryError:
                made[row.key] = Brief(None, None)
                continue
            found = self._briefs.get(row.key, stamp)
            if found is not None:
                made[row.key] = found
            elif time.monotonic() < deadline_s:
                made[row.key] = self._brief(row, stamp)
        return made

    def _brief(self, row: RunRow, stamp: _Stamp) -> Brief:
        try:
            numbers = run_numbers(self._sealed(row))
            brief = Brief(numbers.ok_per_s, numbers.p99_ns)
        except HistoryError:
            brief = Brief(None, None)
        self._briefs.put(row.key, stamp, brief)
        return brief

    def _sealed(self, row: RunRow) -> Path:
        try:
            return self.folder(row)
        except NotThere as error:
            raise HistoryError(f"the run {row.key} has no folder any more") from error

    def _stamp(self, row: RunRow) -> _Stamp:
        try:
            found = (self.store / row.name / row.run / "history.parquet").lstat()
        except (OSError, ValueError) as error:
            raise HistoryError("there is no sealed history") from error
        return found.st_ino, found.st_mtime_ns, found.st_size

    # --- artefacts ---------------------------------------------------------------------------

    def make(self, row: RunRow, file: str) -> None:
        """Make an artefact unless one that is newer than the run lies there.

        Raises `ArtefactFailed`. One at a time: a page of a long run takes seconds and memory.
        """
        folder, reporter = self.folder(row), ARTEFACTS[file]
        if _is_newer(folder, file):
            return
        link = first_link(folder)
        if link is not None:
            # What a reporter reads goes into its page: a link could bring in any file of ours.
            raise ArtefactFailed(f"the run holds the link {link!r}, and links are not followed")
        if reporter not in plugin_names("reporters"):
            raise ArtefactFailed(f"the reporter {reporter!r} is not installed")
        if not self._making.acquire(timeout=_WAIT_S):
            raise ArtefactFailed("others are being made; try again in a moment")
        try:
            if not _is_newer(folder, file):
                made: Reporter = load_plugin("reporters", reporter)
                made.write(folder)
        except (HarnessError, OSError) as error:
            raise ArtefactFailed(str(error)) from error
        except Exception as error:
            raise ArtefactFailed(f"the reporter {reporter!r} failed: {error!r}") from error
        finally:
            self._making.release()

    def has_report(self) -> bool:
        """Whether `harness report` left its page in the store."""
        try:
            os.close(self.report_file((REPORT_PAGE,)))
        except NotThere:
            return False
        return True

    def reported_checks(self, row: RunRow) -> tuple[CheckResult, ...]:
        """What the last `harness report` found of a run; nothing where it knows nothing of it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with os.fdopen(self.report_file(("tables", "verdicts.parquet")), "rb") as file:
                columns = ["checker", "verdict", "reason"]
                found = pq.read_table(file, columns=columns, filters=[("run", "=", row.key)])
            return tuple(
                CheckResult(one["checker"], Verdict(one["verdict"]), one["reason"])
                for one in found.slice(0, CHECKS_MAX).to_pylist()
            )
        except (NotThere, OSError, pa.ArrowException, ValueError, KeyError):
            return ()

    def report_file(self, parts: tuple[str, ...]) -> int:
        """The descriptor of a file that `harness report` left; raises `NotThere`."""
        folder = self.store / REPORT_FOLDER
        if folder.is_symlink():
            raise NotThere
        return open_below(folder, parts)


def _is_newer(folder: Path, file: str) -> bool:
    """Whether the artefact is a plain file, no older than what it is made from."""
    try:
        made = (folder / file).lstat()
    except OSError:
        return False
    sources = [folder / name for name in ("run.json", "results.json", "history.parquet", "ops.log")]
    times = [os.lstat(path).st_mtime_ns for path in sources if os.path.lexists(path)]
    newest = max(times, default=0)
    return not (folder / file).is_symlink() and made.st_mtime_ns >= newest
