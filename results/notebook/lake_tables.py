"""One state of a lake as tables, including the results of reports. `results.open` uses it.

Every report appends its results to the lake's folder `results` (`results.judging.result_lake`), so
a run may have several results. For each run and checker (and range of keys), one result counts: the
newest. But a result that is unknown for lack of time, memory or a worker only counts if there is no
other. A filter excludes the rows of all results that do not count.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from results.facts.schema import FACT_TABLES
from results.judging.chosen_results import counting
from results.judging.result_lake import ResultLake
from results.lake.log.files import BATCH, KEY, MAIN
from results.lake.log.lake import Lake
from results.lake.log.snapshot import RunIndex, Snapshot
from results.lake.transfer.folders import FOLDERS
from results.notebook.choice import Choice, require
from results.notebook.columns import pages_below, relation_of
from results.questions.engines import quoted

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession

REPORT: Final = "report."
VERDICTS: Final = "verdicts"
_ID: Final = "result_id"


class LakeTables:
    """The visible rows of a lake, as of the moment at which the lake was opened."""

    def __init__(
        self,
        uri: str,
        storage_options: Mapping[str, str] | None = None,
        *,
        store: Path | None = None,
        problems: Mapping[str, str] | None = None,
    ) -> None:
        """Open the lake at `uri` (possibly that of `store`). Raises the errors of `results.open`.

        `problems` maps runs of the store that are missing in the lake to the reasons.
        """
        lake = Lake.open(uri, storage_options=storage_options)
        results = ResultLake.beside(lake.place.uri, lake.place.options)
        self.uri = lake.place.uri
        self.place = self.uri if store is None else str(store.absolute())
        self.is_store = store is not None
        self.problems = problems or {}
        self._lake = lake.snapshot()
        self._results = None if results is None else results.snapshot()

    def tables(self) -> tuple[str, ...]:
        """Return the names of the lake's tables, and `report.NAME` for each table of results."""
        if self._results is None or not self._results.files(MAIN):
            return tuple(self._lake.schemas)
        return (*self._lake.schemas, *(f"{REPORT}{name}" for name in (VERDICTS, *FACT_TABLES)))

    def check(self, choice: Choice) -> None:
        """Raise `UsageError` for targets, labels and runs that the lake does not have."""
        files = self._lake.files(MAIN)
        if choice.targets is not None:
            require("target", choice.targets, (file.partition[0] for file in files))
        if choice.labels is not None:
            require("label", choice.labels, (file.partition[1] for file in files))
        if choice.runs is not None:
            within = [file for file in files if Choice(runs=choice.runs).takes_file(file)]
            require("run", choice.runs, RunIndex(self._lake.place).of(within))

    def dataset(self, table: str, choice: Choice) -> ds.Dataset:
        """Return the rows of the chosen runs, as a dataset over the files that may have them."""
        dataset = self._narrowed(table, choice).dataset(table.removeprefix(REPORT))
        for wanted in (choice.rows(), self._rows_that_count(table)):
            if wanted is not None:
                dataset = dataset.filter(wanted)
        return dataset

    def rows(self, table: str, choice: Choice) -> int:
        """Count the rows of the chosen runs, from the lake's log if possible, else from files."""
        if choice.runs is not None or table.startswith(REPORT):
            count: int = self.dataset(table, choice).count_rows()
            return count
        return sum(file.rows for file in self._narrowed(table, choice).files(table))

    def relation(
        self,
        table: str,
        choice: Choice,
        connection: duckdb.DuckDBPyConnection,
        where: ds.Expression | None = None,
    ) -> duckdb.DuckDBPyRelation:
        """Return the rows of the chosen runs as a DuckDB relation (`results.notebook.columns`)."""
        rows = self.dataset(table, choice)
        root = quoted(f"{self.place}/")
        folder = f"{root} || name || '/' || id" if self.is_store else f"{root} || folder"
        runs = self.place if self.is_store else f"{self.place}/{FOLDERS}"
        return relation_of(
            rows if where is None else rows.filter(where),
            connection,
            folder=folder,
            pages=pages_below(runs) if self._lake.place.local else None,
        )

    def spark(self, session: SparkSession, table: str, choice: Choice) -> DataFrame:
        """Return the rows of the chosen runs as a Spark data frame (`results.spark.frames`)."""
        from results.spark.frames import lake_frame

        narrowed = self._narrowed(table, choice)
        frame: DataFrame = lake_frame(session, narrowed, table.removeprefix(REPORT))
        if choice.runs is not None:
            frame = frame.where(frame[KEY].isin(sorted(choice.runs)))
        if not table.startswith(REPORT):
            return frame
        counted = self._counting.filter(self._counting["counts"]).drop_columns(["counts"])
        return frame.join(session.createDataFrame(counted), [KEY, _ID, BATCH], "left_semi")

    def _narrowed(self, table: str, choice: Choice) -> Snapshot:
        snapshot, name = self._lake, table.removeprefix(REPORT)
        if table.startswith(REPORT):
            assert self._results is not None
            snapshot = self._results
        files = tuple(file for file in snapshot.files(name) if choice.takes_file(file))
        schema = snapshot.schemas[name]
        if snapshot is self._lake:  # only tables of results need the column `batch`
            schema = schema.remove(schema.get_field_index(BATCH))
        return dataclasses.replace(snapshot, tables={name: files}, schemas={name: schema})

    def _rows_that_count(self, table: str) -> ds.Expression | None:
        """Return a filter for rows of results that count; `None` if all rows count."""
        if not table.startswith(REPORT):
            return None
        others = self._counting.filter(pc.invert(self._counting["counts"]))
        by_append = others.group_by([_ID, BATCH]).aggregate([(KEY, "list")]).to_pylist()
        wanted = [
            ~(
                (ds.field(_ID) == part[_ID])
                & (ds.field(BATCH) == part[BATCH])
                & ds.field(KEY).isin(pa.array(part[f"{KEY}_list"], pa.string()))
            )
            for part in by_append
        ]
        return functools.reduce(lambda left, right: left & right, wanted) if wanted else None

    @functools.cached_property
    def _counting(self) -> pa.Table:
        """A row per result in the result lake: run, id, batch, and whether the result counts."""
        assert self._results is not None
        return counting(
            runs=self._lake.dataset(MAIN),
            results=self._results.dataset(MAIN),
            verdicts=self._results.dataset(VERDICTS),
        )
