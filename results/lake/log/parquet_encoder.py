"""Encodes rows as a Parquet file, row group by row group, with statistics for the table's log."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from results.lake.log.files import KEY_RANGE, coded_schema, statistics
from results.lake.log.layout import parquet_options

GROUP_ROWS: Final = 128 * 1024
KEYED_GROUP_ROWS: Final = GROUP_ROWS // 4
"""Rows per group for runs over independent keys: few, because readers read single key ranges."""


class Encoded(NamedTuple):
    """An encoded file of one table, partition and batch, in memory."""

    content: Any
    rows: int
    statistics: str

    def table(self) -> pa.Table:
        """Decode the file; return its rows in stored form, with the batch column."""
        return pq.read_table(pa.BufferReader(self.content))


class Encoder:
    """Context manager that writes rows into a Parquet file, row group by row group."""

    def __init__(self, sink: Any, schema: pa.Schema, *, coded: bool = False) -> None:
        """Begin a file in `sink`. `schema` is that of the stored rows, with the batch column.

        With `coded`, the rows passed to `write` have the schema `coded_schema(schema)` instead.
        Readers of the file see no difference.
        """
        self._schema = schema
        self._footers: list[Any] = []
        self._writer = pq.ParquetWriter(
            sink,
            coded_schema(schema) if coded else schema,
            metadata_collector=self._footers,
            # if the file contained Arrow's schema, Arrow's readers would return dictionaries
            store_schema=not coded,
            **parquet_options(schema),
        )

    def write(self, rows: pa.Table) -> None:
        """Write rows as one row group, or as several equal groups if one would be too large."""
        keyed = KEY_RANGE in self._schema.names and rows[KEY_RANGE].null_count < rows.num_rows
        groups = max(1, -(-rows.num_rows // (KEYED_GROUP_ROWS if keyed else GROUP_ROWS)))
        self._writer.write_table(rows, row_group_size=max(1, -(-rows.num_rows // groups)))

    def __enter__(self) -> Self:
        """Return the encoder. The end of the block writes the footer, which completes the file."""
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        try:
            if failed is None:
                self._writer.close()
        finally:
            self._writer.is_open = False  # otherwise `__del__` could write a footer after an error

    def written(self) -> tuple[int, str]:
        """Return the complete file's number of rows, and its statistics for the table's log."""
        (footer,) = self._footers
        return footer.num_rows, statistics(self._schema, footer)
