"""Runs as the pages see them: a table of all, and of one its folder, numbers and artefacts.

Where runs come from, a store or a lake, is one of two classes below this one
(`results.serve.store_library`, `results.serve.lake_library`). Both give a table of all runs
(`results.serve.run_table`) and the folder of any of them; what is made of a folder is here, cached
within bounds. Numbers of a run hold as long as its history has the same time and size.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

import msgspec

from harness.case import Case, load_case
from harness.errors import HarnessError, HistoryError
from harness.ops import CheckResult
from harness.plugins import Reporter
from harness.registry import load_plugin, plugin_names
from results.facts.run_numbers import RunNumbers, run_numbers
from results.serve.compare import checks_of
from results.serve.paths import FileEntry, NotThere, files_below, first_link, open_below
from results.serve.run_index import RunRow
from results.serve.run_table import RunTable

if TYPE_CHECKING:
    from results.facts.intervals import Ints

__all__ = ["ARTEFACTS", "REPORT_PAGE", "ArtefactFailed", "Brief", "Command", "Library", "Pace"]

NUMBERS_KEPT: Final = 32
"""Whole numbers of runs: up to some MB each, for a run of a day."""
BRIEFS_KEPT: Final = 100_000
ARTEFACTS: Final = {"report.html": "page", "trace.json": "trace"}
"""Files that are made when somebody asks for them, by which reporter."""
REPORT_PAGE: Final = "report.html"
_WAIT_S: Final = 60.0

T = TypeVar("T")


class ArtefactFailed(Exception):  # noqa: N818 - the answer is a page that says so
    """An artefact cannot be made; the text says why."""


class Brief(msgspec.Struct, frozen=True, gc=False):
    """What trends need of a run; `None` where the history cannot say."""

    ok_per_s: float | None
    p99_ns: int | None


class Pace(msgspec.Struct, frozen=True):
    """How some runs served: medians, `None` where nothing is known, and of how many runs."""

    measured: int
    ok_per_s: float | None
    p99_ns: float | None


class Command(msgspec.Struct, frozen=True):
    """What to type to have a run again, and what it does in a word."""

    word: str
    text: str


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


class Library(ABC):
    """Runs to look at. Safe to use from many threads."""

    kind: ClassVar[str]  # store or lake
    faults_are: ClassVar[str]  # what the number of faults of a run counts
    pace_words: ClassVar[tuple[str, str]]  # titles of the plots of `paces`
    pace_note: ClassVar[str]  # of what the medians of `paces` are

    def __init__(self, place: str) -> None:
        """`place` is what the user named. Nothing is read before it is asked for."""
        self.place = place
        self._making = threading.Lock()
        self._numbers: _Kept[RunNumbers] = _Kept(NUMBERS_KEPT)
        self._briefs: _Kept[Brief] = _Kept(BRIEFS_KEPT)

    # --- what a store and a lake do in their own ways ----------------------------------------

    @abstractmethod
    def table(self) -> RunTable:
        """All runs, at most a moment old; raises `UsageError` where they are lost."""

    @abstractmethod
    def folder(self, row: RunRow) -> Path:
        """A folder with the files of a run.

        Raises `NotThere` for what may not be shown, and `HarnessError` where it cannot be had.
        """

    @abstractmethod
    def open(self, row: RunRow, parts: Sequence[str]) -> int:
        """The descriptor of a file in the run's folder; raises as `folder`."""

    @abstractmethod
    def command(self, row: RunRow) -> Command | None:
        """How to have the run again."""

    @abstractmethod
    def reported_checks(self, row: RunRow) -> tuple[tuple[CheckResult, ...], str]:
        """Verdicts of a run without `results.json`, and whose they are; nothing if none."""

    @abstractmethod
    def paces(
        self, table: RunTable, groups: Sequence[Ints], *, time_limit_s: float
    ) -> tuple[list[Pace], list[str]]:
        """How each of these groups of runs served, and what is to be said about that."""

    @abstractmethod
    def report_folder(self) -> tuple[Path, str] | None:
        """Where `harness report` leaves its page: a folder, and the name of one in it."""

    # --- all runs ----------------------------------------------------------------------------

    def row(self, key: str) -> RunRow | None:
        """The run "name/run", if there is such a one."""
        table = self.table()
        place = table.find(key)
        return None if place is None else table.row(place)

    # --- one run -----------------------------------------------------------------------------

    def checks(self, row: RunRow) -> tuple[tuple[CheckResult, ...], str | None]:
        """What checkers said: beside the run, or else what is known elsewhere; and what is not."""
        try:
            checks, trouble = checks_of(self.folder(row))
        except HistoryError as error:
            checks, trouble = (), str(error)
        if checks:
            return checks, trouble
        try:
            reported, whose = self.reported_checks(row)
        except HarnessError as error:
            return (), str(error)
        return (
            (reported, f"there is no results.json: these are {whose}")
            if reported
            else (
                (),
                trouble,
            )
        )

    def case(self, row: RunRow) -> Case | None:
        """What a run was asked for; `None` where that cannot be read."""
        try:
            # The row has a case only if the file is plain and of bounded size.
            return None if row.seed is None else load_case(self.folder(row) / "case.json")
        except HarnessError:
            return None

    def files(self, row: RunRow) -> tuple[list[FileEntry], bool]:
        """The files of a run by name, and whether there are more."""
        try:
            return files_below(self.folder(row))
        except HistoryError:  # `checks` says it
            return [], False

    def numbers(self, row: RunRow) -> RunNumbers:
        """The numbers of a run; raises `HistoryError`."""
        folder = self._sealed(row)
        stamp = _stamp(folder)
        made = self._numbers.get(row.key, stamp)
        if made is None:
            made = run_numbers(folder)
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
                folder = self._sealed(row)
                stamp = _stamp(folder)
            except HistoryError:
                made[row.key] = Brief(None, None)
                continue
            found = self._briefs.get(row.key, stamp)
            if found is not None:
                made[row.key] = found
            elif time.monotonic() < deadline_s:
                made[row.key] = self._brief(row, folder, stamp)
        return made

    def _brief(self, row: RunRow, folder: Path, stamp: _Stamp) -> Brief:
        try:
            numbers = run_numbers(folder)
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
        """Whether `harness report` left its page where we find it."""
        try:
            os.close(self.report_file((REPORT_PAGE,)))
        except NotThere:
            return False
        return True

    def report_file(self, parts: tuple[str, ...]) -> int:
        """The descriptor of a file that `harness report` left; raises `NotThere`."""
        found = self.report_folder()
        if found is None or (found[0] / found[1]).is_symlink():
            raise NotThere
        return open_below(found[0] / found[1], parts)

    def close(self) -> None:  # noqa: B027 - a store holds nothing
        """Let go of everything."""


def _stamp(folder: Path) -> _Stamp:
    try:
        found = (folder / "history.parquet").lstat()
    except (OSError, ValueError) as error:
        raise HistoryError("there is no sealed history") from error
    return found.st_ino, found.st_mtime_ns, found.st_size


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
