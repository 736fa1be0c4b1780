"""The result lake has the verdicts and facts of a lake's runs. It is the lake's folder `results`.

Runs are appended once and stay. Verdicts and facts are made again when checkers, budgets or the
harness change, so they have a lake of their own, with the same protocol. A *result* is the verdict
of one checker, or all facts of a run. In the result lake, the table `runs` has one row per append
and run, with the ids of the results that this append has for the run. So the missing results of a
run are found without reading its history.

**Rows that count.** Two concurrent reports may store the same result. A row of another table counts
if the result lake's `runs` has its `run` and `batch`, and the lake's own `runs` has the run in
`run_batch`. If several batches have the same result of a run, readers prefer a settled result
(`marks`) to an unsettled result, and then the newest (`judged_at`).
"""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from harness.errors import HarnessError, counted
from results.facts.schema import COLUMNS, FACT_TABLES
from results.lake.log.delta import Addition, Log
from results.lake.log.files import KEY, MAIN, RESULTS, Partition
from results.lake.log.lake import Lake
from results.lake.log.location import Place
from results.lake.log.snapshot import RunIndex
from results.lake.log.storage_errors import Patience
from results.lake.tables.schema import TABLES, TEXTS, Column, arrow_type
from results.lake.upkeep.compaction import SMALL_BYTES, compact
from results.lake.upkeep.soundness import Finding, check, named

RESULTS_VERSION: Final = 2
RUN_BATCH: Final = "run_batch"
SMALL_FILES_MAX: Final = 16
"""The maximum number of small files per partition after a report: each costs readers a request."""
HASTE: Final = Patience(attempts_max=5, total_s=10.0)
_HEAD: Final = TABLES[MAIN][:4]
_ID: Final = Column("result_id", "string", "", "id of the result")


def _columns(table: str) -> tuple[Column, ...]:
    measured = [
        Column(name, kind, "ns" if name.endswith("_ns") else "", meaning)
        for name, kind, meaning in COLUMNS[table]
        if name not in {"run", _ID.name}
    ]
    return (*_HEAD, *measured, _ID)


RESULT_TABLES: Final[Mapping[str, tuple[Column, ...]]] = {
    MAIN: (
        *_HEAD,
        Column(RUN_BATCH, "string", "", "batch of the run that was checked"),
        Column("judged_at", "timestamp", "", "time of the check, UTC"),
        Column("results", TEXTS, "", "result ids of this run in this batch"),
        Column("marks", TEXTS, "", "per result: empty, or why a later check may differ"),
    ),
    "verdicts": _columns("verdicts"),
    **{name: _columns(name) for name in FACT_TABLES},
}


@functools.cache
def result_schema(table: str) -> pa.Schema:
    """Return the Arrow schema of one of `RESULT_TABLES`."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in RESULT_TABLES[table]])


class ResultLake(Lake):
    """A lake to which results of a run can be appended repeatedly, even the same results."""

    made_again_by = "remove the folder, and the next report creates it again"
    runs_once = False

    @classmethod
    def beside(
        cls, lake_uri: str, options: Mapping[str, str], *, create: bool = False
    ) -> ResultLake | None:
        """Return the result lake of the lake at `lake_uri`; without `create`, `None` if missing.

        `options` are the storage options of the lake. Raises the errors of `Lake.open`.
        """
        lake = cls(
            Place(f"{lake_uri}/{RESULTS}", options),
            {name: result_schema(name) for name in RESULT_TABLES},
            RESULTS_VERSION,
            Patience(),
        )
        if create:
            lake.patience.call(f"create a lake at {lake.place.uri}", lake._create)
            return lake
        return lake if lake.patience.call(f"open {lake.place.uri}", lake._find) else None

    def tidy(self, label: str | None) -> bool:
        """Merge small files in partitions with too many of them; return whether any had too many.

        Only partitions of `label` count (`None`: all). If another process is merging, this call
        does nothing. Damage is ignored, because the report itself mentions it.
        """
        small = collections.Counter(
            (table, file.partition)
            for table, files in self.snapshot().of_label(label).tables.items()
            for file in files
            if file.size_bytes < SMALL_BYTES
        )
        crowded = {partition for (_, partition), n in small.items() if n > SMALL_FILES_MAX}
        patience, self.patience = self.patience, HASTE
        try:
            for partition in sorted(crowded, key=repr):
                with contextlib.suppress(HarnessError):
                    compact(self, partitions=[partition])
        finally:
            self.patience = patience
        return bool(crowded)

    def _held(self, partitions: Mapping[str, Partition]) -> dict[str, str]:
        """Return an empty map, so that an append accepts further results of a known run."""
        del partitions
        return {}

    def _commit_main(
        self, batch: str, addition: Addition, partitions: Mapping[str, Partition]
    ) -> bool:
        del partitions
        state = self.main.refresh()
        if batch in self.visible_batches(state, {batch}):
            return True
        if self.main.fenced(batch):
            return False
        self.main.commit(self.schemas[MAIN], add=[addition], exact=True)
        return True


def check_results(lake: Lake, place: Place) -> tuple[ResultLake | None, list[Finding]]:
    """Check the result lake at `place`; return the result lake (`None`: absent) and findings."""
    tables = place.tables()
    if MAIN not in tables:
        return None, [*_without_runs(place, tables)]
    results = ResultLake.beside(lake.place.uri, lake.place.options)
    assert results is not None
    findings = check(results)
    if not any(finding.damaged for finding in findings):
        strangers = lake.patience.call(
            f"check {place.uri}", functools.partial(_about_nobody, results, lake)
        )
        if strangers:
            text = f"results about {counted(len(strangers), 'run')} that the lake does not have"
            findings.append(Finding(MAIN, False, f"{text}: {named(strangers)}"))
    return results, sorted(findings, key=lambda finding: not finding.damaged)


def _without_runs(place: Place, tables: Sequence[str]) -> Iterator[Finding]:
    """Report tables of a place without `runs`. Empty tables are leftovers, others are damage."""
    for table in tables:
        log = Log(place, table)
        full = log.exists() and bool(log.refresh().files)
        text = (
            "has rows, but the table `runs` is missing"
            if full
            else "left behind by an interrupted creation"
        )
        yield Finding(table, full, text)


def _about_nobody(results: Lake, lake: Lake) -> list[str]:
    """Return the runs that have results, but that the lake lacks, or has from another batch.

    Such results belong to no run.
    """
    about = results.snapshot().dataset(MAIN).to_table([KEY, RUN_BATCH]).group_by([KEY, RUN_BATCH])
    pairs = about.aggregate([])
    snapshot = lake.snapshot()
    stored = RunIndex(lake.place).of(snapshot.files(MAIN))
    return [
        run
        for run, batch in zip(*(pairs[name].to_pylist() for name in (KEY, RUN_BATCH)), strict=True)
        if stored.get(run) != batch
    ]
