"""Encodes keys and maps them to tablets, for clients, masters and tablet servers.

**Keys.** Encoded keys sort in the same order as their values (Kudu's `common/key_encoder.h`).
Numbers are big-endian with the sign flipped. Text and bytes are unchanged in the last column. In
other columns, 00 01 replaces each zero byte, and 00 00 marks the end.

**Partitions.** A partition key is the hash bucket as a 4-byte big-endian number (if there is more
than one bucket), followed by the encoded range columns (`common/partition.h`). A tablet has the
partition keys `[start, end)`. An empty start or end is unbounded. A table's tablets cover every key
exactly once, unless the table has bounded ranges: then no tablet has the keys outside the ranges.
The bucket is a hash of the encoded hash columns (`PartitionSchema.hash_of`).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from typing import Final

from targets.kudu.messages import Column, Partition, PartitionSchema, Schema, Value

_INT_BYTES: Final = {"INT8": 1, "INT16": 2, "INT32": 4, "INT64": 8, "UNIXTIME_MICROS": 8}
_TEXT_END: Final = b"\x00\x00"
_BUCKET_BYTES: Final = 4
_FLOAT_MAX: Final = (2 - 2**-23) * 2.0**127


def fits(value: Value, column_type: str) -> bool:
    """Whether a value that is not null fits a column of that type."""
    size = _INT_BYTES.get(column_type)
    if size is not None:
        limit = 1 << (8 * size - 1)
        return type(value) is int and -limit <= value < limit
    if column_type == "STRING":
        return type(value) is str
    if column_type == "BINARY":
        return type(value) is bytes
    if column_type == "BOOL":
        return type(value) is bool
    if column_type == "FLOAT":
        return type(value) is float and not _FLOAT_MAX < abs(value) < float("inf")
    return column_type == "DOUBLE" and type(value) is float


def key_columns(schema: Schema) -> tuple[Column, ...]:
    """Return the key columns, in order."""
    return tuple(column for column in schema.columns if column.is_key)


def encode_key(columns: Sequence[Column], values: Sequence[Value]) -> bytes:
    """Encode a key. Raises `ValueError` if a value is missing or does not fit its column."""
    if len(columns) == 1 == len(values) and columns[0].type == "STRING":
        value = values[0]
        if type(value) is str:
            # the most frequent case by far: each row takes this path a dozen times
            return value.encode()
    if len(values) != len(columns):
        raise ValueError(f"the key {values!r} has {len(values)} values; it needs {len(columns)}")
    parts = []
    for position, (column, value) in enumerate(zip(columns, values, strict=True)):
        if not fits(value, column.type):
            raise ValueError(
                f"the value {value!r} does not fit the key column {column.name!r} of type "
                f"{column.type}"
            )
        parts.append(_encode_value(column.type, value, is_last=position == len(columns) - 1))
    return b"".join(parts)


def _encode_value(column_type: str, value: Value, *, is_last: bool) -> bytes:
    size = _INT_BYTES.get(column_type)
    if size is not None:
        assert isinstance(value, int), value
        return (value + (1 << (8 * size - 1))).to_bytes(size, "big")
    if column_type not in {"STRING", "BINARY"}:
        raise ValueError(f"a column of type {column_type} cannot be part of a key")
    assert isinstance(value, str | bytes), value
    if isinstance(value, str):
        value = value.encode()
    return value if is_last else value.replace(b"\x00", b"\x00\x01") + _TEXT_END


def decode_key(columns: Sequence[Column], key: bytes) -> tuple[Value, ...]:
    """Decode the values of an encoded key."""
    if len(columns) == 1 and columns[0].type == "STRING":
        return (key.decode(),)
    values: list[Value] = []
    offset = 0
    for position, column in enumerate(columns):
        size = _INT_BYTES.get(column.type)
        if size is not None:
            number = int.from_bytes(key[offset : offset + size], "big")
            values.append(number - (1 << (8 * size - 1)))
            offset += size
            continue
        if position == len(columns) - 1:
            raw = key[offset:]
        else:
            # The first 00 00 is the end, because an escaped zero is 00 01.
            end = key.index(_TEXT_END, offset)
            raw = key[offset:end].replace(b"\x00\x01", b"\x00")
            offset = end + len(_TEXT_END)
        values.append(raw if column.type == "BINARY" else raw.decode())
    return tuple(values)


def partition_key(
    partition_schema: PartitionSchema, columns: Sequence[Column], values: Sequence[Value]
) -> bytes:
    """Return the partition key of a row with these key values; `columns` are the key columns."""
    buckets = partition_schema.num_hash_buckets
    if buckets == 1 and not partition_schema.range_columns:
        return b""
    ranged = b""
    if partition_schema.range_columns:
        ranged = _encode_some(partition_schema.range_columns, columns, values)
    if buckets == 1:
        return ranged
    for custom in partition_schema.custom_ranges:
        if custom.start <= ranged < custom.end:
            buckets = custom.num_hash_buckets
    hashed = _encode_some(partition_schema.hash_columns or None, columns, values)
    return _prefix(partition_schema.hash_of(hashed) % buckets) + ranged


def _encode_some(
    names: Iterable[str] | None, columns: Sequence[Column], values: Sequence[Value]
) -> bytes:
    if names is None:
        return encode_key(columns, values)
    positions = {column.name: position for position, column in enumerate(columns)}
    chosen = [positions[name] for name in names]
    return encode_key([columns[p] for p in chosen], [values[p] for p in chosen])


def partition_count(partition_schema: PartitionSchema) -> int:
    """Return the number of tablets of a table with this partitioning."""
    return partition_schema.num_hash_buckets * (len(partition_schema.range_splits) + 1)


def partitions_of(partition_schema: PartitionSchema) -> tuple[Partition, ...]:
    """Return the partitions of a table in key order; they cover every key exactly once."""
    buckets, splits = partition_schema.num_hash_buckets, partition_schema.range_splits
    prefixes = [_prefix(bucket) for bucket in range(buckets)] if buckets > 1 else [b""]
    starts = [prefix + split for prefix in prefixes for split in (b"", *splits)]
    starts[0] = b""
    return tuple(
        Partition(start, end) for start, end in zip(starts, [*starts[1:], b""], strict=True)
    )


def range_partitions(
    partition_schema: PartitionSchema, start: bytes, end: bytes, num_hash_buckets: int
) -> tuple[Partition, ...]:
    """Return the partitions of one bounded range, one per bucket, in key order."""
    if partition_schema.num_hash_buckets == 1:
        return (Partition(start, end),)
    prefixes = map(_prefix, range(num_hash_buckets))
    return tuple(Partition(prefix + start, prefix + end) for prefix in prefixes)


def range_of(partition_schema: PartitionSchema, partition: Partition) -> tuple[bytes, bytes]:
    """Return start and end of the range to which a partition of `range_partitions` belongs."""
    skipped = _BUCKET_BYTES if partition_schema.num_hash_buckets > 1 else 0
    return partition.start[skipped:], partition.end[skipped:]


def _prefix(bucket: int) -> bytes:
    return bucket.to_bytes(_BUCKET_BYTES, "big")


def owns(partition: Partition, key: bytes) -> bool:
    """Whether a partition key lies in the partition."""
    return partition.start <= key and (not partition.end or key < partition.end)


def tablet_position(starts: Sequence[bytes], key: bytes) -> int:
    """Return the index of the partition that has a key; `starts` are the partitions' first keys."""
    return bisect.bisect_right(starts, key) - 1
