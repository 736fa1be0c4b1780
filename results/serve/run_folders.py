"""Finds the folder of a run in a store, or rebuilds it from the rows of a lake.

For a run of a lake, the server makes the same folder as `harness lake export`, including the files
that the lake keeps of runs that are not valid. Rebuilt folders are temporary: only the
`FOLDERS_KEPT` most recently requested folders are kept.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import shlex
import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyarrow import fs

from harness.case import replay_command
from harness.errors import HistoryError, UsageError
from harness.store import RunFolder
from harness.store.folder import check_name
from results.lake.log.duckdb_views import readable, source_of
from results.lake.log.files import BATCH, KEY, MAIN
from results.lake.log.storage_errors import troubles
from results.lake.tables.rebuild import HISTORY_TABLES, case_of, history_of, record_of
from results.lake.transfer.folders import ARCHIVE, BYTES_MAX, FOLDERS, folder_of, unpack
from results.serve.paths import FILES_MAX, NotThere, files_below, is_plain_name, open_below
from results.serve.run_rows import RunRow

if TYPE_CHECKING:
    from results.lake.log.snapshot import Snapshot
    from results.serve.runs import Runs

ARTEFACTS: Final = {"report.html": "page", "trace.json": "trace"}
"""Files of a run that the server makes on request, each with the reporter that makes the file."""
FOLDERS_KEPT: Final = 64
HOLD_S: Final = 2.0
LINES_MAX: Final = 1_000_000
"""The maximum number of lines of a rebuilt history. The rebuild then needs about 1 GB of memory."""
PIECE_BYTES: Final = 1 << 20


class Command(msgspec.Struct, frozen=True):
    """A command that repeats or exports a run. `word` is its label, and `text` the command line."""

    word: str
    text: str


class Folders(ABC):
    """Returns the folders of runs, and the commands that repeat runs."""

    @abstractmethod
    def folder(self, row: RunRow) -> Path:
        """Return a folder with the files of a run.

        Raises `NotThere` if the run must not be shown, and `HarnessError` if the folder cannot be
        made.
        """

    @abstractmethod
    def open(self, row: RunRow, parts: Sequence[str]) -> int:
        """Open a file in the run's folder; return its descriptor. Raises the errors of `folder`."""

    @abstractmethod
    def command(self, row: RunRow) -> Command | None:
        """Return the command that repeats the run; `None` if there is none."""


class StoreFolders(Folders):
    """Run folders of a store: `STORE/NAME/RUN`."""

    def __init__(self, store: Path) -> None:
        self._store = store

    def folder(self, row: RunRow) -> Path:
        """Return the run's folder in the store; raise `NotThere` for a missing folder or a link."""
        if not (is_plain_name(row.name) and is_plain_name(row.run)):
            raise NotThere
        folder = self._store / row.name / row.run
        if folder.is_symlink() or folder.parent.is_symlink() or not folder.is_dir():
            raise NotThere
        return folder

    def open(self, row: RunRow, parts: Sequence[str]) -> int:
        """Open a file in the run's folder in the store, and return its descriptor."""
        return open_below(self._store, (row.name, row.run, *parts))

    def command(self, row: RunRow) -> Command | None:
        """Return the command that runs the run's case again; `None` for an incomplete run."""
        if row.seed is None or not row.environment:
            return None
        case = self._store / row.name / row.run / "case.json"
        return Command("Replay", replay_command(case, row.environment))


class LakeRows:
    """Reads the rows of one run from any table of a lake."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._held: tuple[float, int, Snapshot] | None = None

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the lake, cached briefly, so that two compared runs share it."""
        with self._runs.using:
            now_s, version = time.monotonic(), self._runs.version
            if self._held is None or now_s >= self._held[0] or version != self._held[1]:
                self._held = (now_s + HOLD_S, version, self._runs.lake.snapshot())
            return self._held[2]

    def of(self, snapshot: Snapshot, table: str, row: RunRow, batch: str | None = None) -> Any:
        """Read the rows of a run in a table, from the files that may have such rows.

        With `batch`, read only merged files and the files of this append.
        """
        day = dt.date.fromisoformat(row.started[:10]) if row.started else None
        files = [
            file
            for file in snapshot.files(table)
            if file.partition == (row.target, row.label, day)
            and file.first_run <= row.lake_run <= file.last_run
            and (batch is None or file.batch in {None, batch})
        ]
        narrowed = dataclasses.replace(
            snapshot, tables={table: tuple(files)}, between=(row.lake_run, f"{row.lake_run}\0")
        )
        schema = narrowed.schemas[table]
        with self._runs.cursor() as sql, readable(snapshot.place.uri):
            source = source_of(sql, narrowed, table, schema.names)
            relation = sql.sql(f"FROM {source} WHERE {KEY} = ?", params=[row.lake_run])
            return relation.to_arrow_table().cast(schema)


class LakeFolders(Folders):
    """Run folders of a lake, rebuilt in `scratch`."""

    def __init__(self, runs: Runs, rows: LakeRows, scratch: Path) -> None:
        self._rows = rows
        self._place = runs.lake.place
        self._scratch = scratch
        self._folders: OrderedDict[str, Path] = OrderedDict()
        self._exporting = threading.Lock()
        self._made = 0

    def folder(self, row: RunRow) -> Path:
        """Return the rebuilt folder of a run; raise `HistoryError` if its rows form no run."""
        if not (is_plain_name(row.name) and is_plain_name(row.run)):
            raise NotThere
        with self._exporting:
            folder = self._folders.get(row.key)
            if folder is None:
                folder = self._folders[row.key] = self._export(row)
            self._folders.move_to_end(row.key)
            while len(self._folders) > FOLDERS_KEPT:
                _, oldest = self._folders.popitem(last=False)
                shutil.rmtree(oldest.parent.parent, ignore_errors=True)
            return folder

    def open(self, row: RunRow, parts: Sequence[str]) -> int:
        """Open a file in the run's rebuilt folder, and return its descriptor."""
        return open_below(self.folder(row), parts)

    def command(self, row: RunRow) -> Command:
        """Return a replay command if the run's case is on this machine, else an export command."""
        place = self._place.uri
        if self._place.local and row.environment and is_plain_name(row.run):
            kept = Path(place) / folder_of(row.key) / "case.json"
            if is_plain_name(row.name) and kept.is_file():
                return Command("Replay", replay_command(kept, row.environment))
        words = f"harness lake export {shlex.quote(place)} --store again --run "
        return Command("Export its folder", words + shlex.quote(row.key))

    def _export(self, row: RunRow) -> Path:
        snapshot = self._rows.snapshot()
        matches = self._rows.of(snapshot, MAIN, row).to_pylist()
        if not matches:
            raise NotThere
        if (matches[0]["lines"] or 0) > LINES_MAX:
            raise HistoryError(
                f"the history has {matches[0]['lines']} lines, and a page shows at most "
                f"{LINES_MAX}; use `harness lake export`"
            )
        batch = matches[0][BATCH]
        rows = {name: self._rows.of(snapshot, name, row, batch) for name in HISTORY_TABLES}
        history = history_of(rows, digest=matches[0]["digest"])
        record = record_of(matches[0])
        self._made += 1
        names = (_folder_name(matches[0][name]) for name in ("name", "id"))
        made = RunFolder(self._scratch / str(self._made), *names, staged=True)
        try:
            made.write_case(case_of(matches[0]))
            made.seal(history, label=row.label)
            if record is not None:
                made.finish(record)
            if matches[0]["folder"] is not None:
                # copied last, so that a kept page is not older than its sources
                self._fetch(row, made.path)
            return made.publish(latest=False)
        except BaseException:
            made.discard()
            raise

    def _fetch(self, row: RunRow, to: Path) -> None:
        """Copy the files that the lake keeps of a run. Existing files stay.

        Links are not followed, since a lake may come from an untrusted place.
        """
        if self._place.local:
            kept = Path(self._place.uri) / folder_of(row.key)
            if any(path.is_symlink() for path in (kept, kept.parent, kept.parent.parent)):
                return
            entries, cut = files_below(kept)
            sizes = [(entry.path, entry.size) for entry in entries]
        else:
            sizes, cut = self._stored(folder_of(row.key)), False
        if cut or len(sizes) > FILES_MAX or sum(size for _, size in sizes) > BYTES_MAX:
            raise HistoryError(
                f"the lake's folder of {row.key} has more than {FILES_MAX} files or {BYTES_MAX} "
                "bytes, which no release of the harness writes"
            )
        # Copy derived artefacts last, so that they are no older than their sources.
        for path, _ in sorted(sizes, key=lambda item: item[0] in ARTEFACTS):
            if not (to / path).exists():
                (to / path).parent.mkdir(parents=True, exist_ok=True)
                self._copy(row, path, to / path)
            if path == ARCHIVE:
                unpack(to)

    def _stored(self, folder: str) -> list[tuple[str, int]]:
        """List the files below a prefix, with sizes, but only names that an address may have."""
        with troubles(self._place.uri):
            infos = self._place.files.get_file_info(
                fs.FileSelector(folder, recursive=True, allow_not_found=True)
            )
        named = [(info.path.removeprefix(f"{folder}/"), info) for info in infos]
        return [
            (path, info.size)
            for path, info in named
            if info.type == fs.FileType.File and all(map(is_plain_name, path.split("/")))
        ]

    def _copy(self, row: RunRow, path: str, to: Path) -> None:
        place = self._place
        if place.local:
            parts = (FOLDERS, row.name, row.run, *path.split("/"))
            source: Any = os.fdopen(open_below(Path(place.uri), parts), "rb")
        else:
            with troubles(place.uri):
                source = place.files.open_input_stream(f"{folder_of(row.key)}/{path}")
        with troubles(place.uri), source, to.open("wb") as sink:
            shutil.copyfileobj(source, sink, PIECE_BYTES)


def _folder_name(name: str) -> str:
    """Return `name`, or "run" if `RunFolder` rejects it. Foreign stores may have odd names."""
    try:
        check_name(name, "run")
    except UsageError:
        return "run"
    return name
