"""The database's files: a checkpoint, and a log of the commits after the checkpoint.

    checkpoint  the complete state, and the number of the log that continues it, in a checked
                file (`targets.checked_file`)
    wal-N       records: body length, CRC-32 of the length, CRC-32 of the body, body (msgpack)

A commit is acknowledged once its record is synced. Recovery truncates an incomplete record at the
end of the file, because such a record was never acknowledged. A complete record with a wrong
checksum is damage, and the database refuses to start. With `fsync=off`, as in PostgreSQL, commits
are not synced: a kill loses nothing, but a power cut may lose commits.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from harness.env import Disk, File
from harness.errors import TargetError
from targets import checked_file
from targets.hive.sql.protocol import Row
from targets.hive.sql.store import Change, Image, Store

_CHECKPOINT: Final = "checkpoint"
_MAGIC: Final = b"HIVEDB01"
_LENGTH: Final = struct.Struct(">Q")
_CHECKED: Final = struct.Struct(">II")
LOG_BYTES_MAX: Final = 512 * 1024
"""The size of the log, in bytes, above which a checkpoint usually replaces the log."""


class DamagedLogError(TargetError):
    """Durable bytes of the log are damaged, so the database must not start."""


class _Checkpoint(msgspec.Struct, frozen=True):
    log: int
    image: Image


_Record = tuple[Change, ...]
_encode: Final = msgspec.msgpack.Encoder().encode
_checkpoint_of: Final = msgspec.msgpack.Decoder(_Checkpoint, strict=False)
_record_of: Final = msgspec.msgpack.Decoder(_Record)


class Journal:
    """The files of the database. Call `open` once, then `write` for each commit."""

    def __init__(
        self,
        disk: Disk,
        *,
        sync: bool,
        log_bytes_max: int = LOG_BYTES_MAX,
        announce: Callable[[str], None] = lambda _kind: None,
    ) -> None:
        """Use the files on `disk`. With `sync`, sync each commit, like PostgreSQL's `fsync`.

        A log that grows above `log_bytes_max` is replaced by a checkpoint. `announce` publishes the
        steps of a checkpoint as events at which faults may strike.
        """
        self._log_bytes_max = log_bytes_max
        self._announce = announce
        self._disk = disk
        self._sync = sync
        self._number = 1
        self._file: File | None = None
        self.store = Store()

    async def open(self, first: Mapping[str, Sequence[Row]]) -> None:
        """Recover the database, or create it with the rows in `first`.

        Raises `DamagedLogError` or `DamagedFileError`.
        """
        try:
            body = await checked_file.read(self._disk, _CHECKPOINT, _MAGIC)
        except FileNotFoundError:
            changes = [
                Change((table, number), None, dict(row))
                for table, rows in first.items()
                for number, row in enumerate(rows, start=1)
            ]
            self.store.replay(changes)
            await self._write_checkpoint()
        else:
            checkpoint = _checkpoint_of.decode(body)
            self.store, self._number = Store(checkpoint.image), checkpoint.log
        await self._recover()

    async def _recover(self) -> None:
        path = self._path(self._number)
        for other in await self._disk.list("wal-"):
            if other != path:  # a process that was killed during a checkpoint left this file
                await self._disk.remove(other)
        self._file = file = await self._disk.open(path)
        data = await file.read(0, file.size())
        offset = 0
        while (record := _next_record(data, offset, path)) is not None:
            body, offset = record
            self.store.replay(_record_of.decode(body))
        if offset < len(data):
            await file.truncate(offset)
        # A process that was killed may have left unsynced records: make them durable.
        await file.sync()

    async def write(self, changes: tuple[Change, ...]) -> None:
        """Append one commit to the log and sync it. After an `OSError`, the node must exit."""
        assert self._file is not None, "open it first"
        if self._file.size() > self._log_bytes_max:
            await self._roll()
        body = _encode(changes)
        length = _LENGTH.pack(len(body))
        await self._file.append(length + _CHECKED.pack(zlib.crc32(length), zlib.crc32(body)) + body)
        if self._sync:
            await self._file.sync()

    async def _roll(self) -> None:
        """Replace the log with a checkpoint. Meanwhile, no transaction commits."""
        assert self._file is not None, "open it first"
        old = self._path(self._number)
        self._number += 1
        self._announce("checkpoint-due")
        await self._write_checkpoint()
        self._announce("checkpoint-written")
        self._file.close()
        self._file = await self._disk.open(self._path(self._number))
        await self._disk.remove(old)

    async def _write_checkpoint(self) -> None:
        body = _encode(_Checkpoint(self._number, self.store.image()))
        await checked_file.write(self._disk, _CHECKPOINT, _MAGIC, body)

    @staticmethod
    def _path(number: int) -> str:
        return f"wal-{number:08d}"


def _next_record(data: bytes, offset: int, path: str) -> tuple[bytes, int] | None:
    start = offset + _LENGTH.size + _CHECKED.size
    if start > len(data):
        return None
    length = data[offset : offset + _LENGTH.size]
    length_crc, body_crc = _CHECKED.unpack_from(data, offset + _LENGTH.size)
    if zlib.crc32(length) != length_crc:
        raise DamagedLogError(f"{path}: the header of the record at {offset} is damaged")
    end = start + _LENGTH.unpack(length)[0]
    if end > len(data):
        return None
    body = data[start:end]
    if zlib.crc32(body) != body_crc:
        raise DamagedLogError(f"{path}: the record at {offset} is damaged")
    return body, end
