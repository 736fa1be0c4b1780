"""Writes and reads the log of a run in progress: append-only, checksummed, one record per op.

A record consists of a length and a CRC-32 (little endian, 4 bytes each), followed by the op's
canonical JSON. Each record is passed to the kernel in one `write` before the op counts as recorded.
So no record is lost if the harness is killed by SIGKILL; a power failure may lose some. The design
follows Jepsen's block format (`jepsen/src/jepsen/store/format.clj`), which has the same purpose.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Final

import msgspec

from harness.errors import HistoryError, InfrastructureError, counted
from harness.ops import Op, encode_op

MAGIC: Final = b"catalog-harness ops 1\n"
RECORD_BYTES_MAX: Final = 256 * 1024 * 1024
_HEADER: Final = struct.Struct("<II")
_LAST_BYTE: Final = ord("}")
_SEARCH_PASSES: Final = 4


class OpLog:
    """The open log of a run. Raises `InfrastructureError` if an op cannot be written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except OSError as error:
            raise InfrastructureError(
                f"cannot create the op log {path}: {error.strerror}"
            ) from error
        self._write(MAGIC)

    def append(self, op: Op) -> None:
        """Record one op. After the return, a crash of this process cannot lose it."""
        payload = encode_op(op)
        if len(payload) > RECORD_BYTES_MAX:
            raise InfrastructureError(
                f"op {op.index} ({op.f}) takes {len(payload)} bytes; "
                f"the limit of a record is {RECORD_BYTES_MAX}"
            )
        self._write(_HEADER.pack(len(payload), zlib.crc32(payload)) + payload)

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                written = os.write(self._fd, left)
            except OSError as error:
                raise InfrastructureError(
                    f"the op log {self._path} cannot be written: {error.strerror}; "
                    "free some space or choose another --store"
                ) from error
            left = left[written:]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OpTail:
    """Reads a log that another process writes. Each `read` returns the new ops."""

    def __init__(self, path: Path) -> None:
        """Prepare to read the file, which need not exist yet."""
        self._path = path
        self._offset = 0
        self._rest = b""
        self._decoder = msgspec.json.Decoder(Op)

    def read(self) -> list[Op]:
        """Return the ops that were written since the last call.

        A record that is still being written is left for the next call. Raises `HistoryError` for a
        damaged record.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise HistoryError(f"cannot read {str(self._path)!r}: {error}") from error
        begin = len(MAGIC) if self._offset == 0 else 0
        if self._offset == 0 and len(new) < begin:
            return []
        self._offset += len(new)
        data, offset = self._rest + new[begin:], 0
        ops: list[Op] = []
        while (payload := _payload(data, offset)) is not None:
            _, crc = _HEADER.unpack_from(data, offset)
            if zlib.crc32(payload) != crc:
                raise HistoryError(f"{str(self._path)!r} is damaged after {len(ops)} new ops")
            ops.append(self._decoder.decode(payload))
            offset += _HEADER.size + len(payload)
        self._rest = data[offset:]
        return ops


def read_log(path: Path) -> tuple[list[Op], str | None]:
    """Return the ops of a log, and a sentence about its incomplete end, or `None`.

    Raises `HistoryError` for damage that a crash cannot explain (a bad record followed by more
    records).
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise HistoryError(f"cannot read {str(path)!r}: {error.strerror}") from error
    if not data.startswith(MAGIC):
        if MAGIC.startswith(data):
            return [], f"{path} was cut within its first {len(MAGIC)} bytes"
        raise HistoryError(f"{str(path)!r} is not an op log: it does not start with {MAGIC!r}")
    decoder = msgspec.json.Decoder(Op)
    ops: list[Op] = []
    offset = len(MAGIC)
    while offset < len(data):
        payload = _payload(data, offset)
        if payload is None:
            following = _next_record(data, offset)
            if following is not None:
                raise HistoryError(
                    f"{str(path)!r} is damaged at byte {offset}: op record {len(ops)} claims to "
                    "go beyond the end of the file, but another record begins at byte "
                    f"{following}; restore the file from a copy"
                )
            return ops, (
                f"{path} ends in a torn record at byte {offset}: "
                f"{counted(len(ops), 'op')} recovered, "
                f"{counted(len(data) - offset, 'byte')} dropped"
            )
        end = offset + _HEADER.size + len(payload)
        _, crc = _HEADER.unpack_from(data, offset)
        if zlib.crc32(payload) != crc:
            if end == len(data):
                return ops, (
                    f"{path} ends in a torn record at byte {offset}: "
                    f"{counted(len(ops), 'op')} recovered"
                )
            raise HistoryError(
                f"{str(path)!r} is damaged at byte {offset}: the checksum of op record "
                f"{len(ops)} does not match, and {len(data) - end} bytes follow it; "
                "restore the file from a copy"
            )
        try:
            ops.append(decoder.decode(payload))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise HistoryError(f"{str(path)!r} holds no op at byte {offset}: {error}") from error
        offset = end
    return ops, None


def _payload(data: bytes, offset: int) -> bytes | None:
    """Return the op's JSON in the record at `offset`; `None` if the file ends inside it."""
    if offset + _HEADER.size > len(data):
        return None
    length, _ = _HEADER.unpack_from(data, offset)
    start = offset + _HEADER.size
    if start + length > len(data):
        return None
    return data[start : start + length]


def _next_record(data: bytes, offset: int) -> int | None:
    """Return the offset of the next whole record after the header at `offset`, or `None`.

    Only the last record of a log can be incomplete. If a whole record follows, the record has a
    damaged length instead. The search looks for `{"`, since every payload begins with this and ends
    with `}`. It computes checksums over at most `_SEARCH_PASSES` times the size of the file. Text
    never looks like a header, so a log that needs more checksums was forged, and the next candidate
    counts as a record.
    """
    view = memoryview(data)
    left = _SEARCH_PASSES * len(data)
    at = data.find(b'{"', offset + 2 * _HEADER.size)
    while at != -1:
        length, crc = _HEADER.unpack_from(data, at - _HEADER.size)
        if 2 <= length <= len(data) - at and data[at + length - 1] == _LAST_BYTE:
            left -= length
            if left < 0 or zlib.crc32(view[at : at + length]) == crc:
                return at - _HEADER.size
        at = data.find(b'{"', at + 1)
    return None
