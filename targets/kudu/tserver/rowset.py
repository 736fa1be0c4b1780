"""The rows of a tablet on disk: immutable files, which the Raft snapshot lists.

A snapshot writes the changes since the last snapshot to a new file, so its cost depends on the
number of writes, not on the number of rows. Small adjacent files are merged by size, as in a
log-structured merge tree (O'Neil et al., 1996). Up to `FILE_BYTES_MAX`, each file is at least twice
as large as the next one. Dead versions disappear when the state machine writes all rows instead of
changes, which it does before the files become much larger than twice the live bytes.

A crash at any point is harmless. A manifest is written only when the files that it names are
durable, and files are removed only when a manifest without them is written. The next start removes
leftovers.

Rows are stored and sent as records in blocks, so that files can be merged as bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from harness.env import Disk
from targets import checked_file
from targets.kudu.tserver.mvcc import Record

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Maximum size of a merged file. It bounds the time and memory of a merge."""

BLOCK_BYTES_MAX: Final = 256 * 1024
"""The size in bytes at which a block ends. Its last record may exceed this size."""

_SIZE: Final = struct.Struct(">I")
_records = msgspec.msgpack.Decoder(list[tuple[bytes, bytes]])
_MAGIC: Final = b"KROWS001"
_PREFIX: Final = "/rows-"
_encode = msgspec.msgpack.Encoder().encode


class StoredRows(msgspec.Struct, frozen=True, array_like=True):
    """A tablet's state: `head` is the state without the rows, and `blocks` has the row versions.

    If `is_whole`, the blocks have all versions. Otherwise they have the versions since the last
    snapshot. A key's versions are in order, the oldest first.
    """

    head: bytes
    is_whole: bool
    blocks: list[bytes]


_stored = msgspec.msgpack.Decoder(StoredRows)


class _Manifest(msgspec.Struct, frozen=True, array_like=True):
    """The head of a tablet's state, and its row files as (number, size in bytes), oldest first."""

    head: bytes
    files: tuple[tuple[int, int], ...]


_manifests = msgspec.msgpack.Decoder(_Manifest)


class RowFiles:
    """The row files of one replica. Calls of the methods must not overlap."""

    def __init__(self, disk: Disk, folder: str, digest: Callable[[], bytes]) -> None:
        """Store files in `folder`; `digest` returns the digest of the tablet's whole state."""
        self._disk = disk
        self._prefix = folder + _PREFIX
        self.digest = digest
        self._files: list[tuple[int, int]] = []
        self._obsolete: list[int] = []
        self._number_next: int | None = None  # `None` until the folder has been read

    @property
    def counters(self) -> dict[str, int]:
        return {"row files": len(self._files), "row bytes": sum(size for _, size in self._files)}

    def _path(self, number: int) -> str:
        return f"{self._prefix}{number:010d}"

    async def _look(self) -> int:
        """Return the next file number; the first call reads the folder.

        Files in the folder that the manifest does not name become obsolete.
        """
        if self._number_next is None:
            self._number_next = 1
            named = {number for number, _ in self._files}
            for path in await self._disk.list(self._prefix):
                number = int(path.removeprefix(self._prefix))
                self._number_next = max(self._number_next, number + 1)
                if number not in named:
                    self._obsolete.append(number)
        return self._number_next

    async def load(self, manifest: bytes) -> bytes:
        content = _manifests.decode(manifest)
        self._files = list(content.files)
        await self._look()
        parts = [await self._read(number) for number, _ in self._files]
        return _encode(StoredRows(content.head, True, parts))

    async def _read(self, number: int) -> bytes:
        return await checked_file.read(self._disk, self._path(number), _MAGIC)

    async def save(self, taken: bytes) -> bytes:
        stored = _stored.decode(taken)
        await self._look()
        if stored.is_whole:
            self._obsolete += [number for number, _ in self._files]
            self._files = []
        for body in _grouped(stored.blocks):
            await self._add(body)
        return _encode(_Manifest(stored.head, tuple(self._files)))

    async def _add(self, body: bytes) -> None:
        """Write `body` as a new file, together with earlier files that are not much larger."""
        joined: list[int] = []
        size = len(body)
        while self._files:
            number, before = self._files[-1]
            if before >= 2 * size or before + size > FILE_BYTES_MAX:
                break
            self._files.pop()
            joined.insert(0, number)
            size += before
        parts = [await self._read(number) for number in joined]
        number = await self._look()
        self._number_next = number + 1
        await checked_file.write(self._disk, self._path(number), _MAGIC, b"".join([*parts, body]))
        self._files.append((number, size))
        self._obsolete += joined

    async def sweep(self) -> None:
        while self._obsolete:
            await self._disk.remove(self._path(self._obsolete[-1]))
            self._obsolete.pop()


def _grouped(blocks: Sequence[bytes]) -> list[bytes]:
    files: list[bytes] = []
    group: list[bytes] = []
    size = 0
    for block in blocks:
        if group and size + len(block) > FILE_BYTES_MAX:
            files.append(b"".join(group))
            group, size = [], 0
        group.append(block)
        size += len(block)
    return [*files, b"".join(group)] if group else files


# --- blocks --------------------------------------------------------------------------------------


def pack_blocks(records: Iterable[Record]) -> list[bytes]:
    """Pack records into blocks: a 4-byte length, followed by a msgpack list of records."""
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
    """Iterate over the records in blocks; each of `parts` has any number of whole blocks."""
    for part in parts:
        view = memoryview(part)
        offset = 0
        while offset < len(view):
            (size,) = _SIZE.unpack_from(view, offset)
            offset += _SIZE.size
            yield from _records.decode(view[offset : offset + size])
            offset += size
