"""The data behind all pages: the runs of a store or lake, with their verdicts and files.

The list of runs is a table in DuckDB (`results.serve.runs`). The folder of a run is in the store,
or is rebuilt from a lake (`results.serve.run_folders`). This module keeps a bounded cache of the
numbers and verdicts of runs.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.case import Case
from harness.errors import HarnessError, HistoryError
from harness.ops import CheckResult, Verdict
from harness.plugins import Reporter
from harness.registry import load_plugin, plugin_names
from harness.verdict.known import NONE_KNOWN, KnownFailures
from results.facts.run_numbers import RunNumbers, run_numbers
from results.judging.chosen_results import counting
from results.judging.result_lake import ResultLake
from results.lake.log.files import BATCH, MAIN
from results.lake.transfer.ingest import Ingested
from results.questions.ignored import NONE_IGNORED, Ignored, ignored_parts
from results.report import REPORT_FOLDER
from results.serve.compare import checks_of
from results.serve.paths import (
    FileEntry,
    NotThere,
    files_below,
    first_link,
    open_below,
    read_bounded,
)
from results.serve.run_folders import ARTEFACTS, LakeFolders, LakeRows, StoreFolders
from results.serve.run_rows import RunRow
from results.serve.runs import Reading, Runs

NUMBERS_KEPT: Final = 32
"""The maximum number of runs with cached numbers. The numbers of a day-long run take some MB."""
RECORDED_KEPT: Final = 1_000
CHECKS_MAX: Final = 1_000
CASE_BYTES_MAX: Final = 8 << 20
REPORT_PAGE: Final = "report.html"
_WAIT_S: Final = 60.0

_Stamp = tuple[int, int, int]


class ArtefactFailed(Exception):  # noqa: N818 - the answer is a page that says so
    """A file such as `report.html` cannot be made. The error's text says why."""


class Library:
    """The runs of a store or a lake. Safe to use from many threads."""

    def __init__(
        self,
        place: str,
        *,
        progress: Callable[[Ingested], None] = lambda _: None,
        known: KnownFailures = NONE_KNOWN,
    ) -> None:
        """Read the list of runs. `progress` gets the progress of a store's ingest into its lake.

        Pages mark the failures that `known` lists. Raises `UsageError` if there is neither a store
        nor a lake of the harness, or if access is refused. Raises `InfrastructureError` if the
        storage does not answer.
        """
        self.known = known
        self._scratch = Path(tempfile.mkdtemp(prefix="harness-serve-"))
        try:
            self._runs = Runs(place, self._scratch / "duckdb", progress)
        except BaseException:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise
        lake, store = self._runs.lake, self._runs.store
        self.kind = "lake" if store is None else "store"
        self.place = lake.place.uri if store is None else str(store)
        self._rows = LakeRows(self._runs)
        self.folders = (
            LakeFolders(self._runs, self._rows, self._scratch)
            if store is None
            else StoreFolders(store)
        )
        local = lake.place.local or store is not None
        self._report = Path(self.place) / REPORT_FOLDER if local else None
        self._making = threading.Lock()
        self._keeping = threading.Lock()
        self._numbers: OrderedDict[str, tuple[_Stamp, RunNumbers]] = OrderedDict()
        self._recorded: OrderedDict[str, tuple[CheckResult, ...]] = OrderedDict()

    def reading(self) -> AbstractContextManager[Reading]:
        """Open the table of runs, which is updated in the background (`Runs.reading`)."""
        return self._runs.reading()

    def row(self, key: str) -> RunRow | None:
        """Return the run with this key ("name/run"), or `None` if it does not exist."""
        with self.reading() as found:
            return found.run(key)

    def ignored(self, parts: Sequence[str]) -> Ignored:
        """Return the hashes of all settings without `parts`, as in `harness report --ignore`."""
        return ignored_parts(self._rows.snapshot(), parts) if parts else NONE_IGNORED

    def close(self) -> None:
        """Close the table of runs, and remove temporary files."""
        self._runs.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    # --- one run -----------------------------------------------------------------------------

    def checks(self, row: RunRow) -> tuple[tuple[CheckResult, ...], str | None]:
        """Return a run's verdicts, and a note on their source or on why there are none."""
        try:
            checks, trouble = checks_of(self.folders.folder(row))
        except HistoryError as error:
            checks, trouble = (), str(error)
        if checks or not row.lake_run:
            return checks, trouble
        try:
            for whose, find in (
                ("the verdicts that the run recorded", self._recorded_checks),
                ("the verdicts of the last harness report", self._judged),
            ):
                if result := find(row):
                    return result, f"there is no results.json: these are {whose}"
        except HarnessError as error:
            return (), str(error)
        return (), trouble

    def _recorded_checks(self, row: RunRow) -> tuple[CheckResult, ...]:
        checks = self._recorded.get(row.lake_run)
        if checks is None:
            recorded = self._rows.of(self._rows.snapshot(), "verdicts", row)
            checks = self._recorded[row.lake_run] = _checks(recorded.to_pylist())
            while len(self._recorded) > RECORDED_KEPT:
                self._recorded.popitem(last=False)
        return checks

    def _judged(self, row: RunRow) -> tuple[CheckResult, ...]:
        place = self._runs.lake.place
        with self._runs.using:
            results = ResultLake.beside(place.uri, place.options)
            snapshot = None if results is None else results.snapshot()
        if snapshot is None:
            return ()
        verdicts = self._rows.of(snapshot, "verdicts", row)
        listed = counting(
            runs=self._rows.of(self._rows.snapshot(), MAIN, row),
            results=self._rows.of(snapshot, MAIN, row),
            verdicts=verdicts,
        )
        counted = {
            (record[BATCH], record["result_id"])
            for record in listed.to_pylist()
            if record["counts"]
        }
        rows = [
            record
            for record in verdicts.to_pylist()
            if (record[BATCH], record["result_id"]) in counted
        ]
        return _checks(rows)

    def case(self, row: RunRow) -> Case | None:
        """Read the case of a run; return `None` if it cannot be read."""
        try:
            content = read_bounded(self.folders.folder(row) / "case.json", CASE_BYTES_MAX)
            return msgspec.json.decode(content, type=Case)
        except (NotThere, HarnessError, OSError, ValueError, RecursionError):
            return None

    def files(self, row: RunRow) -> tuple[list[FileEntry], bool]:
        """List the files of a run by name; also return whether the list is incomplete."""
        try:
            return files_below(self.folders.folder(row))
        except HistoryError:
            return [], False

    def numbers(self, row: RunRow) -> RunNumbers:
        """Return the numbers of a run, if possible from the cache; may raise `HistoryError`."""
        try:
            folder = self.folders.folder(row)
        except NotThere as error:
            raise HistoryError(f"the run {row.key} no longer has a folder") from error
        stamp = _stamp(folder)
        kept = self._numbers.get(row.key)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        made = run_numbers(folder)
        with self._keeping:
            self._numbers[row.key] = (stamp, made)
            while len(self._numbers) > NUMBERS_KEPT:
                self._numbers.popitem(last=False)
        return made

    # --- artefacts ---------------------------------------------------------------------------

    def make(self, row: RunRow, file: str) -> None:
        """Make the `file` of a run (page or trace), unless it exists and is newer than its sources.

        Raises `ArtefactFailed`. Files are made one at a time, because the page of a long run takes
        seconds and a lot of memory.
        """
        folder, reporter = self.folders.folder(row), ARTEFACTS[file]
        if _is_newer(folder, file):
            return
        link = first_link(folder)
        if link is not None:
            # The page would include the file behind the link, which may be any file of this
            # machine.
            raise ArtefactFailed(f"the run holds the link {link!r}, and links are not followed")
        if reporter not in plugin_names("reporters"):
            raise ArtefactFailed(f"the reporter {reporter!r} is not installed")
        if not self._making.acquire(timeout=_WAIT_S):
            raise ArtefactFailed("the server is busy with other pages; try again in a moment")
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
        """Whether the page of `harness report` is in its default folder."""
        try:
            os.close(self.report_file((REPORT_PAGE,)))
        except NotThere:
            return False
        return True

    def report_file(self, parts: Sequence[str]) -> int:
        """Open a file of the last `harness report`; return its descriptor, or raise `NotThere`.

        A lake in a bucket never has such a file, because `harness report` writes it elsewhere.
        """
        if self._report is None or self._report.is_symlink():
            raise NotThere
        return open_below(self._report, parts)

    @property
    def is_remote(self) -> bool:
        """Whether the runs are in a bucket."""
        return self._report is None


def _checks(rows: Sequence[dict[str, Any]]) -> tuple[CheckResult, ...]:
    results: dict[str, CheckResult] = {}
    for row in rows:
        if row["key"] is None:
            try:
                verdict = Verdict(row["verdict"])
            except ValueError:
                continue
            results[row["checker"]] = CheckResult(row["checker"], verdict, row["reason"] or "")
    return tuple(list(results.values())[:CHECKS_MAX])


def _stamp(folder: Path) -> _Stamp:
    try:
        stat = (folder / "history.parquet").lstat()
    except (OSError, ValueError) as error:
        raise HistoryError("the run has no sealed history") from error
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _is_newer(folder: Path, file: str) -> bool:
    try:
        made = (folder / file).lstat()
    except OSError:
        return False
    sources = [folder / name for name in ("run.json", "results.json", "history.parquet", "ops.log")]
    times = [os.lstat(path).st_mtime_ns for path in sources if os.path.lexists(path)]
    newest = max(times, default=0)
    return not (folder / file).is_symlink() and made.st_mtime_ns >= newest
