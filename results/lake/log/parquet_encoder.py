"""Rows as a Parquet file: written row group by row group, and what a log has to know about it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from results.lake.log.files import KEY_RANGE, coded_schema, statistics
from results.lake.log.layout import parquet_options

GROUP_ROWS: Final = 128 * 1024
KEYED_GROUP_ROWS: Final = GROUP_ROWS // 4
"""Of runs over independent keys, of which a range is read alone."""


class Encoded(NamedTuple):
    """A file of one table, partition and batch, in memory."""

    content: Any  # a pyarrow.Buffer
    rows: int
    statistics: str

    def table(self) -> pa.Table:
        """The rows as they are stored, with their batch."""
        return pq.read_table(pa.BufferReader(self.content))


class Encoder:
    """Writes rows into a file, row group by row group."""

    def __init__(self, sink: Any, schema: pa.Schema, *, coded: bool = False) -> None:
        """`schema` is that of the stored rows, with their batch.

        Rows that are `coded` come as `results.lake.log.files.coded_schema` of it; no reader sees
        that.
        """
        self._schema = schema
        self._footers: list[Any] = []
        self._writer = pq.ParquetWriter(
            sink,
            coded_schema(schema) if coded else schema,
            metadata_collector=self._footers,
            store_schema=not coded,  # else readers of Arrow would get dictionaries
            **parquet_options(schema),
        )

    def write(self, rows: pa.Table) -> None:
        """Add rows, as equal row groups where they are too many for one."""
        keyed = KEY_RANGE in self._schema.names and rows[KEY_RANGE].null_count < rows.num_rows
        groups = max(1, -(-rows.num_rows // (KEYED_GROUP_ROWS if keyed else GROUP_ROWS)))
        self._writer.write_table(rows, row_group_size=max(1, -(-rows.num_rows // groups)))

    def __enter__(self) -> Self:
        """The file is whole when the block has ended."""
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        """Write the footer."""
        try:
            if failed is None:
                self._writer.close()
        finally:
            self._writer.is_open = False  # else a failed one complains when it is collected

    def written(self) -> tuple[int, str]:
        """Of a whole file: how many rows there are, and their statistics for a log."""
        (footer,) = self._footers
        return footer.num_rows, statistics(self._schema, footer)
