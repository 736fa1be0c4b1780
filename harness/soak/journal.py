"""The journal of a soak: one checksummed line per seed, append-only.

`store/<name>/.soak/<case>-<code>.log` begins with a line that identifies the soak, followed by one
line per result. A line is the CRC-32 of its JSON in eight hex digits, a space and the JSON. Each
line is passed to the kernel in one `write`, so killing the soak loses no line. A power cut or a
full disk may leave incomplete lines. Lines with a wrong checksum are ignored, and their seeds
simply run again. If a seed has several lines, the last one counts.

In memory each seed takes eight bytes: the position of its line.

`Lock` excludes a second soak that would write the same runs. The kernel releases the lock when its
process ends.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from harness.errors import InfrastructureError, UsageError
from harness.soak.result import SeedResult

MAGIC: Final = "harness soak journal 1"
LINE_BYTES_MAX: Final = 1024 * 1024
_ABSENT: Final = -1


class Lock:
    """The lock that a soak holds while it runs; raises `UsageError` if another soak holds it."""

    def __init__(self, path: Path) -> None:
        """Take the lock, or raise at once if another soak holds it."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise InfrastructureError(
                f"cannot open {path}: {error.strerror}; choose another --store"
            ) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.read(self._fd, 100).decode(errors="replace").strip()
            os.close(self._fd)
            raise UsageError(
                f"the same soak is already running (process {owner or 'unknown'}); wait for it, "
                "or use another --label, --name or --store"
            ) from error
        # the disk may be full, but the PID is only information for users
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Journal:
    """An open journal of seeds `first .. last`. Raises `InfrastructureError` for disk errors."""

    def __init__(self, path: Path, header: str, first: int, last: int, *, fresh: bool) -> None:
        """Open or create the journal; `fresh` or a different header discards its content."""
        self.path = path
        self._first = first
        self._last = last
        self._offsets = array.array("q", [_ABSENT]) * (last - first + 1)
        self.dropped = 0
        """The number of lines with a wrong checksum, after a power cut, a full disk or a kill."""
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(SeedResult)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b", buffering=0)
            begin = framed(msgspec.json.encode([MAGIC, header]))
            if fresh or not self._load(begin):
                self._offsets = array.array("q", [_ABSENT]) * (last - first + 1)
                self.dropped = 0
                self._file.truncate(0)
                self._end = 0
                self._write(begin)
        except OSError as error:
            raise self._refusal(error) from error

    def _load(self, begin: bytes) -> bool:
        """Find each seed's last valid line; returns whether the journal belongs to this soak."""
        self._file.seek(0)
        with open(self._file.fileno(), "rb", closefd=False) as reader:
            if reader.readline(LINE_BYTES_MAX) != begin:
                return False
            self._end = len(begin)
            for offset, result in self._lines(reader, self._end):
                if self._first <= result.seed <= self._last:
                    self._offsets[result.seed - self._first] = offset
        self._file.truncate(self._end)
        return True

    def _lines(self, reader: BinaryIO, offset: int) -> Iterator[tuple[int, SeedResult]]:
        """Yield each valid line's position and result. Set `_end` to the last full line's end."""
        while line := reader.readline(LINE_BYTES_MAX):
            result = self._result(line)
            if result is None:
                self.dropped += 1
            else:
                yield offset, result
            offset += len(line)
            if line.endswith(b"\n"):
                self._end = offset

    def _result(self, line: bytes) -> SeedResult | None:
        content = content_of(line)
        if content is None:
            return None
        try:
            return self._decoder.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def append(self, result: SeedResult) -> None:
        """Record one result. After the return, a crash of the process does not lose it."""
        line = framed(self._encoder.encode(result))
        try:
            offset = self._end
            self._write(line)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)  # remove an incomplete line
            raise self._refusal(error) from error
        if self._first <= result.seed <= self._last:
            self._offsets[result.seed - self._first] = offset

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            written = self._file.write(left)
            left = left[written or 0 :]
        self._end += len(data)

    def forget(self, seed: int) -> None:
        """Ignore the result of `seed` until a new result is recorded."""
        self._offsets[seed - self._first] = _ABSENT

    def __contains__(self, seed: int) -> bool:
        return self._offsets[seed - self._first] != _ABSENT

    def results(self) -> Iterator[SeedResult]:
        """Yield the last result of each seed of the range, in the order of seeds."""
        with self.path.open("rb") as reader:
            for offset in self._offsets:
                if offset != _ABSENT:
                    reader.seek(offset)
                    result = self._result(reader.readline(LINE_BYTES_MAX))
                    if result is not None:
                        yield result

    def result(self, seed: int) -> SeedResult | None:
        """Return the last result of one seed, or `None` if the journal has none."""
        offset = self._offsets[seed - self._first]
        if offset == _ABSENT:
            return None
        with self.path.open("rb") as reader:
            reader.seek(offset)
            return self._result(reader.readline(LINE_BYTES_MAX))

    def close(self) -> None:
        self._file.close()

    def _refusal(self, error: OSError) -> InfrastructureError:
        return InfrastructureError(
            f"the soak's journal {self.path} cannot be written: {error.strerror}; free some space "
            "or choose another --store, then run the same command again"
        )


def framed(content: bytes) -> bytes:
    """Return JSON as a line with its checksum."""
    return b"%08x %s\n" % (zlib.crc32(content), content)


def content_of(line: bytes) -> bytes | None:
    """Return the JSON of a line, if the line is complete and its checksum is right."""
    if not line.endswith(b"\n") or line[8:9] != b" ":
        return None
    content = line[9:-1]
    return content if line[:8] == b"%08x" % zlib.crc32(content) else None
