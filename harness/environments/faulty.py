"""The faulty disk and the faulty clock that an environment gives to a node on `Env`.

`FaultyDisk` is the same in all environments. It wraps the environment's own disk, and passes on all
requests except those that must fail. A failed request has no effect, as with a device that reports
an error for the whole request. (Power cuts, not this module, drop data after a failed fsync.) Bit
rot is applied on reads and depends only on the position in the file, so a second read returns the
same data. The stored data stays intact, so the fault can be healed.

`FaultyClock` does for real clocks what `SimClock` does in simulation. An offset moves only the wall
clock. Drift changes the speed of the wall clock and of the monotonic clock, from the moment it is
set. The node cannot tell that its clocks are wrong.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Coroutine
from typing import Any, Final

import msgspec

from harness.cluster import DiskQuality
from harness.env import Clock, Disk, File

_BLOCK_BYTES: Final = 4096
_MILLION: Final = 1_000_000


class DiskTrouble:
    """The faults of one machine's disk, and a count of the requests that they affected."""

    def __init__(self, draws: random.Random, label: str) -> None:
        """Start with a good disk; `draws` selects failing requests, and `label` seeds bit rot."""
        self._draws = draws
        self._label = label
        self.quality = DiskQuality()
        self.is_set = False
        """Whether any request may be affected."""
        self._touched = 0

    def set(self, quality: DiskQuality) -> int:
        """Set the disk's faults. Returns how many requests were affected since the last count."""
        self.quality = quality
        self.is_set = quality != DiskQuality()
        return self.touched()

    def touched(self) -> int:
        touched, self._touched = self._touched, 0
        return touched

    async def strike(self, path: str, *, writes: bool) -> None:
        """Delay a request; raises `OSError` if the request must fail."""
        quality = self.quality
        if quality.delay_ms:
            self._touched += 1
            await asyncio.sleep(quality.delay_ms / 1000)
        self.fail(path, writes=writes)

    def fail(self, path: str, *, writes: bool) -> None:
        """Raise `OSError` if a request must fail; unlike `strike`, never delay the request."""
        quality = self.quality
        if writes and quality.full:
            self._touched += 1
            raise OSError(errno.ENOSPC, "no space left on device", path)
        if quality.error and self._draws.random() < quality.error:
            self._touched += 1
            raise OSError(errno.EIO, "input/output error", path)

    def rot(self, path: str, data: bytes, offset: int, size: int) -> bytes:
        """Return `data`, read at `offset` of a file of `size` bytes, with bit rot."""
        share = self.quality.bitrot
        if not share:
            return data
        end = offset + len(data)
        rotten = bytearray(data)
        for start in range(offset - offset % _BLOCK_BYTES, end, _BLOCK_BYTES):
            place = random.Random(f"{self._label}/{path}/{start}")
            if place.random() < share and start < size:
                bit = place.randrange(8 * min(_BLOCK_BYTES, size - start))
                if offset <= start + bit // 8 < end:
                    rotten[start + bit // 8 - offset] ^= 1 << bit % 8
        if rotten == data:
            return data
        self._touched += 1
        return bytes(rotten)


class FaultyDisk:
    """A disk with faults (see `harness.env.Disk`)."""

    def __init__(self, disk: Disk, trouble: DiskTrouble) -> None:
        self._disk = disk
        self._trouble = trouble

    async def open(self, path: str) -> FaultyFile:
        await self._trouble.strike(path, writes=False)
        return FaultyFile(await self._disk.open(path), path, self._trouble)

    async def read(self, path: str) -> bytes:
        await self._trouble.strike(path, writes=False)
        data = await self._disk.read(path)
        return self._trouble.rot(path, data, 0, len(data))

    async def replace(self, path: str, data: bytes) -> None:
        await self._trouble.strike(path, writes=True)
        await self._disk.replace(path, data)

    async def list(self, prefix: str = "") -> list[str]:
        await self._trouble.strike(prefix, writes=False)
        return await self._disk.list(prefix)

    async def remove(self, path: str) -> None:
        await self._trouble.strike(path, writes=False)
        await self._disk.remove(path)


class FaultyFile:
    """An open file on a disk with faults (see `harness.env.File`)."""

    def __init__(self, file: File, path: str, trouble: DiskTrouble) -> None:
        self._file = file
        self._path = path
        self._trouble = trouble
        self.size = file.size
        self.close = file.close

    async def read(self, offset: int, size: int) -> bytes:
        await self._trouble.strike(self._path, writes=False)
        data = await self._file.read(offset, size)
        return self._trouble.rot(self._path, data, offset, self._file.size())

    def append(self, data: bytes) -> Coroutine[Any, Any, int]:
        """Append `data` without delay, because it goes to the page cache; returns its offset."""
        self._trouble.fail(self._path, writes=True)
        return self._file.append(data)

    def sync(self) -> Coroutine[Any, Any, None]:
        # Return the file's own coroutine, because each additional one costs time at every sync.
        return self._strike_and_sync() if self._trouble.is_set else self._file.sync()

    async def _strike_and_sync(self) -> None:
        await self._trouble.strike(self._path, writes=False)
        await self._file.sync()

    async def truncate(self, size: int) -> None:
        await self._trouble.strike(self._path, writes=False)
        await self._file.truncate(size)


class ClockError(msgspec.Struct, frozen=True, kw_only=True):
    """The errors of a machine's clocks, within the limits of `harness.cluster.check_clock`."""

    offset_ns: int = 0  # of the wall clock
    drift_ppm: int = 0  # how much too fast both clocks run, in parts per million
    since_ns: int = 0  # when the drift began, by a correct wall clock


class FaultyClock:
    """Clocks with faults (see `harness.env.Clock`).

    When the speed changes, monotonic time continues from its current value, so it never goes back.
    The wall clock is wrong by the offset, plus the drift since the current error was set.
    """

    def __init__(self, clock: Clock, error: ClockError) -> None:
        """Wrap the correct `clock`. Its `error` may have begun before this node started."""
        self._clock = clock
        self._error = error
        self._anchor_ns = clock.monotonic_ns()  # correct time of the last change of speed
        self._local_ns = self._anchor_ns  # this clock's time at that moment
        wrong_for_ns = max(0, clock.wall_ns() - error.since_ns) if error.drift_ppm else 0
        self._ahead_ns = wrong_for_ns * error.drift_ppm // _MILLION

    @property
    def rate(self) -> float:
        """The number of seconds that this clock advances per second."""
        return 1 + self._error.drift_ppm / _MILLION

    def monotonic_ns(self) -> int:
        passed = self._clock.monotonic_ns() - self._anchor_ns
        return self._local_ns + passed + passed * self._error.drift_ppm // _MILLION

    def wall_ns(self) -> int:
        right = self._clock.wall_ns()
        passed = self._clock.monotonic_ns() - self._anchor_ns
        drifted = self._ahead_ns + passed * self._error.drift_ppm // _MILLION
        return right + drifted + self._error.offset_ns

    def max_error_ns(self) -> int:
        return self._clock.max_error_ns()

    def set(self, error: ClockError) -> None:
        """Apply `error` from now on. Setting the same error again changes nothing."""
        if error != self._error:
            local_ns = self.monotonic_ns()
            self._anchor_ns = self._clock.monotonic_ns()
            self._local_ns = local_ns
            self._ahead_ns = 0
            self._error = error
