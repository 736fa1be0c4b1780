"""Converts many runs at once to rows of a lake, by columns, because a run has many lines.

`tables_of` concatenates the sealed columns of some runs, and makes the tables of
`results.lake.tables.schema` from them. Only the notes are decoded: about thirty lines per run from
the nemesis and the harness.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.errors import HistoryError
from harness.ops import History
from results.lake.tables.line_batches import Batch, with_head
from results.lake.tables.run_rows import counted, finding_rows, node_rows, run_row, verdict_rows
from results.lake.tables.schema import PARTITION, schema
from results.lake.tables.sealed_run import About, Source, read_source, source_of


def rows_of(run: Path | History, about: About | None = None) -> dict[str, pa.Table]:
    """Convert one run (its folder, or its history with `about`) to rows by table.

    Raises `HistoryError` or `UsageError` if the run cannot be read or converted.
    """
    if isinstance(run, Path):
        return tables_of([read_source(run, about)])
    if about is None:
        raise HistoryError("a history does not name its run; give `about`")
    return tables_of([source_of(run, about)])


def tables_of(sources: Sequence[Source]) -> dict[str, pa.Table]:
    """Convert runs, in order, to rows of each table; raise `HistoryError` for an invalid run."""
    batch = Batch(sources)
    noted, heads = batch.noted, batch.heads
    operations, attempts = batch.operations(), batch.attempts()
    counts = map(counted, noted, batch.counts())
    nodes = map(node_rows, noted, batch.tried())
    return {
        "runs": _table("runs", heads, list(enumerate(map(run_row, sources, counts)))),
        "operations": operations,
        "attempts": attempts,
        "faults": _table("faults", heads, _each(notes.fault_rows() for notes in noted)),
        "events": batch.events(),
        "nodes": _table("nodes", heads, _each(nodes)),
        "verdicts": _table("verdicts", heads, _each(map(verdict_rows, sources))),
        "findings": _table("findings", heads, _each(map(finding_rows, sources))),
    }


def _each(rows: Iterable[Iterable[tuple[Any, ...]]]) -> list[tuple[int, tuple[Any, ...]]]:
    return [(number, row) for number, some in enumerate(rows) for row in some]


def _table(
    name: str, heads: Sequence[pa.Array], rows: Sequence[tuple[int, tuple[Any, ...]]]
) -> pa.Table:
    fields = [*schema(name)][len(PARTITION) + 1 :]
    columns = list(zip(*(row for _, row in rows), strict=True)) if rows else [()] * len(fields)
    try:
        arrays = [pa.array(cells, field.type) for cells, field in zip(columns, fields, strict=True)]
    except (ValueError, OverflowError) as error:
        # a value from the run's files does not fit into its column
        raise HistoryError(
            f"a value in the run's files fits no column of {name}: {error}"
        ) from error
    return with_head(name, heads, np.array([number for number, _ in rows], np.int64), arrays)
