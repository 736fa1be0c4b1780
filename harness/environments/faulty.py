"""The disk of a node on `Env` as its environment lets it have it: the same wrapper in all worlds.

It stands between the node and the environment's own disk, which it asks unless the request is to
fail. A request that fails had no effect, as a device does that reports an error for the whole
request; what the kernel forgets after a failed fsync is the power cut's business.
"""

from __future__ import annotations

import asyncio
import errno
import random
from typing import Final

from harness.cluster import DiskQuality
from harness.env import Disk, File

__all__ = ["DiskTrouble", "FaultyDisk"]

_WELL: Final = DiskQuality()


class DiskTrouble:
    """How bad the disk of one machine is now, and how many requests felt it."""

    def __init__(self, draws: random.Random) -> None:
        """A good disk; `draws` decides which requests fail, and nothing else."""
        self._draws = draws
        self._quality = _WELL
        self._touched = 0
        self.well = True

    def set(self, quality: DiskQuality) -> int:
        """From now on it is as bad as this; returns how many requests felt what was before."""
        touched, self._touched = self._touched, 0
        self._quality = quality
        self.well = quality == _WELL
        return touched

    async def strike(self, path: str, *, writes: bool) -> None:
        """Let a request be late; raises `OSError` for one that fails."""
        quality = self._quality
        if quality.delay_ms:
            self._touched += 1
            await asyncio.sleep(quality.delay_ms / 1000)
        self.fail(path, writes=writes)

    def fail(self, path: str, *, writes: bool) -> None:
        """The part of `strike` that takes no time."""
        quality = self._quality
        if writes and quality.full:
            self._touched += 1
            raise OSError(errno.ENOSPC, "no space left on device", path)
        if quality.error and self._draws.random() < quality.error:
            self._touched += 1
            raise OSError(errno.EIO, "input/output error", path)


class FaultyDisk:
    """A disk that fails when it is told to (`harness.env.Disk`)."""

    def __init__(self, disk: Disk, trouble: DiskTrouble) -> None:
        """`disk` is the environment's own."""
        self._disk = disk
        self._trouble = trouble

    async def open(self, path: str) -> FaultyFile:
        """Open for appending, creating the file where it is missing."""
        if not self._trouble.well:
            await self._trouble.strike(path, writes=False)
        return FaultyFile(await self._disk.open(path), path, self._trouble)

    async def read(self, path: str) -> bytes:
        """The whole file. Raises `FileNotFoundError`."""
        if not self._trouble.well:
            await self._trouble.strike(path, writes=False)
        return await self._disk.read(path)

    async def replace(self, path: str, data: bytes) -> None:
        """Replace the file atomically and durably."""
        if not self._trouble.well:
            await self._trouble.strike(path, writes=True)
        await self._disk.replace(path, data)

    async def list(self, prefix: str = "") -> list[str]:
        """Paths that start with `prefix`, sorted."""
        if not self._trouble.well:
            await self._trouble.strike(prefix, writes=False)
        return await self._disk.list(prefix)

    async def remove(self, path: str) -> None:
        """Remove the file durably; a missing one is no error."""
        if not self._trouble.well:
            await self._trouble.strike(path, writes=False)
        await self._disk.remove(path)


class FaultyFile:
    """An open file of a disk that fails when it is told to (`harness.env.File`)."""

    def __init__(self, file: File, path: str, trouble: DiskTrouble) -> None:
        self._file = file
        self._path = path
        self._trouble = trouble
        self.size = file.size
        self.close = file.close

    async def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; shorter only at the end of the file."""
        if not self._trouble.well:
            await self._trouble.strike(self._path, writes=False)
        return await self._file.read(offset, size)

    async def append(self, data: bytes) -> int:
        """Append and return the offset `data` starts at. The page cache takes it without delay."""
        if not self._trouble.well:
            self._trouble.fail(self._path, writes=True)
        return await self._file.append(data)

    async def sync(self) -> None:
        """Make everything appended so far durable."""
        if not self._trouble.well:
            await self._trouble.strike(self._path, writes=False)
        await self._file.sync()

    async def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        if not self._trouble.well:
            await self._trouble.strike(self._path, writes=False)
        await self._file.truncate(size)
