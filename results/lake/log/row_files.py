"""Turns rows into files of the lake: checks rows, groups them by partition, orders them by run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import pyarrow as pa

from harness.errors import InternalError, UsageError, shown
from results.lake.log.delta import Addition
from results.lake.log.files import BATCH, KEY, MAIN, PARTITION, Partition
from results.lake.log.location import Place
from results.lake.log.parquet_encoder import Encoded, Encoder


def new_id() -> str:
    """Return a unique id for a batch or a compaction."""
    return uuid.uuid4().hex


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return a table's stored schema: with the batch column, and all columns nullable.

    Engines agree only about nullable columns.
    """
    fields = [pa.field(field.name, field.type) for field in schema]
    return pa.schema([*fields, pa.field(BATCH, pa.string())])


def accept(
    rows: Mapping[str, pa.Table], schemas: Mapping[str, pa.Schema]
) -> tuple[dict[str, pa.Table], dict[str, Partition]]:
    """Check rows; return their stored form without the batch column, and each run's partition.

    Raises `UsageError` for an empty text as target or label. Raises `InternalError` if rows break a
    lake's rules: a run has one row in `runs`, and all its rows have the same partition.
    """
    unknown = sorted(rows.keys() - schemas.keys())
    if unknown or MAIN not in rows:
        raise InternalError(
            f"an append has rows of {unknown or 'no runs'}; a lake has the tables "
            f"{', '.join(schemas)}, and every append needs rows of {MAIN}"
        )
    tables = {table: _conforming(table, rows[table], schemas[table]) for table in schemas
             if table in rows}  # fmt: skip
    main = tables[MAIN]
    partitions: dict[str, Partition] = {}
    for run, *values in zip(*(main[name].to_pylist() for name in (KEY, *PARTITION)), strict=True):
        if run is None or run in partitions:
            raise InternalError(f"an append has the run {run!r} twice, or a run without a key")
        if "" in values:
            raise UsageError(
                f"{PARTITION[values.index('')]} of the run {shown(run)} is empty, and an empty "
                "text cannot name a partition of a lake; give a name, or null"
            )
        partitions[run] = (values[0], values[1], values[2])
    for table, columns in tables.items():
        for run, *values in _heads(columns, {*partitions.values()}):
            if partitions.get(run) != tuple(values):
                raise InternalError(
                    f"{table} has rows of the run {shown(run)} in the partition {values}, but "
                    f"{MAIN} has the run in the partition {partitions.get(run)}"
                )
    return tables, partitions


def _heads(rows: pa.Table, partitions: AbstractSet[Partition]) -> Iterator[tuple[Any, ...]]:
    if len(partitions) == 1:  # the usual case: no grouping by all columns is needed
        (partition,) = partitions
        if all(
            rows[name].unique().to_pylist() in ([], [value])
            for name, value in zip(PARTITION, partition, strict=True)
        ):
            return ((run, *partition) for run in rows[KEY].unique().to_pylist())
    heads = [KEY, *PARTITION]
    distinct = rows.select(heads).group_by(heads).aggregate([])
    return zip(*(distinct[name].to_pylist() for name in heads), strict=True)


def _conforming(table: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    if rows.schema.equals(schema) and all(field.nullable for field in schema):
        return rows
    missing = sorted({*schema.names} - {*rows.column_names})
    if missing or len(rows.column_names) > len(schema.names):
        raise InternalError(
            f"rows of {table} have the columns {rows.column_names}; the table has {schema.names}"
        )
    nullable = pa.schema([pa.field(field.name, field.type) for field in schema])
    return rows.select(nullable.names).cast(nullable)


def stored(rows: pa.Table, batch: str) -> pa.Table:
    """Complete the stored form of rows that `accept` returned: add the batch, order by run."""
    codes = pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
    batches = pa.DictionaryArray.from_arrays(codes, pa.array([batch], pa.string()))
    return in_order(rows.append_column(BATCH, batches))


def in_order(table: pa.Table) -> pa.Table:
    """Order rows by run. Rows of one run keep their order."""
    runs = table[KEY].combine_chunks().dictionary_encode()
    if isinstance(runs, pa.ChunkedArray):
        runs = runs.combine_chunks()
    names = runs.dictionary.to_pylist()
    rank = np.empty(len(names), dtype=np.int64)
    rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    ranks = rank[runs.indices.to_numpy(zero_copy_only=False)]
    if bool(np.all(ranks[1:] >= ranks[:-1])):
        return table
    return table.take(pa.array(np.argsort(ranks, kind="stable")))


def write_parts(
    place: Place, table: str, name: str, schema: pa.Schema, parts: Iterator[pa.Table],
    partition: Partition,
) -> Addition:  # fmt: skip
    """Write a file, one row group after another; return the file's entry for the log."""
    with place.writing(table, name) as sink:
        with Encoder(sink, schema) as encoder:
            for part in parts:
                encoder.write(part)
        size_bytes = sink.tell()
    return Addition(name, size_bytes, *encoder.written(), partition)


def upload(place: Place, table: str, name: str, file: Encoded, partition: Partition) -> Addition:
    """Write an encoded file; return the file's entry for the log."""
    with place.writing(table, name) as sink:
        sink.write(file.content)
    return Addition(name, file.content.size, file.rows, file.statistics, partition)
