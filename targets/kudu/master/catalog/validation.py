"""Rules for names, schemas and partitions of tables.

The errors are INVALID_SCHEMA, as in Kudu, with one exception. Kudu cannot even read a schema
(`SchemaFromPB`) if a column has no name or a duplicate name, or if a key column follows another
column. It has no code for this error, so the code is UNKNOWN_ERROR.

Masters assign column ids, and ignore the ids that a client sends. Masters make key columns not
nullable.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import msgspec

from targets.kudu.flags import Flags
from targets.kudu.messages import Column, PartitionSchema, Schema

COLUMN_TYPES: Final = (
    "BINARY",
    "BOOL",
    "DOUBLE",
    "FLOAT",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "STRING",
    "UNIXTIME_MICROS",
)
_NO_KEYS: Final = frozenset({"BOOL", "DOUBLE", "FLOAT"})


def bad_name(what: str, name: str, flags: Flags, *, may_be_empty: bool = False) -> str | None:
    """Return the reason why `name` is not a valid identifier; `None` if it is valid."""
    if not name and not may_be_empty:
        return f"the {what} is empty; give it a name"
    size = len(name.encode())
    if size > flags.max_identifier_length:
        return (
            f"the {what} {name[:40]!r}... has {size} bytes; the limit is "
            f"{flags.max_identifier_length} (flag max_identifier_length)"
        )
    if "\x00" in name:
        return f"the {what} {name!r} contains a null character"
    return None


def bad_column(column: Column, flags: Flags) -> str | None:
    """Return the reason why a table cannot have this column; `None` if it can."""
    if column.type not in COLUMN_TYPES:
        types = ", ".join(COLUMN_TYPES)
        return f"the column {column.name!r} has type {column.type!r}, which is not one of: {types}"
    return bad_name("column name", column.name, flags)


def unreadable_schema(schema: Schema) -> str | None:
    """Return the reason why Kudu could not read the schema at all; `None` if it could."""
    for before, column in itertools.pairwise(schema.columns):
        if column.is_key and not before.is_key:
            return f"the key column {column.name!r} comes after another column; keys come first"
    seen: set[str] = set()  # a set, because the schema may be huge: its size is checked later
    for column in schema.columns:
        if not column.name:
            return "the column name is empty; give it a name"
        if column.name in seen:
            return f"the column name {column.name!r} occurs twice; names are unique in a table"
        seen.add(column.name)
    return None


def bad_schema(schema: Schema, flags: Flags) -> str | None:
    """Return the reason why a table cannot have this schema; `None` if it can."""
    columns = schema.columns
    if not columns or not columns[0].is_key:
        return "the schema does not start with a key column; the first columns must be the key"
    if len(columns) > flags.max_num_columns:
        return (
            f"the schema has {len(columns)} columns; the limit is {flags.max_num_columns} "
            "(flag max_num_columns)"
        )
    for column in columns:
        problem = bad_column(column, flags)
        if problem is not None:
            return problem
        if column.is_key and column.type in _NO_KEYS:
            return f"the key column {column.name!r} has type {column.type}, which a key cannot have"
    return None


def bad_partitioning(partition_schema: PartitionSchema, schema: Schema) -> str | None:
    """Return the reason why a table cannot be partitioned in this way; `None` if it can."""
    buckets, splits = partition_schema.num_hash_buckets, partition_schema.range_splits
    if buckets < 1:
        return f"num_hash_buckets is {buckets}; it must be at least 1"
    keys = tuple(column.name for column in schema.columns if column.is_key)
    hashed, ranged = partition_schema.hash_columns, partition_schema.range_columns
    for kind, names in (("hash", hashed), ("range", ranged)):
        for position, name in enumerate(names):
            if name not in keys:
                return (
                    f"the {kind} column {name!r} is not a key column; the key is {', '.join(keys)}"
                )
            if name in names[:position]:
                return f"the {kind} column {name!r} occurs twice in the partitioning"
    if splits and not ranged:
        return f"there are {len(splits)} range splits, but no range columns"
    if not all(splits) or any(low >= high for low, high in itertools.pairwise(splits)):
        return "the range splits are not ascending: each must be nonempty and above its predecessor"
    return None


def with_ids(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return `columns` with ids from 0, for a new table; key columns become not nullable."""
    return tuple(
        msgspec.structs.replace(
            column, id=position, is_nullable=column.is_nullable and not column.is_key
        )
        for position, column in enumerate(columns)
    )
