"""A store of folders as the tables of a lake: for `results.open`.

The small files of every run are read at once, and tell what a choice asks for. Histories become
rows when a table is first asked for, all tables of the chosen runs together, in memory: what does
not fit `BYTES_MAX` belongs into a lake.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from harness.errors import HarnessError, UsageError, counted, listed
from results.facts.schema import ddl
from results.judging.problems import Problems
from results.lake.tables.row_tables import tables_of
from results.lake.tables.schema import TABLES, schema
from results.lake.transfer.run_folders import run_folders
from results.lake.transfer.source import About, Source, read_about, read_source, run_key
from results.notebook.choice import Choice, require
from results.notebook.result_tables import REPORT
from results.report import REPORT_FOLDER

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BYTES_MAX", "StoreSource"]

BYTES_MAX: Final = 2 << 30
"""Of all rows in memory: some million operations, with all that belongs to them."""
RUNS_AT_ONCE: Final = 64
REPORT_TABLES: Final = Path(REPORT_FOLDER) / "tables"


class _Run(msgspec.Struct, frozen=True):
    folder: Path
    about: About
    key: str


class StoreSource:
    """The finished runs of a store, as they were when it was opened."""

    def __init__(self, store: Path) -> None:
        """Raises `UsageError` where no run is."""
        self.uri = str(store)
        self.problems: dict[str, str] = {}
        self._store = store
        self._runs: list[_Run] = []
        self._made: tuple[Choice, dict[str, pa.Table]] | None = None
        found = Problems()
        folders = sorted(run_folders(store, found), key=lambda each: f"{each[0]}/{each[1]}@")
        if not folders:
            raise UsageError(f"{self.uri!r} holds neither a lake nor a run")
        for name, run, folder in folders:
            try:
                about = read_about(folder, name)
            except HarnessError as error:
                self.problems[f"{name}/{run}"] = str(error)
                continue
            if about.record is None:
                why = "it has no run.json: it goes on, or was cut short"
                self.problems[f"{name}/{run}"] = why
            else:
                self._runs.append(_Run(folder, about, run_key(about, about.record.digest)))
        for problem in found.kept:
            self.problems.setdefault(problem.run, problem.text)

    def tables(self) -> Sequence[str]:
        """Those of a lake, and those that `harness report` left, as `report.NAME`."""
        reported = sorted((self._store / REPORT_TABLES).glob("*.parquet"))
        return (*TABLES, *(f"{REPORT}{path.stem}" for path in reported))

    def check(self, choice: Choice) -> None:
        """Names are those of the finished runs."""
        for what, wanted, there in (
            ("run", choice.runs, (run.key for run in self._runs)),
            ("target", choice.targets, (run.about.case.target for run in self._runs)),
            ("label", choice.labels, (run.about.label for run in self._runs)),
        ):
            if wanted is not None:
                require(what, wanted, there)

    def dataset(self, table: str, choice: Choice) -> ds.Dataset:
        """The rows, in memory, or the file of a report's table."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        if not table.startswith(REPORT):
            return ds.dataset(self._tables(choice)[table])
        path = self._store / REPORT_TABLES / f"{table.removeprefix(REPORT)}.parquet"
        dataset = ds.dataset(path)
        if "run" not in dataset.schema.names:
            return dataset
        names = [f"{run.about.name}/{run.about.id}" for run in self._chosen(choice)]
        return dataset.filter(ds.field("run").isin(pa.array(names, pa.string())))

    def spark(self, session: SparkSession, table: str, choice: Choice) -> DataFrame:
        """The rows, by way of the driver."""
        dataset = self.dataset(table, choice)
        return session.createDataFrame(dataset.to_table(), ddl(dataset.schema))

    def _chosen(self, choice: Choice) -> list[_Run]:
        return [
            run
            for run in self._runs
            if choice.takes((run.about.case.target, run.about.label, run.about.day))
            and choice.takes_run(run.key)
        ]

    def _tables(self, choice: Choice) -> dict[str, pa.Table]:
        """All tables; those of the last choice are kept."""
        import pyarrow as pa

        if self._made is not None and self._made[0] == choice:
            return self._made[1]
        parts: dict[str, list[pa.Table]] = {name: [schema(name).empty_table()] for name in TABLES}
        failed: list[str] = []
        size = 0
        runs = self._chosen(choice)
        for begin in range(0, len(runs), RUNS_AT_ONCE):
            for tables in self._rows(runs[begin : begin + RUNS_AT_ONCE], failed):
                for name, table in tables.items():
                    parts[name].append(table)
                    size += table.nbytes
            if size > BYTES_MAX:
                raise UsageError(
                    f"the rows of the first {begin + RUNS_AT_ONCE} of {len(runs)} runs have more "
                    f"than {BYTES_MAX >> 20} MiB; choose fewer with `only`, or `harness ingest "
                    f"{self.uri} --lake URI` and open that"
                )
        if failed:
            warnings.warn(
                f"{counted(len(failed), 'run')} cannot be read and left out, see `problems`: "
                f"{listed(failed, limit=3)}",
                stacklevel=5,
            )
        made = {name: pa.concat_tables(tables) for name, tables in parts.items()}
        self._made = choice, made
        return made

    def _rows(self, runs: Sequence[_Run], failed: list[str]) -> list[dict[str, pa.Table]]:
        """The rows of some runs together, or each by itself where one of them makes none."""
        sources: list[Source] = []
        for run in runs:
            try:
                sources.append(read_source(run.folder, run.about))
            except (HarnessError, OSError) as error:
                self._fail(run.about, error, failed)
        try:
            return [tables_of(sources)] if sources else []
        except HarnessError:
            made: list[dict[str, pa.Table]] = []
            for source in sources:
                try:
                    made.append(tables_of([source]))
                except HarnessError as error:
                    self._fail(source.about, error, failed)
            return made

    def _fail(self, about: About, error: Exception, failed: list[str]) -> None:
        name = f"{about.name}/{about.id}"
        self.problems[name] = str(error)
        self._runs = [run for run in self._runs if run.about is not about]  # said once
        failed.append(name)
