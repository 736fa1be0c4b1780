"""The write-ahead log of a replica: append-only segments over `Env.disk`.

A segment `wal-NNNNNNNNNN` consists of a header and records. A record is a group commit: it has all
entries that were queued while the previous record was written. One sync makes the whole record
durable.

    header  magic, segment number, CRC-32
    record  magic, body length, CRC-32 of both, CRC-32 of the body, body (msgpack)

A truncation is an append, as in Kudu's log: an entry whose index is at or below the last index
replaces the log's tail from that index on. Nothing on disk is changed in place.

**Torn or corrupt?** A power cut leaves a prefix of the unsynced bytes, because the file system
writes data before it extends the file. So the last segment may end in a torn record, which recovery
cuts off. Damaged bytes that *were* synced must never be cut off silently, because acknowledged
entries would be lost. A record is therefore torn only if the file ends within it. A record that is
complete but wrong is corrupt, and start-up fails with `WalCorruptionError`. (Alagappan et al.,
"Protocol-Aware Recovery for Consensus-Based Storage", FAST 2018, covers file systems without this
guarantee.)
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import struct
import zlib
from collections.abc import Callable
from typing import Final

import msgspec

from harness.env import Env, File
from harness.exact import whole_number
from targets.kudu.consensus.messages import Entry, OpId

_HEADER_MAGIC: Final = b"KWAL0001"
_HEADER: Final = struct.Struct(">8sQI")
_RECORD_MAGIC: Final = b"\xd7KWR"
_RECORD_CHECKED: Final = struct.Struct(">4sQ")
_RECORD: Final = struct.Struct(">12sII")


class WalCorruptionError(Exception):
    """Durable bytes of the log are damaged or missing, so the replica must not start from it."""


class _Append(msgspec.Struct, frozen=True, array_like=True):
    preceding_term: int
    entries: tuple[Entry, ...]


_encode = msgspec.msgpack.Encoder().encode
_BODY_DECODER: Final = msgspec.msgpack.Decoder(tuple[_Append, ...])


@dataclasses.dataclass(slots=True)
class _Segment:
    number: int
    path: str
    last_index: int = 0
    size: int = 0  # bytes


class Wal:
    """The write-ahead log of one replica. Call `recover` once, then `append`.

    The caller spawns the task `run`, which calls `on_durable(sequence)` once all appends up to
    number `sequence` are durable. With `sync` off (Kudu's default), appends count as durable
    without a sync. A power cut may then lose entries, but a kill of the process does not.
    """

    def __init__(
        self,
        env: Env,
        folder: str,
        *,
        sync: bool,
        segment_bytes: int,
        segments_min: int,
        on_durable: Callable[[int], None],
    ) -> None:
        self._env = env
        self._prefix = f"{folder}/wal-"
        self._sync = sync
        self._segment_bytes = segment_bytes
        self._segments_min = max(1, segments_min)
        self._on_durable = on_durable
        self._segments: list[_Segment] = []
        self._number_next = 1
        self._file: File | None = None
        self._queue: list[tuple[int, _Append]] = []
        self._wake: asyncio.Future[None] | None = None
        self._writing = asyncio.Lock()

    # --- recovery ---------------------------------------------------------------------------

    async def recover(self, base: OpId) -> list[Entry]:
        """Read the log and return the entries after `base`, the last entry of the snapshot.

        Truncates a torn tail. Omits entries that do not continue the snapshot. The disk has such
        entries if the power failed after a leader's snapshot was installed and before the old log
        was removed. Raises `WalCorruptionError`.
        """
        assert not self._segments, "the log was already recovered"
        log = _Replay(base)
        paths = await self._env.disk.list(self._prefix)
        for position, path in enumerate(paths):
            segment = _Segment(self._number_of(path), path)
            if position and segment.number != self._number_next:
                raise WalCorruptionError(
                    f"{path} follows segment {self._number_next - 1}: a segment is missing"
                )
            self._number_next = segment.number
            is_last = position == len(paths) - 1
            if await self._read_segment(segment, log, is_last=is_last):
                self._segments.append(segment)
                self._number_next += 1
        if self._segments:
            # A process that was killed may have left unsynced entries. The replica will acknowledge
            # all recovered entries as durable, so sync them now.
            file = await self._env.disk.open(self._segments[-1].path)
            await file.sync()
            file.close()
        return log.continuation()

    def _number_of(self, path: str) -> int:
        text = path.removeprefix(self._prefix)
        number = whole_number(text)
        if number is None:
            raise WalCorruptionError(f"{path} is not a segment: its name is not wal-NUMBER")
        return number

    async def _read_segment(self, segment: _Segment, log: _Replay, *, is_last: bool) -> bool:
        """Replay a segment; return False if the segment was empty and has been removed.

        A segment is empty if its header was not written before a crash (KUDU-1551), or if a power
        cut lost everything after the header. Without the removal, each such crash would leave one
        more segment.
        """
        data = await self._env.disk.read(segment.path)
        if is_last and len(data) < _HEADER.size:
            await self._env.disk.remove(segment.path)
            return False
        if data[: _HEADER.size] != _pack_header(segment.number):
            raise WalCorruptionError(f"{segment.path}: the segment's header is damaged")
        offset = _HEADER.size
        while offset < len(data):
            record = _parse_record(data, offset, segment.path)
            if record is None:
                if not is_last:
                    raise WalCorruptionError(
                        f"{segment.path}: torn at {offset}, but a later segment follows"
                    )
                file = await self._env.disk.open(segment.path)
                await file.truncate(offset)
                file.close()
                break
            body, end = record
            for append in body:
                log.add(append, f"{segment.path} at {offset}")
                segment.last_index = max(segment.last_index, append.entries[-1].index)
            offset = end
        if is_last and offset == _HEADER.size:
            await self._env.disk.remove(segment.path)
            return False
        segment.size = offset
        return True

    # --- writing ----------------------------------------------------------------------------

    def append(self, sequence: int, preceding: OpId, entries: tuple[Entry, ...]) -> None:
        """Queue entries for the next group commit; `sequence` numbers the appends."""
        assert entries, "the append has no entries"
        self._queue.append((sequence, _Append(preceding.term, entries)))
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def run(self) -> None:
        """Write queued entries until cancelled. After an `OSError`, the node must exit."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._queue:
                self._wake = loop.create_future()
                await self._wake
                self._wake = None
                continue
            await self._writing.acquire()  # cheaper than `async with`, which creates two coroutines
            try:
                queue, self._queue = self._queue, []
                if queue:
                    await self._write(tuple([append for _, append in queue]))
            finally:
                self._writing.release()
            if queue:
                self._on_durable(queue[-1][0])

    async def _write(self, appends: tuple[_Append, ...]) -> None:
        body = _encode(appends)
        size = _RECORD.size + len(body)
        file = self._file
        if file is None or file.size() + size > max(self._segment_bytes, _HEADER.size + size):
            file = await self._roll()
        offset = await file.append(_pack_record(body))
        if self._sync:
            await file.sync()
        segment = self._segments[-1]
        segment.size = offset + size
        for append in appends:
            segment.last_index = max(segment.last_index, append.entries[-1].index)

    async def _roll(self) -> File:
        """Start the next segment.

        The previous segment is synced first, even with `sync` off, because recovery relies on the
        fact that only the last segment can be torn.
        """
        if self._file is not None:
            await self._file.sync()
            self.close()
        number = self._number_next
        self._number_next += 1
        segment = _Segment(number, f"{self._prefix}{number:010d}")
        file = await self._env.disk.open(segment.path)
        assert file.size() == 0, f"{segment.path} exists already"
        await file.append(_pack_header(number))
        self._segments.append(segment)
        self._file = file
        return file

    async def collect(self, index: int) -> None:
        """Remove the oldest segments without entries after `index`, but keep `segments_min`."""
        async with self._writing:
            while len(self._segments) > self._segments_min:
                oldest = self._segments[0]
                if oldest.last_index > index:
                    return
                await self._env.disk.remove(oldest.path)
                del self._segments[0]

    async def reset(self) -> None:
        """Remove all segments and queued entries, because a durable snapshot has replaced them."""
        self._queue.clear()
        async with self._writing:
            self.close()
            # Begin with the newest segment: a crash in between then leaves a log without a gap.
            while self._segments:
                await self._env.disk.remove(self._segments[-1].path)
                del self._segments[-1]

    def close(self) -> None:
        """Close the last segment's file without writing the queued entries."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def counters(self, base_index: int) -> dict[str, int]:
        """Return the log's size in bytes, and its numbers of segments and of removable segments.

        "garbage segments" counts the oldest segments without entries after `base_index`. A later
        segment may have overwritten a segment's last entries. That segment and all later ones are
        needed until a snapshot covers the overwritten indexes.
        """
        old = sum(
            1 for _ in itertools.takewhile(lambda s: s.last_index <= base_index, self._segments)
        )
        return {
            "log bytes": sum(segment.size for segment in self._segments),
            "log segments": len(self._segments),
            "garbage segments": min(old, max(0, len(self._segments) - self._segments_min)),
        }


class _Replay:
    """The log, rebuilt by replaying its records in the order in which they were written."""

    def __init__(self, base: OpId) -> None:
        self._base = base
        self._items: list[tuple[int, Entry]] = []  # (term of the preceding entry, entry)

    def add(self, append: _Append, where: str) -> None:
        """Add one append's entries to the rebuilt log.

        `where` describes the append's place on disk, for errors. Raises `WalCorruptionError` if
        there is a gap that no snapshot covers.
        """
        preceding_term = append.preceding_term
        for entry in append.entries:
            first = self._items[0][1].index if self._items else entry.index
            last = self._items[-1][1].index if self._items else None
            if last is None or entry.index > last + 1:
                if entry.index - 1 > self._base.index:
                    raise WalCorruptionError(
                        f"{where}: entry {entry.index} after {last}, and the snapshot "
                        f"ends at {self._base.index}: entries are missing"
                    )
                self._items.clear()
            elif entry.index <= last:
                del self._items[max(0, entry.index - first) :]
            self._items.append((preceding_term, entry))
            preceding_term = entry.term

    def continuation(self) -> list[Entry]:
        items = [item for item in self._items if item[1].index > self._base.index]
        if not items:
            return []
        preceding_term, first = items[0]
        if (preceding_term, first.index) != (self._base.term, self._base.index + 1):
            return []
        return [entry for _, entry in items]


def _pack_header(number: int) -> bytes:
    crc = zlib.crc32(_HEADER_MAGIC + number.to_bytes(8, "big"))
    return _HEADER.pack(_HEADER_MAGIC, number, crc)


def _pack_record(body: bytes) -> bytes:
    checked = _RECORD_CHECKED.pack(_RECORD_MAGIC, len(body))
    return _RECORD.pack(checked, zlib.crc32(checked), zlib.crc32(body)) + body


def _parse_record(data: bytes, offset: int, path: str) -> tuple[tuple[_Append, ...], int] | None:
    """Parse the record at `offset`; return its appends and the offset of its end.

    Return None if the file ends within the record. Raises `WalCorruptionError`.
    """
    start = offset + _RECORD.size
    if start > len(data):
        return None
    checked, header_crc, body_crc = _RECORD.unpack_from(data, offset)
    magic, size = _RECORD_CHECKED.unpack(checked)
    if magic != _RECORD_MAGIC or zlib.crc32(checked) != header_crc:
        raise WalCorruptionError(f"{path}: the header of the record at {offset} is damaged")
    end = start + size
    if end > len(data):
        return None
    body = data[start:end]
    if zlib.crc32(body) != body_crc:
        raise WalCorruptionError(f"{path}: the record at {offset} is damaged")
    return _BODY_DECODER.decode(body), end
