"""Rows as they are stored and sent: records in blocks, so that files are joined as bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from targets.kudu.tserver.mvcc import Record

BLOCK_BYTES_MAX: Final = 256 * 1024
"""Where a block ends, give or take one record."""

_SIZE: Final = struct.Struct(">I")
_encode = msgspec.msgpack.Encoder().encode
_records = msgspec.msgpack.Decoder(list[tuple[bytes, bytes]])


class StoredRows(msgspec.Struct, frozen=True, array_like=True):
    """A tablet's state: `head` without the rows, and blocks of records, older versions of a key
    first. `is_whole`: they are all rows, not what is to be added to those stored before.
    """

    head: bytes
    is_whole: bool
    blocks: list[bytes]


def pack_blocks(records: Iterable[Record]) -> list[bytes]:
    """Records in blocks: each its length in 4 bytes and a msgpack list of pairs."""
    blocks = []
    waiting: list[Record] = []
    size = 0
    for record in records:
        waiting.append(record)
        size += len(record[0]) + len(record[1])
        if size >= BLOCK_BYTES_MAX:
            blocks.append(_block(waiting))
            waiting, size = [], 0
    if waiting:
        blocks.append(_block(waiting))
    return blocks


def _block(records: list[Record]) -> bytes:
    body = _encode(records)
    return _SIZE.pack(len(body)) + body


def read_blocks(parts: Iterable[bytes]) -> Iterator[Record]:
    """The records of blocks, any number of whole ones in each part."""
    for part in parts:
        view = memoryview(part)
        offset = 0
        while offset < len(view):
            (size,) = _SIZE.unpack_from(view, offset)
            offset += _SIZE.size
            yield from _records.decode(view[offset : offset + size])
            offset += size
