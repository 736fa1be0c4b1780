"""Files of a lake opened by whoever runs a task: rows of some runs, a bounded part at a time.

A row group has the rows of hundreds of runs, and those of `events` a snapshot of the target's state
each. So nothing here holds a whole one: batches are decoded one after the other, and what is not
asked for goes at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from results.lake.files import KEY
from results.lake.place import Place
from results.lake.trouble import troubles

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["file_batches"]

BATCH_ROWS: Final = 8_192


def file_batches(
    place: Place, path: str, schema: pa.Schema, *, runs: pa.Array | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of one file in the columns of `schema`, or those of some `runs` (which are sorted).

    Columns that the file lacks are null. Row groups without any of the runs are not read. Raises
    as `results.lake.trouble.troubles` says.
    """
    import pyarrow.parquet as pq

    with troubles(place.uri), place.files.open_input_file(path) as source:
        file = pq.ParquetFile(source, pre_buffer=not place.local)
        names = [name for name in schema.names if name in file.schema_arrow.names]
        wanted = names if runs is None or KEY in names else [*names, KEY]
        groups = _groups(file, runs)
        if not groups:
            return
        for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=wanted):
            found = batch if runs is None else _of_runs(batch, runs)
            if found.num_rows:
                yield _in_columns(found, schema)


def _groups(file: Any, runs: pa.Array | None) -> Sequence[int]:
    """The row groups in which one of the runs may be, by the statistics of the file."""
    numbers = range(file.metadata.num_row_groups)
    if runs is None:
        return numbers
    if not len(runs):
        return ()
    least, greatest = runs[0].as_py(), runs[-1].as_py()
    at = file.schema_arrow.names.index(KEY)
    found = []
    for number in numbers:
        group = file.metadata.row_group(number)
        column = next(
            (column for place in range(at, group.num_columns)
             if (column := group.column(place)).path_in_schema == KEY),
            None,
        )  # fmt: skip
        said = None if column is None else column.statistics
        if said is None or not said.has_min_max or (said.min <= greatest and said.max >= least):
            found.append(number)
    return found


def _of_runs(batch: pa.RecordBatch, runs: pa.Array) -> pa.RecordBatch:
    import pyarrow.compute as pc

    return batch.filter(pc.is_in(batch.column(KEY), value_set=runs))


def _in_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
