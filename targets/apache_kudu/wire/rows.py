"""Rows on the wire: writes in `RowOperationsPB`, and the answers of scans in sidecars.

A written row consists of a byte for the kind of operation, a bitmap of the columns that the row
sets, a bitmap of its nulls (only if the schema has a nullable column), and the cells that are set
and not null, in little-endian order. A text's cell has 8 bytes for its offset in a second buffer,
and 8 bytes for its length (`common/row_operations.cc`).

A scanned row has a cell for every column of the projection. If the projection has a nullable
column, a bitmap of the row's nulls follows (`common/wire_protocol.cc`).

Clients `pack` writes and `unpack` scanned rows. Servers `read_operations` and `pack_rows`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from targets.apache_kudu.wire.protobuf import WireFormatError
from targets.kudu.messages import Column, RowKind, RowOperation, Value

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
_KINDS: Final = frozenset(map(int, RowKind))
NUMBERS: Final = {name: number for number, name in _TYPES.items()}


def type_name(number: int) -> str:
    """Return the name of a column type. Raises `WireFormatError` for an unsupported type."""
    if number not in _TYPES:
        raise WireFormatError(f"the type {number} of a column is not supported")
    return _TYPES[number]


class PackedRows(NamedTuple):
    """Encoded rows, and the buffer with their strings."""

    rows: bytes
    indirect_data: bytes


def pack(columns: Sequence[Column], operations: Iterable[RowOperation]) -> PackedRows:
    """Encode writes of rows. Each key has the values of the key columns, in order.

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


def read_operations(
    columns: Sequence[Column], rows: bytes, texts: bytes, *, rows_max: int
) -> tuple[RowOperation, ...]:
    """Decode writes of at most `rows_max` rows with these columns. Raises `WireFormatError`."""
    nullable = any(column.is_nullable for column in columns)
    size, at, taken = _bitmap_bytes(len(columns)), 0, 0
    operations: list[RowOperation] = []
    while at < len(rows):
        if len(operations) == rows_max:
            raise WireFormatError(f"the write has more than {rows_max} rows")
        bitmaps = at + 1
        cells_at = bitmaps + (2 * size if nullable else size)
        if cells_at > len(rows) or rows[at] not in _KINDS:
            raise WireFormatError(f"a row has the unknown kind {rows[at]}, or no cells")
        kind, at = RowKind(rows[at]), cells_at
        cells: dict[int, Value] = {}
        for position, column in enumerate(columns):
            if not _bit(rows, bitmaps, position):
                continue
            if nullable and _bit(rows, bitmaps + size, position):
                cells[column.id] = None
                continue
            if at + _width(column) > len(rows):
                raise WireFormatError("the last row is not complete")
            if column.type not in _PACKED:
                taken += _POINTER.unpack_from(rows, at)[1]
                if taken > len(texts):  # cells that share bytes could make the rows huge
                    raise WireFormatError("the cells have more bytes than the buffer of texts")
            cells[column.id] = _unpack_cell(column, rows, at, texts)
            at += _width(column)
        try:
            key = tuple(cells.pop(column.id) for column in columns if column.is_key)
        except KeyError as error:
            raise WireFormatError("a row lacks a part of its key") from error
        operations.append(RowOperation(kind, key, cells))
    return tuple(operations)


def pack_rows(columns: Sequence[Column], rows: Iterable[Sequence[Value]]) -> PackedRows:
    """Encode scanned rows of the projection `columns`."""
    nullable = any(column.is_nullable for column in columns)
    packed, texts = bytearray(), bytearray()
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            if value is None:
                packed += bytes(_width(column))
            else:
                _pack_cell(column, value, packed, texts)
        if nullable:
            packed += _bitmap([value is None for value in row])
    return PackedRows(bytes(packed), bytes(texts))


def read_cell(column: Column, data: bytes) -> Value:
    """Return the value of a single cell, as in a predicate. Raises `WireFormatError`."""
    if column.type not in _PACKED:
        return data if column.type == "BINARY" else data.decode("utf-8", "replace")
    if len(data) != _width(column):
        raise WireFormatError(f"{len(data)} bytes are not a value of the type {column.type}")
    return _unpack_cell(column, data, 0, b"")


def unpack(
    columns: Sequence[Column], count: int, rows: bytes, texts: bytes
) -> list[tuple[Value, ...]]:
    """Decode `count` scanned rows of the projection `columns`. Raises `WireFormatError`."""
    widths = [_width(column) for column in columns]
    nulls_at = sum(widths)
    nullable = any(column.is_nullable for column in columns)
    width = nulls_at + (_bitmap_bytes(len(columns)) if nullable else 0)
    if len(rows) != count * width:
        raise WireFormatError(f"{count} rows of {width} bytes each do not fill {len(rows)} bytes")
    unpacked: list[tuple[Value, ...]] = []
    for begin in range(0, len(rows), width or 1):
        at, cells = begin, []
        for position, (column, size) in enumerate(zip(columns, widths, strict=True)):
            is_null = nullable and _bit(rows, begin + nulls_at, position)
            cells.append(None if is_null else _unpack_cell(column, rows, at, texts))
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


def _bit(data: bytes, begin: int, position: int) -> bool:
    return bool(data[begin + position // 8] >> (position % 8) & 1)


def _bitmap_bytes(count: int) -> int:
    return (count + 7) // 8


def _bitmap(bits: Sequence[bool]) -> bytes:
    number = sum(1 << position for position, bit in enumerate(bits) if bit)
    return number.to_bytes(_bitmap_bytes(len(bits)), "little")
