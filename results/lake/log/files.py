"""The names, references and statistics of a lake's files.

A file holds rows of one table and one partition, for whole runs. Its name shows where the rows came
from:

| name                  | rows                                                                   |
|-----------------------|------------------------------------------------------------------------|
| b-BATCH-N.parquet     | rows of one append, which is called a batch; N counts its uploads      |
| c-VERSION-ID.parquet  | rows of merged files, all visible at this version of `runs`            |

Files contain the partition columns, too. So a reader that gets only a list of files (DuckDB, or
Spark without a jar) sees every column with its type.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

MAIN: Final = "runs"
KEY: Final = "run"
BATCH: Final = "batch"
KEY_RANGE: Final = "key_range"
"""The column with the number of a row's range of keys; null in runs without independent keys."""
RESULTS: Final = "results"
"""The subfolder of a lake that holds its result lake (`results.judging.result_lake`)."""
LOG_FOLDER: Final = "_delta_log"
"""The log folder. It marks a folder as a Delta table (Delta's protocol, "File types")."""
PARTITION: Final = ("target", "label", "day")

_BATCH_FILE: Final = re.compile(r"b-([0-9a-f]{32})-\d+\.parquet")
_MERGED_FILE: Final = re.compile(r"c-(\d+)-([0-9a-f]{32})\.parquet")

STATISTICS_COLUMNS_MAX: Final = 32
"""The number of leading columns with statistics in the log, as in Delta's own writers."""
STATISTICS_TEXT_MAX: Final = 64  # longer strings would make the log larger without helping readers

Partition = tuple[str | None, str | None, dt.date | None]
"""Values of the columns `PARTITION`: target, label and day."""


@dataclass(frozen=True, slots=True)
class FileRef:
    """One Parquet file, as recorded in its table's log."""

    table: str
    name: str
    uri: str
    size_bytes: int
    rows: int
    partition: Partition
    first_run: str
    last_run: str
    modified_ms: int

    @property
    def batch(self) -> str | None:
        """The batch of the file's rows; `None` for a merged file."""
        return batch_of(self.name)

    @property
    def needs_version(self) -> int:
        """The first version of `runs` that shows all rows of a merged file.

        It is -1 for a file that was not merged.
        """
        match = _MERGED_FILE.fullmatch(self.name)
        return -1 if match is None else int(match[1])


def batch_of(name: str) -> str | None:
    """Return the batch in a file's name; `None` if it has none, as for merged files."""
    match = _BATCH_FILE.match(name)
    return None if match is None else match[1]


def merge_of(name: str) -> str | None:
    """Return the id of the compaction in a merged file's name; `None` for other files."""
    match = _MERGED_FILE.match(name)
    return None if match is None else match[2]


def batch_name(batch: str, number: int) -> str:
    """Return the file name for upload `number` of a batch."""
    return f"b-{batch}-{number}.parquet"


def merged_name(version: int, merge: str) -> str:
    """Return the file name for the output of a compaction."""
    return f"c-{version}-{merge}.parquet"


def partition_values(partition: Partition) -> dict[str, str | None]:
    """Map each column of a partition to its value as a string, as in a Delta log."""
    return {
        name: None if value is None else str(value)
        for name, value in zip(PARTITION, partition, strict=True)
    }


def coded_schema(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with dictionary types for strings that are the same in all rows of a run.

    The run's key is an example. With dictionaries, rows in memory do not repeat these strings.
    """
    code, alike = pa.dictionary(pa.int32(), pa.string()), {*PARTITION, KEY, BATCH}
    return pa.schema(
        [
            pa.field(each.name, code)
            if each.name in alike and pa.types.is_string(each.type)
            else each
            for each in schema
        ]
    )


def statistics(schema: pa.Schema, metadata: pq.FileMetaData) -> str:
    """Return the statistics of a file for Delta's log, as JSON, from the file's own footer.

    The statistics are the number of rows, and the minimum, maximum and null count of each leading
    flat column.
    """
    columns = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in [*schema.names[:STATISTICS_COLUMNS_MAX], BATCH]:
        index = columns.get(name)
        if index is None:
            continue
        bounds = [
            metadata.row_group(group).column(index).statistics
            for group in range(metadata.num_row_groups)
        ]
        if any(part is None or not part.has_null_count for part in bounds):
            continue
        nulls[name] = sum(part.null_count for part in bounds)
        some = [part for part in bounds if part.has_min_max]
        # a row group that contains only nulls has no minimum, and needs none
        if not some or any(part.num_values and not part.has_min_max for part in bounds):
            continue
        low, high = min(part.min for part in some), max(part.max for part in some)
        if name == KEY or not (_long(low) or _long(high)):
            least[name], greatest[name] = _plain(low), _plain(high)
    stats: Mapping[str, Any] = {
        "numRecords": metadata.num_rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
    }
    return json.dumps(stats, ensure_ascii=False, separators=(",", ":"))


def _long(value: Any) -> bool:
    return isinstance(value, str | bytes) and len(value) > STATISTICS_TEXT_MAX


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value.isoformat() if isinstance(value, dt.date) else value
