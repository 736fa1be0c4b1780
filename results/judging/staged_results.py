"""A run that a worker has read from a lake, and the results that it will append."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from harness.case import Case
from harness.store import RunRecord
from results.judging.result_lake import result_schema
from results.lake.log.files import BATCH, KEY, MAIN, PARTITION
from results.lake.tables.rebuild import case_of, record_of


class RunOfLake(msgspec.Struct, frozen=True, kw_only=True):
    """A run read from a lake, with the attributes of a stored run that judging and facts need."""

    key: str
    name: str
    run: str
    case: Case
    record: RunRecord | None
    label: str | None
    key_ranges: tuple[int, ...]  # number of operations per range of independent keys
    batch: str
    partition: tuple[Any, ...]


class Found:
    """Results that a worker holds in memory until the next append to the result lake."""

    def __init__(self) -> None:
        self.runs: dict[str, RunOfLake] = {}
        self.results: dict[str, list[tuple[str, str]]] = {}
        self.tables: dict[str, list[tuple[str, str, pa.Table]]] = {}

    def add(
        self, run: RunOfLake, result_id: str, mark: str, tables: Mapping[str, pa.Table]
    ) -> None:
        self.runs[run.key] = run
        self.results.setdefault(run.key, []).append((result_id, mark))
        for name, table in tables.items():
            if len(table):
                self.tables.setdefault(name, []).append((run.key, result_id, table))

    def rows(self) -> dict[str, pa.Table]:
        """Return all results as rows by table, for `ResultLake.append`."""
        now = dt.datetime.now(dt.UTC)
        runs = [*self.results]
        tables = {
            MAIN: self._headed(
                MAIN,
                runs,
                [1] * len(runs),
                {
                    "run_batch": pa.array([self.runs[run].batch for run in runs]),
                    "judged_at": pa.array(
                        [now] * len(runs), result_schema(MAIN).field("judged_at").type
                    ),
                    "results": pa.array(
                        [[result_id for result_id, _ in self.results[run]] for run in runs]
                    ),
                    "marks": pa.array([[mark for _, mark in self.results[run]] for run in runs]),
                },
            )
        }
        for name, parts in self.tables.items():
            whole = pa.concat_tables([table for _, _, table in parts])
            sizes = [len(table) for _, _, table in parts]
            columns = {column: whole[column] for column in whole.column_names}
            columns["result_id"] = _repeated([result_id for _, result_id, _ in parts], sizes)
            tables[name] = self._headed(name, [run for run, _, _ in parts], sizes, columns)
        return tables

    def _headed(
        self, name: str, runs: list[str], sizes: list[int], columns: dict[str, Any]
    ) -> pa.Table:
        """Prepend the run and its partition to `columns`; `sizes` has the run's number of rows."""
        columns = dict(columns)
        columns[KEY] = _repeated(runs, sizes)
        for place, column in enumerate(PARTITION):
            columns[column] = _repeated([self.runs[run].partition[place] for run in runs], sizes)
        layout = result_schema(name)
        return pa.table([columns[field].cast(layout.field(field).type) for field in layout.names],
                        schema=layout)  # fmt: skip


def _repeated(values: list[Any], sizes: list[int]) -> pa.Array:
    return pa.array(values).take(pa.array(np.repeat(np.arange(len(values)), sizes)))


def run_of(row: Mapping[str, Any]) -> RunOfLake:
    """Read a run from its row in the lake's table `runs`; raise `HistoryError` if it is invalid."""
    return RunOfLake(
        key=row[KEY],
        name=row["name"],
        run=row["id"],
        case=case_of(row),
        record=record_of(row),
        label=row["label"],
        key_ranges=tuple(row["key_ranges"]),
        batch=row[BATCH],
        partition=tuple(row[name] for name in PARTITION),
    )
