"""Makes a report's links to pages of runs and to lists in `harness serve`, and its commands."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

import pyarrow.compute as pc

from harness.case import replay_command
from results.lake.log.refusals import is_seen
from results.lake.transfer.folders import FOLDERS
from results.report import REPORT_FOLDER

if TYPE_CHECKING:
    from results.lake.log.snapshot import Snapshot

REMOTE_OUTPUT: Final = Path("lake-report")
_PAGE: Final = "report.html"
_CASE: Final = "case.json"


def default_output(place: str) -> Path:
    """Return a report's default folder: inside the store or lake, or `lake-report` for a bucket."""
    return REMOTE_OUTPUT if "://" in place else Path(place) / REPORT_FOLDER


def short(run: str) -> str:
    """Return the `NAME/ID` in a run's key. A `NAME/ID` is unique within a store."""
    return run.rpartition("@")[0] or run


def folder_in(store: Path, run: str) -> Path:
    """Return the folder of the run `NAME/ID`, even if `store` is itself the folder `NAME`."""
    beside = store / run.rpartition("/")[2]
    return beside if is_seen(beside / _CASE) else store / run


class Addresses:
    """Makes links to runs, and commands that repeat runs, for the runs of a store or a lake."""

    def __init__(
        self, place: str, snapshot: Snapshot, output: Path, *, store: Path | None = None
    ) -> None:
        """Prepare links for a report of `place`, the store or lake as the user named it.

        Runs of a store are named `NAME/ID`, runs of a lake by their keys.
        """
        self._place = place.rstrip("/")
        self._snapshot = snapshot
        self._store = store
        self._output = output
        self._remote = "://" in place
        self._served = not self._remote and output.resolve() == default_output(place).resolve()
        self._kept: dict[str, bool] | None = None

    def link(self, run: str) -> str:
        """Return the address of a run's page, or of its folder; empty if the run has neither."""
        if self._store is not None:
            folder = folder_in(self._store, run)
            page = _PAGE if (folder / _PAGE).is_file() else ""
            return quote(f"{os.path.relpath(folder, self._output)}/{page}")
        has_page = self._keeps(run)
        if has_page is None:
            return ""
        way = self._place if self._remote else os.path.relpath(self._place, self._output)
        return quote(f"{way}/{FOLDERS}/{run}/{_PAGE if has_page else ''}", safe=":/@")

    def runs(self, **fields: str | None) -> str:
        """Return the address of a list of runs in `harness serve`.

        The address is empty if `harness serve` does not serve this report.
        """
        return served_runs(fields) if self._served else ""

    def replay(self, run: str, environment: str | None) -> str:
        """Return a command that runs a run's case again, or that fetches the run's folder."""
        if self._store is not None:
            return replay_command(folder_in(self._store, run) / _CASE, environment)
        if self._keeps(run) is not None and not self._remote:
            return replay_command(Path(self._place) / FOLDERS / run / _CASE, environment)
        lake, key = shlex.quote(self._place), shlex.quote(run)
        return f"harness lake export {lake} --store again --run {key}"

    def _keeps(self, run: str) -> bool | None:
        """Whether a run's folder in the lake has a page; `None` if the lake keeps no folder."""
        if self._kept is None:
            self._kept = self._look()
        return self._kept.get(run)

    def _look(self) -> dict[str, bool]:
        kept = self._snapshot.dataset("runs").to_table(
            ["run"], filter=~pc.field("folder").is_null()
        )
        return {
            run: self._remote or (Path(self._place) / FOLDERS / run / _PAGE).is_file()
            for run in kept["run"].to_pylist()
        }


def served_runs(fields: Mapping[str, str | None]) -> str:
    """Return a link from a report to the list of runs with these `fields` in `harness serve`."""
    return f"../?{urlencode({name: value or '(none)' for name, value in fields.items()})}"
