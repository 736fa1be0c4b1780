"""One state of a lake as tables: for `results.open`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from results.lake.log.files import BATCH, MAIN
from results.lake.log.lake import Lake
from results.lake.log.snapshot import RunIndex, Snapshot
from results.notebook.choice import Choice, require
from results.notebook.result_tables import REPORT, ReportedTables

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["LakeSource"]


class LakeSource:
    """The visible rows of a lake, as they were when it was opened."""

    problems: Final[Mapping[str, str]] = {}

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None = None) -> None:
        """Raises as `results.notebook.tables.open`."""
        lake = Lake.open(uri, storage_options=storage_options)
        self.uri = lake.place.uri
        self._snapshot = lake.snapshot()
        self._reported = ReportedTables(lake.place, self._snapshot)

    def tables(self) -> Sequence[str]:
        """All of the schema (those that an older lake lacks are empty), and what reports found."""
        return (*self._snapshot.schemas, *self._reported.tables())

    def check(self, choice: Choice) -> None:
        """Targets and labels are those of partitions; runs are looked up in files of `runs`."""
        files = self._snapshot.files(MAIN)
        if choice.targets is not None:
            require("target", choice.targets, (file.partition[0] for file in files))
        if choice.labels is not None:
            require("label", choice.labels, (file.partition[1] for file in files))
        if choice.runs is not None:
            within = [file for file in files if Choice(runs=choice.runs).takes_file(file)]
            require("run", choice.runs, RunIndex(self._snapshot.place).of(within))

    def dataset(self, table: str, choice: Choice) -> ds.Dataset:
        """A dataset over the files that may have rows of these runs."""
        if table.startswith(REPORT):
            return self._reported.dataset(table, choice)
        dataset, wanted = self._narrowed(table, choice).dataset(table), choice.rows()
        return dataset if wanted is None else dataset.filter(wanted)

    def spark(self, session: SparkSession, table: str, choice: Choice) -> DataFrame:
        """See `results.spark.frames`."""
        if table.startswith(REPORT):
            return self._reported.spark(session, table, choice)
        from results.spark.frames import lake_frame

        frame: DataFrame = lake_frame(session, self._narrowed(table, choice), table)
        return frame if choice.runs is None else frame.where(frame["run"].isin(sorted(choice.runs)))

    def _narrowed(self, table: str, choice: Choice) -> Snapshot:
        """The snapshot with the files of one table that may have rows, and without the batch."""
        schema = self._snapshot.schemas[table]
        files = [file for file in self._snapshot.files(table) if choice.takes_file(file)]
        return dataclasses.replace(
            self._snapshot,
            tables={table: tuple(files)},
            schemas={table: schema.remove(schema.get_field_index(BATCH))},
        )
