"""What every row of a lake begins with: the partition, and the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from results.lake.tables.schema import schema
from results.lake.tables.sealed_run import Source

if TYPE_CHECKING:
    from results.facts.intervals import Ints


def heads_of(sources: Sequence[Source]) -> tuple[pa.Array, ...]:
    """What every row of these runs begins with: the partition and the run."""
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
    """The columns of a table with those of `heads` before them; `run` says whose each row is."""
    rows = pa.array(run)
    return pa.Table.from_arrays(
        [*(head.take(rows) for head in heads), *arrays], schema=schema(name)
    )
