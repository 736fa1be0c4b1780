"""Rows on the wire: writes in `RowOperationsPB`, and the answers of scans in sidecars.

A written row is a byte for the kind of operation, a bitmap of the columns that the row sets, a
bitmap of its nulls (only if the schema has a nullable column), and the cells that are set and not
null, little-endian. A text is its offset in a second buffer and its length, 8 bytes each
(`common/row_operations.cc`).

A scanned row has a cell for every column of the projection, and a bitmap of its nulls at its end if
the projection has a nullable column (`common/wire_protocol.cc`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from targets.apache_kudu.wire.protobuf import WireFormatError
from targets.kudu.messages import Column, RowOperation, Value

_PACKED: Final = {
    "INT8": struct.Struct("<b"),
    "INT16": struct.Struct("<h"),
    "INT32": struct.Struct("<i"),
    "INT64": struct.Struct("<q"),
    "BOOL": struct.Struct("<?"),
    "FLOAT": struct.Struct("<f"),
    "DOUBLE": struct.Struct("<d"),
    "UNIXTIME_MICROS": struct.Struct("<q"),
}
_POINTER: Final = struct.Struct("<QQ")
_TYPES: Final = {
    2: "INT8",
    3: "INT16",
    5: "INT32",
    7: "INT64",
    8: "STRING",
    9: "BOOL",
    10: "FLOAT",
    11: "DOUBLE",
    12: "BINARY",
    13: "UNIXTIME_MICROS",
}
"""Kudu's `DataType`, by number."""
NUMBERS: Final = {name: number for number, name in _TYPES.items()}


def type_name(number: int) -> str:
    """The name of a column's type. Raises `WireFormatError` for a type that is not supported."""
    if number not in _TYPES:
        raise WireFormatError(f"the type {number} of a column is not supported")
    return _TYPES[number]


class PackedRows(NamedTuple):
    """Rows and the buffer with their texts."""

    rows: bytes
    indirect_data: bytes


def pack(columns: Sequence[Column], operations: Iterable[RowOperation]) -> PackedRows:
    """Encode writes of rows whose keys are the key columns among `columns`, in order.

    Raises `WireFormatError` for a value of an unknown column.
    """
    nullable = any(column.is_nullable for column in columns)
    keys = [column.id for column in columns if column.is_key]
    rows, texts = bytearray(), bytearray()
    for operation in operations:
        cells: dict[int, Value] = dict(zip(keys, operation.key, strict=True))
        cells.update(operation.values)
        unknown = cells.keys() - {column.id for column in columns}
        if unknown:
            raise WireFormatError(f"the schema has no columns with the ids {sorted(unknown)}")
        rows.append(operation.kind)
        rows += _bitmap([column.id in cells for column in columns])
        if nullable:
            rows += _bitmap([column.id in cells and cells[column.id] is None for column in columns])
        for column in columns:
            value = cells.get(column.id)
            if value is not None:
                _pack_cell(column, value, rows, texts)
    return PackedRows(bytes(rows), bytes(texts))


def _pack_cell(column: Column, value: Value, rows: bytearray, texts: bytearray) -> None:
    if column.type in _PACKED:
        rows += _PACKED[column.type].pack(value)
        return
    data = value.encode() if isinstance(value, str) else bytes(value)  # type: ignore[arg-type]
    rows += _POINTER.pack(len(texts), len(data))
    texts += data


def unpack(
    columns: Sequence[Column], count: int, rows: bytes, texts: bytes
) -> list[tuple[Value, ...]]:
    """Decode `count` scanned rows of the projection `columns`. Raises `WireFormatError`."""
    widths = [_width(column) for column in columns]
    nulls_at = sum(widths)
    nullable = any(column.is_nullable for column in columns)
    width = nulls_at + (_bitmap_bytes(len(columns)) if nullable else 0)
    if len(rows) != count * width:
        raise WireFormatError(f"{count} rows of {width} bytes have {len(rows)} bytes")
    unpacked: list[tuple[Value, ...]] = []
    for begin in range(0, len(rows), width or 1):
        at, cells = begin, []
        for position, (column, size) in enumerate(zip(columns, widths, strict=True)):
            bit = rows[begin + nulls_at + position // 8] >> (position % 8) & 1 if nullable else 0
            cells.append(None if bit else _unpack_cell(column, rows, at, texts))
            at += size
        unpacked.append(tuple(cells))
    return unpacked


def _unpack_cell(column: Column, rows: bytes, at: int, texts: bytes) -> Value:
    if column.type in _PACKED:
        (number,) = _PACKED[column.type].unpack_from(rows, at)
        return number  # type: ignore[no-any-return]
    offset, size = _POINTER.unpack_from(rows, at)
    if offset + size > len(texts):
        raise WireFormatError("a cell lies outside of the buffer of texts")
    data = texts[offset : offset + size]
    return data if column.type == "BINARY" else data.decode("utf-8", "replace")


def _width(column: Column) -> int:
    packed = _PACKED.get(column.type, _POINTER)
    return packed.size


def _bitmap_bytes(count: int) -> int:
    return (count + 7) // 8


def _bitmap(bits: Sequence[bool]) -> bytes:
    number = sum(1 << position for position, bit in enumerate(bits) if bit)
    return number.to_bytes(_bitmap_bytes(len(bits)), "little")
