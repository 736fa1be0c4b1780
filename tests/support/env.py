"""A fake `Env`, with a clock that tests move, disks in memory, and recorded events."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from harness.env import File

NS_PER_S = 1_000_000_000


class Clock:
    def __init__(self, now_ns: int = 0, *, wall_begin_ns: int = 0) -> None:
        self.now_ns, self.wall_begin_ns = now_ns, wall_begin_ns

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.wall_begin_ns + self.now_ns

    def max_error_ns(self) -> int:
        return 0

    def advance(self, time_s: float) -> None:
        self.now_ns += round(time_s * NS_PER_S)


class FakeDisk:
    """A disk of whole files in memory; after `fail_after` changes, every change fails."""

    def __init__(self, **files: bytes) -> None:
        self.files: dict[str, bytes] = files
        self.fail_after: int | None = None

    def _change(self) -> None:
        if self.fail_after is not None:
            if self.fail_after == 0:
                raise OSError("power cut")
            self.fail_after -= 1

    async def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    async def replace(self, path: str, data: bytes) -> None:
        self._change()
        self.files[path] = data

    async def list(self, prefix: str = "") -> list[str]:
        return sorted(path for path in self.files if path.startswith(prefix))

    async def remove(self, path: str) -> None:
        self._change()
        self.files.pop(path, None)


class MemoryFile:
    def __init__(self, disk: "MemoryDisk", path: str) -> None:
        self.disk, self.path = disk, path

    async def read(self, offset: int, size: int) -> bytes:
        return bytes(self.disk.files[self.path][offset : offset + size])

    async def append(self, data: bytes) -> int:
        await asyncio.sleep(0)
        self.disk.files[self.path] += data
        return self.size() - len(data)

    async def sync(self) -> None:
        await asyncio.sleep(0)
        self.disk.durable[self.path] = self.size()

    async def truncate(self, size: int) -> None:
        del self.disk.files[self.path][size:]

    def size(self) -> int:
        return len(self.disk.files[self.path])

    def close(self) -> None:
        pass


class MemoryDisk(FakeDisk):
    """A disk of append-only files that records the synced length of each."""

    files: dict[str, Any]  # values are `bytearray`s

    def __init__(self) -> None:
        super().__init__()
        self.durable: dict[str, int] = {}

    async def open(self, path: str) -> File:
        self.files.setdefault(path, bytearray())
        return MemoryFile(self, path)

    async def read(self, path: str) -> bytes:
        return bytes(await super().read(path))

    async def replace(self, path: str, data: bytes) -> None:
        await super().replace(path, bytearray(data))


class FakeEnv:
    """The `Env` of one node or client: tasks of the running loop, and events in order."""

    boot = 0

    def __init__(
        self, name: str = "n1", *, clock: Any = None, disk: Any = None, seed: int = 1
    ) -> None:
        self.name = name
        self.clock = clock or Clock()
        self.disk = disk or FakeDisk()
        self.random = random.Random(seed)
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.tasks: list[asyncio.Task[Any]] = []

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self.tasks.append(task)
        return task

    def event(self, kind: str, **data: Any) -> None:
        self.events.append((kind, data))

    def point(self, kind: str, **data: Any) -> None:
        """Ignore points, because a target may have any number of them."""

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]
