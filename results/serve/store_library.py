"""A store of run folders as the pages see it.

One scan at a time, and not more often than it pays: the next one comes after `SCAN_REST` times what
the last one took.
"""

from __future__ import annotations

import itertools
import os
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.case import replay_command
from harness.ops import CheckResult, Verdict
from results.report import REPORT_FOLDER
from results.serve.library import Command, Library, Pace
from results.serve.over_time import sample
from results.serve.paths import NotThere, open_below
from results.serve.run_index import Index, RunRow, ScanCache, is_plain_name, scan
from results.serve.run_table import RunTable, table_of_rows

if TYPE_CHECKING:
    from results.facts.intervals import Ints

__all__ = ["StoreLibrary"]

SCAN_EVERY_S: Final = 2.0
SCAN_REST: Final = 10.0
CHECKS_MAX: Final = 1_000


class StoreLibrary(Library):
    """One store."""

    kind = "store"
    faults_are = "faults planned"
    pace_words = ("operations ok a second of chaos", "p99 of their latency, ms")
    pace_note = (
        "Operations ok a second and p99 are medians over the runs of which a history was read (up "
        "to 40 of each, spread over time), of the phase of chaos, on the run's own clock."
    )

    def __init__(self, store: Path) -> None:
        """Nothing is read before it is asked for."""
        super().__init__(str(store))
        self.store = store
        self._cache = ScanCache()
        self._index: Index | None = None
        self._table: RunTable = table_of_rows(())
        self._next_scan_s = 0.0
        self._scanning = threading.Lock()

    def table(self) -> RunTable:
        """See `Library`."""
        with self._scanning:
            now_s = time.monotonic()
            if self._index is None or now_s >= self._next_scan_s:
                index = scan(self.store, self._cache)
                if index != self._index:
                    self._table = table_of_rows(index.rows, index.notes)
                self._index = index
                took_s = time.monotonic() - now_s
                self._next_scan_s = time.monotonic() + max(SCAN_EVERY_S, took_s * SCAN_REST)
            return self._table

    def folder(self, row: RunRow) -> Path:
        """Where a run lies; raises `NotThere` for names that cannot stand in an address."""
        if not (is_plain_name(row.name) and is_plain_name(row.run)):
            raise NotThere
        folder = self.store / row.name / row.run
        if folder.is_symlink() or folder.parent.is_symlink() or not folder.is_dir():
            raise NotThere
        return folder

    def open(self, row: RunRow, parts: Sequence[str]) -> int:
        """See `Library`."""
        return open_below(self.store, (row.name, row.run, *parts))

    def command(self, row: RunRow) -> Command | None:
        """See `Library`."""
        if row.seed is None or not row.environment:
            return None
        case = self.store / row.name / row.run / "case.json"
        return Command("Replay", replay_command(case, row.environment))

    def reported_checks(self, row: RunRow) -> tuple[tuple[CheckResult, ...], str]:
        """What the last `harness report` found of a run."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        whose = "the verdicts of the last harness report"
        try:
            with os.fdopen(self.report_file(("tables", "verdicts.parquet")), "rb") as file:
                columns = ["checker", "verdict", "reason"]
                found = pq.read_table(file, columns=columns, filters=[("run", "=", row.key)])
            return tuple(
                CheckResult(one["checker"], Verdict(one["verdict"]), one["reason"])
                for one in found.slice(0, CHECKS_MAX).to_pylist()
            ), whose
        except (NotThere, OSError, pa.ArrowException, ValueError, KeyError):
            return (), whose

    def paces(
        self, table: RunTable, groups: Sequence[Ints], *, time_limit_s: float
    ) -> tuple[list[Pace], list[str]]:
        """Medians over a sample of each group, whose histories are read."""
        chosen = sample(table, groups)
        # The first of every group come first, so that a deadline leaves something of each.
        in_turn = itertools.chain.from_iterable(itertools.zip_longest(*chosen))
        wanted = [table.row(place) for place in in_turn if place is not None]
        briefs = self.briefs(wanted, time_limit_s=time_limit_s)
        notes = []
        if len(briefs) < len(wanted):
            read = f"{len(briefs)} of {len(wanted)} histories are read so far"
            notes.append(f"{read}; reload to read on")
        found = []
        for own in chosen:
            known = [briefs[key] for place in own if (key := table.row(place).key) in briefs]
            rates = [brief.ok_per_s for brief in known if brief.ok_per_s is not None]
            tails = [brief.p99_ns for brief in known if brief.p99_ns is not None]
            found.append(
                Pace(
                    len(rates),
                    statistics.median(rates) if rates else None,
                    statistics.median(tails) if tails else None,
                )
            )
        return found, notes

    def report_folder(self) -> tuple[Path, str]:
        """See `Library`."""
        return self.store, REPORT_FOLDER
