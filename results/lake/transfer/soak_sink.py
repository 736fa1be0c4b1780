"""Appends the runs of a soak to a lake while the soak runs (`harness soak --lake URI`).

A finished run is first written to a folder of the store, as without a lake, and its seed is
journaled. When `RUNS_MAX` folders are waiting, or the first has waited `WAIT_S`, all are ingested
into the lake and removed from the store. So a killed soak loses no journaled run. A soak that
starts on another machine, without the journal, reuses the lake's runs of the same code.

Every append makes one file per table. So a writer that makes a partition's 64th small file (or
128th, and so on) merges the small files of the partition.

Runs of soaks are named after their seeds: a run in the lake with the same id, history and verdict
is the same run, even if it ran on another day.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import HarnessError, InfrastructureError, UsageError, counted
from harness.ops import Verdict
from harness.plugins import SoakSink
from harness.soak.result import CheckerVerdict, SeedResult, shortened
from harness.store import RunRecord
from results.facts.problems import Problems, problem_lines
from results.lake.log.append_buffer import AppendBuffer
from results.lake.log.files import KEY, MAIN, Partition
from results.lake.log.lake import Lake
from results.lake.log.storage_errors import troubles
from results.lake.tables.sealed_run import read_about
from results.lake.transfer.folders import folder_of, writer_to
from results.lake.transfer.ingest import ingest_folders
from results.lake.upkeep.compaction import SMALL_BYTES, compact

RUNS_MAX: Final = 256
WAIT_S: Final = 60.0
SMALL_FILES_MAX: Final = 64
COLUMNS: Final = [KEY, "id", "digest", "verdict"]
RESULT_COLUMNS: Final = [
    *(*COLUMNS, "seed", "versions", "failure_reason", "failure_checker", "signature", "ops"),
    *("ok", "elections", "simulated_s", "wall_s"),
]
LAST_CHARACTER: Final = "\U0010ffff"


class LakeSink(SoakSink):
    """The plug-in for `--lake`: appends the runs of soaks to a lake."""

    api_version = 1
    name = "lake"
    doc = "Delta tables on a local disk or in object storage (docs/lake.md)"

    def open(
        self,
        uri: str,
        *,
        name: str,
        prefix: str,
        storage_options: Mapping[str, str] | None = None,
    ) -> SoakedRuns:
        """Open a lake for a soak (`harness.plugins.SoakSink`); create a missing lake."""
        lake = Lake.open(uri, storage_options=storage_options, create=True)
        return SoakedRuns(lake, name=name, prefix=prefix)


class SoakedRuns:
    """The runs of one soak in a lake."""

    def __init__(self, lake: Lake, *, name: str, prefix: str) -> None:
        self.uri = lake.place.uri
        self._lake = lake
        self._name = name
        self._prefix = prefix
        self._waiting: list[Path] = []
        self._first_s = 0.0
        self._failed = False
        self._there: dict[tuple[str, str], str] = {}
        self._keys: dict[str, str] = {}
        self.look()

    def look(self) -> None:
        self._looked_on = dt.datetime.now(dt.UTC).date()
        rows = self._rows(MAIN, COLUMNS)
        for key, run, digest, verdict in zip(
            *(rows[name].to_pylist() for name in COLUMNS), strict=True
        ):
            if verdict is not None:  # `None` means that the run was unfinished when it was ingested
                self._note(key, run, digest, Verdict(verdict))

    def _rows(self, table: str, columns: list[str]) -> pa.Table:
        begin, run = f"{self._name}/{self._prefix}", pc.field(KEY)
        wanted = (run >= begin) & (run < f"{begin}{LAST_CHARACTER}")

        def read() -> pa.Table:
            with troubles(self.uri):
                return self._lake.dataset(table).to_table(columns=columns, filter=wanted)

        return self._lake.patience.call(f"read {self.uri}", read)

    def results(self, code: str) -> Iterator[bytes]:
        """Yield the lake's results (JSON) for seeds that this version of the code ran before.

        Runs with permitted findings are left out, because no table has the rules of such findings.
        """
        results: dict[str, list[CheckerVerdict]] = {}
        rows = self._rows("verdicts", [KEY, "checker", "verdict", "reason", "signature"])
        for row in rows.to_pylist():
            results.setdefault(row[KEY], []).append(
                CheckerVerdict(
                    row["checker"], row["verdict"], shortened(row["reason"]), row["signature"] or ""
                )
            )
        for row in self._rows(MAIN, RESULT_COLUMNS).to_pylist():
            if msgspec.json.decode(row["versions"] or "{}").get("code") != code:
                continue
            if row["verdict"] not in {None, Verdict.PERMITTED.value}:
                yield msgspec.json.encode(
                    SeedResult(
                        seed=row["seed"],
                        verdict=row["verdict"],
                        reason=shortened(row["failure_reason"] or ""),
                        checker=row["failure_checker"] or None,
                        signature=row["signature"] or "",
                        checkers=tuple(results.get(row[KEY], ())),
                        digest=row["digest"],
                        ops=row["ops"],
                        ok=row["ok"],
                        leader_changes=row["elections"],
                        simulated_s=row["simulated_s"] or 0.0,
                        run=row["id"],
                        wall_s=row["wall_s"],
                    )
                )

    def _note(self, key: str, run: str, digest: str, verdict: Verdict) -> None:
        self._there[run, digest] = verdict.value
        if not verdict.holds:
            self._keys[run] = key

    def holds(self, run: str, digest: str, verdict: str) -> bool:
        """Whether the lake has this run with this digest and verdict, on any day."""
        return self._there.get((run, digest)) == verdict

    def add(self, folder: Path) -> None:
        if not self._waiting:
            self._first_s = time.monotonic()
        self._waiting.append(folder)
        if len(self._waiting) >= RUNS_MAX or time.monotonic() - self._first_s >= WAIT_S:
            self.flush()

    def flush(self) -> None:
        """Append all waiting runs. If an earlier append failed, do nothing."""
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
        """Append the waiting runs that the lake lacks, then remove the folders of stored runs."""
        records: dict[Path, RunRecord] = {}
        days: set[dt.date | None] = set()
        for folder in self._waiting:
            about = read_about(folder, self._name)
            assert about.record is not None
            records[folder] = about.record
            days.add(about.day)
        if days != {self._looked_on}:  # keys contain the day, so search again after midnight
            self.look()
        watch, problems = _Watch(self._lake), Problems()
        ingest_folders(
            (
                (self._name, folder.name, folder)
                for folder, record in records.items()
                if (folder.name, record.digest) not in self._there
            ),
            watch,
            writer_to(self._lake),
            problems=problems,
        )
        lost = {problem.run for problem in problems.kept}
        taken = watch.taken
        for folder, record in records.items():
            name = f"{self._name}/{folder.name}"
            if name in taken and name not in lost:
                self._note(taken[name], folder.name, record.digest, record.verdict)
        if watch.skipped:  # another soak ran the same seeds, so read its keys and verdicts
            self.look()
        for folder, record in records.items():
            there = self._there.get((folder.name, record.digest))
            if there == record.verdict.value:
                shutil.rmtree(folder, ignore_errors=True)
                self._waiting.remove(folder)
            elif there is not None:
                raise InfrastructureError(
                    f"the lake {self.uri} has the run {self._name}/{folder.name} as {there}, but "
                    f"this code judged it {record.verdict.value}; give another --label"
                )
        if self._waiting:
            raise InfrastructureError("; ".join(problem_lines(problems)))
        for partition in sorted(watch.partitions, key=repr):
            with contextlib.suppress(UsageError, InfrastructureError):  # a later append will merge
                self._merge(partition)

    def _merge(self, partition: Partition) -> None:
        """Merge a partition's small files if their number is a multiple of `SMALL_FILES_MAX`.

        Commits to `runs` are one after another, so usually exactly one writer sees such a number.
        """
        files = self._lake.main.refresh().files.values()
        small = sum(file.partition == partition and file.size_bytes < SMALL_BYTES for file in files)
        if small and small % SMALL_FILES_MAX == 0:
            compact(self._lake, partitions=[partition])

    def place_of(self, run: str) -> str | None:
        """Return the address of a run's folder in the lake; `None` if the lake keeps none."""
        key = self._keys.get(run)
        return None if key is None else f"{self.uri}/{folder_of(key)}"

    def fetch_words(self, run: str, store: str) -> list[str]:
        """Return the words of the command (`harness lake export`) that fetches a run."""
        key = self._keys.get(run, f"{self._name}/{run}")
        return ["harness", "lake", "export", self.uri, "--store", store, "--run", key]


class _Watch:
    """Wraps a lake during one ingest, and records the outcome for each run."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._known: set[str] = set()
        self.skipped: list[str] = []
        self.partitions: set[Partition] = set()

    @property
    def taken(self) -> dict[str, str]:
        return {key.rpartition("@")[0]: key for key in self._known}

    def known(self) -> set[str]:
        """Return the runs accepted so far. The caller has already left out the lake's own runs."""
        return self._known

    def append(self, rows: AppendBuffer) -> list[str]:
        skipped = self._lake.append(rows)
        self.skipped += skipped
        self.partitions |= {*rows.partitions.values()}
        return skipped
