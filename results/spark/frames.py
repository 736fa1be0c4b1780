"""Reads the visible files of a lake's tables as Spark DataFrames with the tables' schemas.

| where the lake is | how a table is read                                                         |
|-------------------|-----------------------------------------------------------------------------|
| a folder          | `spark.read.parquet` of its files, on executors that all see the folder     |
| an object store   | few files per task, which an executor opens with pyarrow (`mapInArrow`)     |

Neither way needs a jar. The snapshot has the list of files, so no Delta reader is needed; and
`hadoop-aws`, which plain PySpark lacks, is not needed either. Executors get the driver's `AWS_*`
settings.

Files also contain the partition columns, so these have their types, too. Columns that a file of an
older schema lacks are null.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import UsageError
from results.facts.schema import ddl
from results.lake.log.files import FileRef
from results.lake.log.location import Place
from results.lake.log.run_streams import conforming
from results.lake.log.snapshot import Snapshot
from results.lake.log.storage_errors import troubles

TASKS_MAX: Final = 64
BATCH_ROWS: Final = 8_192  # limits the memory of a task: a row group may be a gigabyte
_GLOB: Final = re.compile(r"([\\*?\[\]{}])")  # special characters of Hadoop's path patterns
_ITSELF: Final = r"\\\1"


def lake_frame(
    spark: Any,
    snapshot: Snapshot,
    table: str,
    *,
    columns: Sequence[str] | None = None,
) -> Any:
    """Return the visible rows of a table as a lazy DataFrame, with all columns or `columns`."""
    schema = snapshot.schemas[table]
    if columns is not None:
        schema = _chosen(schema, table, columns)
    files = snapshot.files(table)
    if not files:
        return spark.createDataFrame([], ddl(schema))
    if snapshot.place.local:
        paths = [f"file://{_GLOB.sub(_ITSELF, file.uri)}" for file in files]
        return spark.read.schema(ddl(schema)).parquet(*paths)
    return _through_pyarrow(spark, snapshot.place, files, schema)


def _chosen(schema: pa.Schema, table: str, columns: Sequence[str]) -> pa.Schema:
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        raise UsageError(
            f"{table} has no column {unknown[0]!r}; it has {', '.join(schema.names)} "
            "(docs/lake-tables.md)"
        )
    return pa.schema([schema.field(name) for name in columns])


def _through_pyarrow(spark: Any, place: Place, files: Sequence[FileRef], schema: pa.Schema) -> Any:
    from results.spark.session import in_tasks

    # Assign the largest files first, so that all tasks get about equally many bytes.
    ordered = sorted(files, key=lambda file: (-file.size_bytes, file.name))
    tasks = min(TASKS_MAX, len(ordered))
    paths = [f"{file.table}/{file.name}" for file in ordered]
    numbers = [number % tasks for number in range(len(paths))]
    rows = pa.table({"task": pa.array(numbers, pa.int32()), "path": pa.array(paths, pa.string())})
    read = functools.partial(read_files, uri=place.uri, options=place.options, schema=schema)
    return in_tasks(spark.createDataFrame(rows), tasks).mapInArrow(read, ddl(schema))


def read_files(
    batches: Iterable[pa.RecordBatch], *, uri: str, options: Mapping[str, str], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task's files. `batches` has their paths."""
    place = Place(uri, options)
    for batch in batches:
        for path in batch.column("path").to_pylist():
            with troubles(place.uri), place.files.open_input_file(path) as source:
                file = pq.ParquetFile(source)
                names = [name for name in schema.names if name in file.schema_arrow.names]
                for rows in file.iter_batches(BATCH_ROWS, columns=names):
                    yield conforming(rows, schema)
