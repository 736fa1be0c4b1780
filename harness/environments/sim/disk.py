"""Simulates a machine's disk: which data are visible, are durable, and survive a crash.

The model follows turmoil and FoundationDB (`AsyncFileNonDurable.h`): a file has durable content and
a list of operations since its last sync. A SIGKILL keeps all visible content, since the page cache
outlives the process. A power cut (`lose_unsynced`) keeps only some of each file's unsynced
operations: the first ones, up to a random point. `torn` cuts the last surviving append in the
middle. `replace` and `remove` are durable once they return. If a crash interrupts them, chance
decides whether they take effect.

The device serves one request at a time. An append does not wait: the page cache takes the data at
once, and the cost is added to the next device request, which is nearly always the sync that
follows. (Scheduling each append through the heap would cost time without a benefit, since a crash
leaves the same contents either way.) Pending requests continue when their caller is cancelled or
paused, and end with the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from harness.environments.sim.clock import Scheduler
from harness.environments.sim.loop import NodeLoop

UNSYNCED_OPERATIONS_MAX: Final = 4096
"""The maximum of unsynced operations per file. Above it, the oldest become durable."""


class _Inode:
    """The content of a file; `unsynced` has each append's bytes and each truncation's size."""

    __slots__ = ("durable", "exists_durably", "persisted", "unsynced", "visible")

    def __init__(self) -> None:
        self.visible = bytearray()
        self.durable = bytearray()
        self.exists_durably = False
        self.persisted = 0  # how many operations have become durable so far
        self.unsynced: list[bytes | int] = []

    def do(self, operation: bytes | int) -> None:
        _perform(self.visible, operation)
        self.unsynced.append(operation)
        if len(self.unsynced) > UNSYNCED_OPERATIONS_MAX:
            self.persist(UNSYNCED_OPERATIONS_MAX // 2)

    def persist(self, count: int) -> None:
        """Make the oldest `count` unsynced operations durable."""
        for operation in self.unsynced[:count]:
            _perform(self.durable, operation)
        del self.unsynced[:count]
        self.persisted += count
        self.exists_durably = True

    def cut_power(self, survivors: int, torn_bytes: int | None) -> None:
        """Keep the first `survivors` unsynced operations; cut the last to `torn_bytes`, if any."""
        kept = self.unsynced[:survivors]
        if torn_bytes is not None and kept and isinstance(kept[-1], bytes):
            kept[-1] = kept[-1][:torn_bytes]
        self.unsynced = kept
        self.persist(len(kept))
        self.visible = bytearray(self.durable)


def _perform(content: bytearray, operation: bytes | int) -> None:
    if isinstance(operation, int):
        del content[operation:]
    else:
        content += operation


class FileState(NamedTuple):
    """The sizes of a file on a machine's disk."""

    path: str
    visible_bytes: int
    durable_bytes: int
    unsynced_writes: int


class DiskStore:
    """The disk of one machine. It outlives the node's process."""

    def __init__(
        self,
        world: Scheduler,
        random: Random,
        *,
        latency_ns: tuple[int, int],
        append_ns_max: int,
    ) -> None:
        self.world = world
        self.files: dict[str, _Inode] = {}
        self.written_bytes = 0
        """The number of bytes written by appends and replacements, over all runs of the node."""
        self._random = random
        self._latency_ns = latency_ns
        self._append_ns_max = append_ns_max
        self._busy_until_ns = 0
        self._appends_ns = 0  # the virtual time of appends since the last device request
        self._in_flight: dict[int, Callable[[], None]] = {}
        self._requests = 0

    @property
    def changes_in_flight(self) -> int:
        return len(self._in_flight)

    def states(self) -> list[FileState]:
        """Return the state of each file, sorted by path."""
        return [
            FileState(path, len(file.visible), len(file.durable), len(file.unsynced))
            for path, file in sorted(self.files.items())
        ]

    def held_bytes(self) -> int:
        return sum(len(inode.visible) for inode in self.files.values())

    # --- timing -----------------------------------------------------------------------------

    def appended(self, size: int) -> None:
        """Count an append of `size` bytes to the page cache."""
        self.written_bytes += size
        self._appends_ns += int(self._random.random() * self._append_ns_max)

    def quick(
        self, loop: NodeLoop, effect: Callable[[], None] | None = None
    ) -> asyncio.Future[None]:
        """Start a request to the page cache: it takes effect at once; its caller waits a bit."""
        if effect is not None:
            effect()
        return self._wait(
            loop, self.world.now_ns + int(self._random.random() * self._append_ns_max)
        )

    def slow(self, loop: NodeLoop, effect: Callable[[], None]) -> asyncio.Future[None]:
        """Queue a request to the device. It takes effect when it ends."""
        return self._wait(loop, self._queued_until_ns(), effect)

    async def whole(self, loop: NodeLoop, effect: Callable[[], None]) -> None:
        """Run a request to the device. Even a cancelled caller waits until the request ends.

        If a crash interrupts the request, chance decides whether it takes effect.
        """
        until_ns = self._queued_until_ns()
        self._requests += 1
        request = self._requests
        self._in_flight[request] = effect

        def done() -> None:
            self._in_flight.pop(request, None)
            effect()

        waiting = self._wait(loop, until_ns, done)
        cancelled: asyncio.CancelledError | None = None
        while True:
            try:
                await waiting
            except asyncio.CancelledError as error:
                cancelled = error
            if not loop.alive or self.world.now_ns >= until_ns:
                break
            waiting = self._wait(loop, until_ns)
        if cancelled is not None:
            raise cancelled

    def _queued_until_ns(self) -> int:
        """Return when a device request that is queued now will end."""
        low, high = self._latency_ns
        took_ns = low + int(self._random.random() * (high - low)) + self._appends_ns
        self._appends_ns = 0
        self._busy_until_ns = max(self.world.now_ns, self._busy_until_ns) + took_ns
        return self._busy_until_ns

    def _wait(
        self, loop: NodeLoop, until_ns: int, effect: Callable[[], None] | None = None
    ) -> asyncio.Future[None]:
        future: asyncio.Future[None] = loop.create_future()

        def complete(_: None) -> None:
            if loop.alive:
                if effect is not None:
                    effect()
                if not future.done():
                    future.set_result(None)

        self.world.schedule(until_ns, complete)
        return future

    # --- faults -----------------------------------------------------------------------------

    def crash(self, *, lose_unsynced: bool, torn: bool) -> None:
        """Apply the node's death to the disk; `lose_unsynced` and `torn` also lose data."""
        for effect in self._in_flight.values():
            if self._random.random() < 0.5:
                effect()
        self._in_flight.clear()
        self._busy_until_ns = self._appends_ns = 0
        if lose_unsynced or torn:
            for path in sorted(self.files):
                self._cut_power(path, lose_unsynced=lose_unsynced, torn=torn)

    def _cut_power(self, path: str, *, lose_unsynced: bool, torn: bool) -> None:
        inode = self.files[path]
        survivors = len(inode.unsynced)
        if lose_unsynced:
            # If the file's creation was never synced, a power cut may remove the whole file.
            survivors = self._random.randrange(survivors + 1)
            if not inode.exists_durably and self._random.random() < 0.5:
                del self.files[path]
                return
        torn_bytes = None
        if torn and survivors and isinstance(last := inode.unsynced[survivors - 1], bytes):
            torn_bytes = self._random.randrange(len(last) + 1)
        if lose_unsynced:
            inode.cut_power(survivors, torn_bytes)
        elif torn_bytes is not None:
            # The process died during its last write(), so the page cache has only part of it.
            last = inode.unsynced[-1]
            assert isinstance(last, bytes)
            del inode.visible[len(inode.visible) - len(last) + torn_bytes :]
            inode.unsynced[-1] = last[:torn_bytes]

    def wipe(self) -> bool:
        had = bool(self.files)
        self.files.clear()
        return had


class SimDisk:
    """The disk of one run of a node (see `harness.env.Disk`). A dead node cannot use it."""

    def __init__(self, store: DiskStore, loop: NodeLoop) -> None:
        self._store = store
        self._loop = loop

    async def open(self, path: str) -> SimFile:
        _check(self._loop, path)
        inode = self._store.files.get(path)
        if inode is None:
            inode = self._store.files[path] = _Inode()
        file = SimFile(self._store, self._loop, path, inode)
        await self._store.quick(self._loop)
        return file

    async def read(self, path: str) -> bytes:
        _check(self._loop, path)
        await self._store.quick(self._loop)
        inode = self._store.files.get(path)
        if inode is None:
            raise FileNotFoundError(f"no file {path!r}")
        return bytes(inode.visible)

    async def replace(self, path: str, data: bytes) -> None:
        await self._loop.thawed()
        _check(self._loop, path)
        store, content = self._store, bytes(data)
        store.world.note(self._loop.name, f"replace {path}", content)
        store.written_bytes += len(content)

        def rename() -> None:
            inode = _Inode()
            inode.do(content)
            inode.persist(1)
            store.files[path] = inode

        await store.whole(self._loop, rename)

    async def list(self, prefix: str = "") -> list[str]:
        _check(self._loop)
        await self._store.quick(self._loop)
        return sorted(path for path in self._store.files if path.startswith(prefix))

    async def remove(self, path: str) -> None:
        await self._loop.thawed()
        _check(self._loop, path)
        files = self._store.files
        self._store.world.note(self._loop.name, f"remove {path}")
        await self._store.whole(self._loop, lambda: _forget(files, path))


class SimFile:
    """An open file (see `harness.env.File`). It keeps its content when its path is replaced."""

    def __init__(self, store: DiskStore, loop: NodeLoop, path: str, inode: _Inode) -> None:
        self._store = store
        self._loop = loop
        self._path = path
        self._inode = inode
        self._closed = False

    async def read(self, offset: int, size: int) -> bytes:
        self._check()
        if offset < 0 or size < 0:
            raise ValueError(f"offset {offset} and size {size} must not be negative")
        await self._store.quick(self._loop)
        return bytes(self._inode.visible[offset : offset + size])

    async def append(self, data: bytes) -> int:
        if self._loop.paused:
            await self._loop.thawed()
        if self._closed or not self._loop.alive:
            self._check()
        offset, content = len(self._inode.visible), bytes(data)
        self._store.world.note(self._loop.name, f"append {self._path} at {offset}", content)
        self._inode.do(content)
        self._store.appended(len(content))
        return offset

    async def sync(self) -> None:
        if self._closed or not self._loop.alive:
            self._check()
        inode = self._inode
        operations = inode.persisted + len(inode.unsynced)

        def persist() -> None:
            # another sync, or the write-back, may have persisted some of these operations already
            inode.persist(max(0, operations - inode.persisted))

        await self._store.slow(self._loop, persist)

    async def truncate(self, size: int) -> None:
        await self._loop.thawed()
        self._check()
        if not 0 <= size <= len(self._inode.visible):
            raise ValueError(
                f"cannot cut {self._path!r} to {size} bytes: it has {len(self._inode.visible)}"
            )
        self._store.world.note(self._loop.name, f"truncate {self._path} to {size}")
        await self._store.quick(self._loop, lambda: self._inode.do(size))

    def size(self) -> int:
        return len(self._inode.visible)

    def close(self) -> None:
        self._closed = True

    def _check(self) -> None:
        _check(self._loop)
        if self._closed:
            raise ValueError(f"the file {self._path!r} is closed")


def _forget(files: dict[str, _Inode], path: str) -> None:
    files.pop(path, None)


def _check(loop: NodeLoop, path: str | None = None) -> None:
    """Raise `CancelledError` if the node is dead, and `ValueError` for an invalid path."""
    if not loop.alive:
        raise asyncio.CancelledError(f"{loop.name} is dead and cannot use its disk")
    if path is not None and any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"{path!r} is not a path of a disk; write it like 'wal/000001'")
