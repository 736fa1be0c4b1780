"""A lake as the pages see it: its runs in memory, and folders of runs made when asked for.

The list and all that counts runs is answered by columns of the table `runs`
(`results.serve.lake_index`). Whoever looks at one run gets its folder made again from its rows, as
`harness lake export` does, with what the lake keeps of a run that is not valid; so its page, its
numbers, its files and its trace are those of a store. Folders lie in a temporary place, the last
`FOLDERS_KEPT` that were asked for.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import shlex
import shutil
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.case import replay_command
from harness.errors import HistoryError, UsageError
from harness.ops import CheckResult, Verdict
from harness.store import RunFolder
from harness.store.folder import check_name
from results.judging.result_lake import RUN_BATCH, ResultLake
from results.lake.log.files import BATCH, KEY, MAIN
from results.lake.log.lake import Lake
from results.lake.log.storage_errors import troubles
from results.lake.tables.rebuild import HISTORY_TABLES, case_of, history_of, record_of
from results.lake.transfer.folders import ARCHIVE, BYTES_MAX, FOLDERS, folder_of, unpack
from results.report import REPORT_FOLDER
from results.serve.groups import FINISHED
from results.serve.lake_index import QUICK, LakeIndex
from results.serve.library import ARTEFACTS, Command, Library, Pace
from results.serve.paths import FILES_MAX, NotThere, files_below, open_below
from results.serve.run_index import RunRow, is_plain_name
from results.serve.run_table import RunTable

if TYPE_CHECKING:
    from results.facts.intervals import Ints
    from results.lake.log.snapshot import Snapshot

__all__ = ["LakeLibrary"]

FOLDERS_KEPT: Final = 64
HOLD_S: Final = 2.0
LINES_MAX: Final = 1_000_000
"""Lines of a history that is made again: about 1 GB of memory meanwhile."""
CHECKS_MAX: Final = 1_000
RECORDED_KEPT: Final = 1_000
PIECE_BYTES: Final = 1 << 20


class LakeLibrary(Library):
    """One lake, in a folder or in object storage."""

    kind = "lake"
    faults_are = "faults injected"
    pace_words = ("operations ok a second of the run", "p99 of their latency, ms")
    pace_note = (
        "Operations ok a second are medians over all finished runs, of the whole run, on its own "
        "clock; a p99 would take all their operations, which harness report LAKE reads."
    )

    def __init__(self, uri: str) -> None:
        """Read which runs there are.

        Raises `UsageError` where there is no lake or none of ours, or where we are refused;
        `InfrastructureError` where the storage does not answer.
        """
        self._lake = Lake.open(uri)
        self._lake.patience = QUICK
        super().__init__(self._lake.place.uri)
        self._using = threading.Lock()  # a lake is for one thread at a time
        self._index = LakeIndex(self._lake, self._using)
        self._scratch = Path(tempfile.mkdtemp(prefix="harness-serve-"))
        self._folders: OrderedDict[str, Path] = OrderedDict()
        self._exporting = threading.Lock()
        self._held: tuple[float, int, Snapshot] | None = None
        self._made = 0
        self._recorded: OrderedDict[str, tuple[CheckResult, ...]] = OrderedDict()

    def table(self) -> RunTable:
        """See `Library`."""
        return self._index.table()

    def folder(self, row: RunRow) -> Path:
        """See `Library`; raises `HistoryError` for rows that make no run."""
        if not (is_plain_name(row.name) and is_plain_name(row.run)):
            raise NotThere
        with self._exporting:
            found = self._folders.get(row.key)
            if found is None:
                found = self._export(row)
                self._folders[row.key] = found
            self._folders.move_to_end(row.key)
            while len(self._folders) > FOLDERS_KEPT:
                _, oldest = self._folders.popitem(last=False)
                shutil.rmtree(oldest.parent.parent, ignore_errors=True)
            return found

    def open(self, row: RunRow, parts: Sequence[str]) -> int:
        """See `Library`."""
        return open_below(self.folder(row), parts)

    def command(self, row: RunRow) -> Command:
        """See `Library`: of the kept case if it lies on this machine, else for the folder."""
        if self._lake.place.local and row.environment and is_plain_name(row.run):
            kept = Path(self.place) / folder_of(row.key) / "case.json"
            if is_plain_name(row.name) and kept.is_file():
                return Command("Replay", replay_command(kept, row.environment))
        words = f"harness lake export {shlex.quote(self.place)} --store again --run "
        return Command("Its folder again", words + shlex.quote(row.key))

    def paces(
        self, table: RunTable, groups: Sequence[Ints], *, time_limit_s: float
    ) -> tuple[list[Pace], list[str]]:
        """Medians over all finished runs, of what the table `runs` says."""
        import numpy as np

        del time_limit_s
        rates = table.numbers["ok_per_s"].to_numpy(zero_copy_only=False)
        finished = table.texts["outcome"].that(lambda outcome: outcome in FINISHED)
        counted = finished & table.numbers["ok_per_s"].is_valid().to_numpy(zero_copy_only=False)
        found = []
        for rows in groups:
            known = rates[rows[counted[rows]]]
            median = float(np.median(known)) if len(known) else None
            found.append(Pace(len(known), median, None))
        return found, []

    def report_folder(self) -> tuple[Path, str] | None:
        """Beside the tables; a report on a lake in a bucket lies where it was made."""
        return (Path(self.place), REPORT_FOLDER) if self._lake.place.local else None

    def close(self) -> None:
        """See `Library`."""
        shutil.rmtree(self._scratch, ignore_errors=True)

    # --- one run -----------------------------------------------------------------------------

    def _snapshot(self) -> Snapshot:
        """All tables, at most a moment older than the index: two runs side by side need one."""
        with self._using:
            now_s, version = time.monotonic(), self._index.version
            if self._held is None or now_s >= self._held[0] or version != self._held[1]:
                self._held = (now_s + HOLD_S, version, self._lake.snapshot())
            return self._held[2]

    def _rows_of(
        self, snapshot: Snapshot, table: str, row: RunRow, batch: str | None = None
    ) -> Any:
        """The rows of a run in a table, read from the files that may have them.

        With `batch`, only from those of that append and merged ones.
        """
        import pyarrow.compute as pc

        day = dt.date.fromisoformat(row.started[:10]) if row.started else None
        files = [
            file
            for file in snapshot.files(table)
            if file.partition == (row.target, row.label, day)
            and file.first_run <= row.key <= file.last_run
            and (batch is None or file.batch in {None, batch})
        ]
        narrowed = dataclasses.replace(snapshot, tables={table: tuple(files)})
        with troubles(self.place):
            return narrowed.dataset(table).to_table(filter=pc.field(KEY) == row.key)

    def _export(self, row: RunRow) -> Path:
        """Make the folder of a run."""
        snapshot = self._snapshot()
        found = self._rows_of(snapshot, MAIN, row).to_pylist()
        if not found:
            raise NotThere
        if (found[0]["lines"] or 0) > LINES_MAX:
            raise HistoryError(
                f"the history has {found[0]['lines']} lines, and here at most {LINES_MAX} are made "
                "a folder again; use `harness lake export`"
            )
        batch = found[0][BATCH]
        rows = {name: self._rows_of(snapshot, name, row, batch) for name in HISTORY_TABLES}
        history = history_of(rows, digest=found[0]["digest"])
        record = record_of(found[0])
        self._made += 1
        names = (_folder_name(found[0][name]) for name in ("name", "id"))
        made = RunFolder(self._scratch / str(self._made), *names, staged=True)
        try:
            made.write_case(case_of(found[0]))
            made.seal(history, label=row.label)
            if record is not None:
                made.finish(record)
            if found[0]["folder"] is not None:
                self._fetch(row, made.path)  # last: its page is as new as the rest
            return made.publish(latest=False)
        except BaseException:
            made.discard()
            raise

    def _fetch(self, row: RunRow, to: Path) -> None:
        """What the lake keeps of a run beside its rows; what lies there already stays.

        Links are not followed: a lake, too, may come from elsewhere.
        """
        if self._lake.place.local:
            kept = Path(self.place) / folder_of(row.key)
            if any(path.is_symlink() for path in (kept, kept.parent, kept.parent.parent)):
                return
            entries, cut = files_below(kept)
            sizes = [(entry.path, entry.size) for entry in entries]
        else:
            sizes, cut = self._stored(folder_of(row.key)), False
        if cut or len(sizes) > FILES_MAX or sum(size for _, size in sizes) > BYTES_MAX:
            raise HistoryError(
                f"the folder kept of {row.key} has more than {FILES_MAX} files or {BYTES_MAX} "
                "bytes: no release writes such"
            )
        # What is made of a run comes last: it is as new as what it is made of.
        for path, _ in sorted(sizes, key=lambda item: item[0] in ARTEFACTS):
            if not (to / path).exists():
                (to / path).parent.mkdir(parents=True, exist_ok=True)
                self._copy(row, path, to / path)
            if path == ARCHIVE:
                unpack(to)

    def _stored(self, folder: str) -> list[tuple[str, int]]:
        """The files below a prefix whose names can stand in an address."""
        from pyarrow import fs

        with troubles(self.place):
            found = self._lake.place.files.get_file_info(
                fs.FileSelector(folder, recursive=True, allow_not_found=True)
            )
        named = [(info.path.removeprefix(f"{folder}/"), info) for info in found]
        return [
            (path, info.size)
            for path, info in named
            if info.type == fs.FileType.File and all(map(is_plain_name, path.split("/")))
        ]

    def _copy(self, row: RunRow, path: str, to: Path) -> None:
        if self._lake.place.local:
            parts = (FOLDERS, row.name, row.run, *path.split("/"))
            source: Any = os.fdopen(open_below(Path(self.place), parts), "rb")
        else:
            with troubles(self.place):
                files = self._lake.place.files
                source = files.open_input_stream(f"{folder_of(row.key)}/{path}")
        with troubles(self.place), source, to.open("wb") as sink:
            shutil.copyfileobj(source, sink, PIECE_BYTES)

    # --- verdicts ----------------------------------------------------------------------------

    def reported_checks(self, row: RunRow) -> tuple[tuple[CheckResult, ...], str]:
        """Verdicts that the run recorded, or else those of the last `harness report`."""
        checks = self._recorded.get(row.key)
        if checks is None:
            recorded = self._rows_of(self._snapshot(), "verdicts", row)
            checks = self._recorded[row.key] = _checks(recorded.to_pylist())
            while len(self._recorded) > RECORDED_KEPT:
                self._recorded.popitem(last=False)
        if checks:
            return checks, "the verdicts that the run recorded"
        return self._judged(row), "the verdicts of the last harness report"

    def _judged(self, row: RunRow) -> tuple[CheckResult, ...]:
        """What reports found: of each checker the newest result that is settled."""
        with self._using:
            results = ResultLake.beside(self.place, self._lake.place.options)
            snapshot = None if results is None else results.snapshot()
        if snapshot is None:
            return ()
        batches = self._rows_of(self._snapshot(), MAIN, row)[BATCH].to_pylist()
        order: dict[tuple[str, str], tuple[bool, Any]] = {}
        for found in self._rows_of(snapshot, MAIN, row).to_pylist():
            if found[RUN_BATCH] in batches:
                for result, mark in zip(found["results"], found["marks"], strict=True):
                    order[found[BATCH], result] = (not mark, found["judged_at"])
        rows = [
            found
            for found in self._rows_of(snapshot, "verdicts", row).to_pylist()
            if (found[BATCH], found["result_id"]) in order
        ]
        rows.sort(key=lambda found: order[found[BATCH], found["result_id"]])
        return _checks(rows)


def _folder_name(name: str) -> str:
    """A name as `RunFolder` takes it: stores of others have any."""
    try:
        check_name(name, "run")
    except UsageError:
        return "run"
    return name


def _checks(rows: Sequence[dict[str, Any]]) -> tuple[CheckResult, ...]:
    """Verdicts on whole histories; of two rows of a checker the later one counts."""
    found: dict[str, CheckResult] = {}
    for row in rows:
        if row["key"] is None:
            try:
                verdict = Verdict(row["verdict"])
            except ValueError:
                continue
            found[row["checker"]] = CheckResult(row["checker"], verdict, row["reason"] or "")
    return tuple(list(found.values())[:CHECKS_MAX])
