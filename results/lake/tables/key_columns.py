"""The leading columns of every row of a lake: the partition, and the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from results.lake.tables.schema import schema
from results.lake.tables.sealed_run import Source

if TYPE_CHECKING:
    from results.facts.intervals import Ints


def heads_of(sources: Sequence[Source]) -> tuple[pa.Array, ...]:
    """The leading columns of rows of these runs: the partition and the run."""
    columns = zip(
        *((each.about.case.target, each.about.label, each.about.day, each.key) for each in sources),
        strict=True,
    )
    return tuple(
        pa.array(values, field.type) for values, field in zip(columns, schema("runs"), strict=False)
    )


def with_head(
    name: str,
    heads: Sequence[pa.Array],
    run: Ints,
    arrays: Sequence[pa.Array],
) -> pa.Table:
    """The columns of a table, preceded by `heads`; `run` has the index of each row's run."""
    rows = pa.array(run)
    return pa.Table.from_arrays(
        [*(head.take(rows) for head in heads), *arrays], schema=schema(name)
    )
