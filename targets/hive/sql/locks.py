"""Exclusive, first-come-first-served locks on rows and unique keys, with deadlock detection.

A transaction waits for one lock at a time. A request that would make transactions wait for each
other in a cycle is refused at once. PostgreSQL detects such a deadlock only after a second.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable

from targets.hive.sql.protocol import DeadlockError


class _Lock:
    __slots__ = ("owner", "waiters")

    def __init__(self, owner: int) -> None:
        self.owner = owner
        self.waiters: deque[tuple[int, asyncio.Future[None]]] = deque()


class Locks:
    """All locks of the database; the owner of a lock is the number of a transaction."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, _Lock] = {}
        self._held: dict[int, list[Hashable]] = {}
        self._waits: dict[int, Hashable] = {}

    async def acquire(self, owner: int, name: Hashable) -> None:
        """Wait for the lock `name` and keep it until `release`. Raises `DeadlockError`."""
        lock = self._locks.get(name)
        if lock is None:
            self._locks[name] = _Lock(owner)
            self._held.setdefault(owner, []).append(name)
            return
        if lock.owner == owner:
            return
        if self._would_close_a_ring(owner, lock.owner):
            raise DeadlockError("deadlock detected")
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (owner, granted)
        lock.waiters.append(entry)
        self._waits[owner] = name
        try:
            await granted
        except asyncio.CancelledError:
            if lock.owner == owner:
                self._pass_on(name)
            else:
                lock.waiters.remove(entry)
            raise
        finally:
            self._waits.pop(owner, None)
        self._held.setdefault(owner, []).append(name)

    def release(self, owner: int) -> None:
        for name in self._held.pop(owner, ()):
            self._pass_on(name)

    def _would_close_a_ring(self, owner: int, other: int) -> bool:
        while other != owner:
            name = self._waits.get(other)
            if name is None:
                return False
            other = self._locks[name].owner
        return True

    def _pass_on(self, name: Hashable) -> None:
        lock = self._locks[name]
        if not lock.waiters:
            del self._locks[name]
            return
        lock.owner, granted = lock.waiters.popleft()
        self._waits.pop(lock.owner, None)
        granted.set_result(None)
