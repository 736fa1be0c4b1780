"""`harness soak --lake URI`: the runs of a soak go into a lake while it runs.

A finished run is a folder of the store first, as without a lake, and its seed is journaled. Folders
wait until there are `RUNS_MAX`, or the first has waited `WAIT_S`; then all go into the lake as an
ingest takes them, and are removed. So nothing is lost that was journaled, wherever a soak is
killed: the next one finds each run in the lake or in the store.

Runs of soaks are called after their seeds: one that is there under the same id, with the same
history and verdict, is the same run, also where it ran on another day.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.errors import HarnessError, InfrastructureError, counted
from harness.store import RunRecord
from results.lake.files import KEY, MAIN
from results.lake.folders import folder_of, writer_to
from results.lake.ingest import ingest_folders
from results.lake.lake import Lake
from results.lake.schema import SCHEMA_VERSION, schemas
from results.lake.source import read_about
from results.lake.trouble import troubles
from results.store_scan import Problems, problem_lines

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LakeSink", "SoakedRuns"]

RUNS_MAX: Final = 256
WAIT_S: Final = 60.0
COLUMNS: Final = [KEY, "id", "digest", "verdict", "folder"]  # of `runs`
LAST_CHARACTER: Final = "\U0010ffff"


class LakeSink:
    """Runs of soaks in Delta tables."""

    api_version = 1
    name = "lake"
    doc = "Delta tables on a local disk or in object storage (docs/lake.md)."

    def open(
        self,
        uri: str,
        *,
        name: str,
        prefix: str,
        storage_options: Mapping[str, str] | None = None,
    ) -> SoakedRuns:
        """See `harness.plugins.SoakSink`; makes the lake where there is none."""
        lake = Lake.create_or_open(
            uri, schemas=schemas(), version=SCHEMA_VERSION, storage_options=storage_options
        )
        return SoakedRuns(lake, name=name, prefix=prefix)


class SoakedRuns:
    """The runs of one soak in a lake."""

    def __init__(self, lake: Lake, *, name: str, prefix: str) -> None:
        self.uri = lake.place.uri
        self._lake = lake
        self._name = name
        self._prefix = prefix
        self._waiting: list[Path] = []
        self._first_s = 0.0  # when the first of them came
        self._failed = False
        self._there: dict[tuple[str, str], str] = {}  # run and digest -> verdict
        self._keys: dict[str, str] = {}  # of runs whose folders the lake keeps
        self.look()

    def look(self) -> None:
        """Learn which runs of the soak the lake has."""
        import pyarrow.compute as pc

        begin = f"{self._name}/{self._prefix}"
        run = pc.field(KEY)

        def rows() -> pa.Table:
            with troubles(self.uri):
                return self._lake.dataset(MAIN).to_table(
                    columns=COLUMNS, filter=(run >= begin) & (run < f"{begin}{LAST_CHARACTER}")
                )

        self._note(self._lake.patience.call(f"read {self.uri}", rows))

    def _note(self, runs: pa.Table) -> None:
        for key, run, digest, verdict, folder in zip(
            *(runs[name].to_pylist() for name in COLUMNS), strict=True
        ):
            self._there[run, digest] = verdict
            if folder is not None:
                self._keys[run] = key

    def holds(self, run: str, digest: str, verdict: str) -> bool:
        """Whether the lake has it, appended on whichever day."""
        return self._there.get((run, digest)) == verdict

    def add(self, folder: Path) -> None:
        """Take the folder of a run that is finished."""
        if not self._waiting:
            self._first_s = time.monotonic()
        self._waiting.append(folder)
        if len(self._waiting) >= RUNS_MAX or time.monotonic() - self._first_s >= WAIT_S:
            self.flush()

    def flush(self) -> None:
        """Append all that wait; a lake that failed is not asked again."""
        if self._failed or not self._waiting:
            return
        try:
            self._append()
        except HarnessError as error:
            self._failed = True
            raise InfrastructureError(
                f"{error}; {counted(len(self._waiting), 'finished run')} stay in "
                f"{self._waiting[0].parent} and go into the lake when the same command is run again"
            ) from error

    def _append(self) -> None:
        """Have the lake take what it lacks; what it has then is no longer waiting."""
        records: dict[Path, RunRecord] = {}
        for folder in self._waiting:
            record = read_about(folder, self._name).record
            assert record is not None
            records[folder] = record
        watch, problems = _Watch(self._lake), Problems()
        ingest_folders(
            [
                (self._name, folder.name, folder)
                for folder, record in records.items()
                if (folder.name, record.digest) not in self._there
            ],
            watch,
            writer_to(self._lake),
            problems=problems,
        )
        for runs in watch.appended:
            self._note(runs)
        if watch.skipped:  # somebody else ran the same seeds
            self.look()
        for folder, record in records.items():
            there = self._there.get((folder.name, record.digest))
            if there == record.verdict.value:
                shutil.rmtree(folder, ignore_errors=True)
                self._waiting.remove(folder)
            elif there is not None:
                raise InfrastructureError(
                    f"the lake {self.uri} has the run {self._name}/{folder.name} as {there}, and "
                    f"by this code it is {record.verdict.value}; give another --label"
                )
        if self._waiting:
            raise InfrastructureError("; ".join(problem_lines(problems)))

    def place_of(self, run: str) -> str | None:
        """Where the lake keeps the folder of a run that is not valid."""
        key = self._keys.get(run)
        return None if key is None else f"{self.uri}/{folder_of(key)}"

    def fetch_words(self, run: str, store: str) -> list[str]:
        """The `harness lake export` of a run that is not valid."""
        key = self._keys.get(run, f"{self._name}/{run}")
        return ["harness", "lake", "export", self.uri, "--store", store, "--run", key]


class _Watch:
    """The lake as an ingest sees it, noting what becomes of the runs."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.appended: list[pa.Table] = []
        self.skipped: list[str] = []

    def known(self) -> set[str]:
        """None: what is known was left out before."""
        return set()

    def append(self, rows: Mapping[str, pa.Table]) -> list[str]:
        """As a lake's."""
        import pyarrow as pa
        import pyarrow.compute as pc

        skipped = self._lake.append(rows)
        others = pc.is_in(rows[MAIN][KEY], value_set=pa.array(skipped, pa.string()))
        self.appended.append(rows[MAIN].select(COLUMNS).filter(pc.invert(others)))
        self.skipped += skipped
        return skipped
